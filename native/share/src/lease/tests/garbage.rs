//! A test with any content of the files.

use super::*;
use crate::prng::Prng;

/// With random bytes in the files there is no panic, the numbers of grants have no gaps, no card has two
/// parties that may launch, and soon nothing is left to publish.
#[test]
fn garbage_in_the_files_breaks_no_rule() {
    for seed in 0..100 {
        let mut prng = Prng::new(seed);
        let mut desk = two_cards();
        let mut looks = 0;
        for _ in 0..1_500 {
            desk.now += prng.below(6 * MS);
            let now = desk.now;
            change(&mut prng, &mut desk);
            desk.step(0);
            assert!(desk.wake_at.is_none_or(|wake_at| wake_at > now));
            for card in [7, 8] {
                let sharers = sharers(&desk, card);
                assert!(
                    sharers.len() <= 1 || agree(&desk, card),
                    "seed {seed}, {card}: {sharers:?}"
                );
            }
            // A process that it skips may change the next step.
            while !desk.step(0).is_empty() {
                looks += 1;
            }
        }
        assert!(looks < 300, "seed {seed}: {looks}");
    }
}

/// Slices on one and two cards, by themselves and in gangs.
fn two_cards() -> Desk {
    let mut desk = Desk::new(&[30, 0, 60, 10, 20, 0]);
    for (key, slice) in desk.view.slices.iter_mut().enumerate() {
        let mut second = slice.rows[0].clone();
        second.card = 8;
        second.published.number = u32::MAX - 2;
        match key {
            0 | 2 => slice.rows.push(second),
            4 => slice.rows[0].card = 8,
            _ => {}
        }
        slice.gang = [None, None, Some(1), Some(1), Some(2), Some(2)][key];
    }
    desk
}

/// Changes one row at random.
fn change(prng: &mut Prng, desk: &mut Desk) {
    let now = desk.now;
    let slice = prng.below(desk.view.slices.len() as u64) as usize;
    let rows = &mut desk.view.slices[slice].rows;
    let at = prng.below(rows.len() as u64) as usize;
    let row = &mut rows[at];
    match prng.below(300) {
        0..3 => row.regime.share = prng.below(110) as u32,
        3 => row.regime.mode = Mode::Soft,
        4 => row.regime.mode = Mode::Hard,
        5 => row.regime.priority = Priority::High,
        6 => row.regime.priority = Priority::Low,
        _ => {}
    }
    if prng.below(50) == 0 {
        let slot = prng.below(4) as u16 + 4;
        row.processes.retain(|process| process.slot != slot);
        let id = prng.below(2);
        row.processes.push(ProcessView { slot, id, ..ProcessView::default() });
    }
    let number = row.published.number;
    for process in &mut row.processes {
        process.report = Report::from_word(prng.next());
        if prng.below(10) > 0 {
            process.report.grant = number;
        }
        process.active_at = match prng.below(30) {
            0 => u64::MAX,
            1 => 0,
            2 => prng.next(),
            _ => now + prng.below(3 * MS),
        };
        process.dead = prng.below(40) == 0;
    }
}

/// Whether those that may launch have soft shares, the same priority, and know of each other.
fn agree(desk: &Desk, card: u64) -> bool {
    let rows = desk.view.slices.iter().flat_map(|slice| &slice.rows);
    let held = |row: &&SliceCardView| row.card == card && row.published.holder != Holder::None;
    let mut held = rows.filter(held).filter(|row| row.published.until > desk.now);
    let first = held.clone().next().map(|row| row.regime.priority);
    held.all(|row| {
        let soft = !ledger::is_hard(row.regime);
        soft && Some(row.regime.priority) == first && row.published.others > 0
    })
}

/// The parties that hold the lease of a card, or have it alone.
fn sharers(desk: &Desk, card: u64) -> Vec<String> {
    let mut sharers = Vec::new();
    for (s, slice) in desk.view.slices.iter().enumerate() {
        for (r, row) in slice.rows.iter().enumerate().filter(|(_, row)| row.card == card) {
            let grant = row.published;
            let is_leased = desk.leases.slices[s].rows[r].sharing == Sharing::Leased;
            let ended = grant.kind == Kind::Lease && grant.until <= desk.now;
            if is_leased && grant.holder != Holder::None && !ended {
                sharers.push(format!("{:?}", slice.gang.ok_or(slice.key)));
            }
        }
    }
    sharers.sort();
    sharers.dedup();
    sharers
}
