//! Tests of kernels that wait for a launch of their own slice.

use super::*;

/// A second row for a slice, on another card.
fn on_two_cards(desk: &mut Desk) {
    for slice in &mut desk.view.slices {
        let second = SliceCardView { card: 8, ..slice.rows[0].clone() };
        slice.rows.push(second);
    }
}

impl Desk {
    fn reports_on(&mut self, slice: usize, row: usize, state: State) {
        let now = self.now;
        let row = &mut self.view.slices[slice].rows[row];
        let turn = row.published.turn;
        let process = &mut row.processes[0];
        (process.state, process.turn, process.active_at) = (state, turn, now);
    }

    /// Steps every ms; working processes have a heartbeat, and waiting ones see the published
    /// grants.
    fn steps_for(&mut self, ms: u64) -> Vec<(u64, Kind, Holder, u64)> {
        let mut published = Vec::new();
        for _ in 0..ms {
            self.now += MS;
            let now = self.now;
            for row in self.view.slices.iter_mut().flat_map(|slice| &mut slice.rows) {
                for process in &mut row.processes {
                    process.active_at = now;
                    if process.state == State::Waiting {
                        process.turn = row.published.turn;
                    }
                }
            }
            published.extend(self.step(0));
        }
        published
    }
}

/// A slice without a share has launched on one card, and its other process waits for a turn on the
/// other.
#[test]
fn a_slice_keeps_both_cards_also_when_its_work_is_not_waited_for() {
    for shares in [[0, 20], [20, 0], [50, 50]] {
        let mut desk = Desk::new(&shares);
        on_two_cards(&mut desk);
        (0..2).for_each(|slice| (0..2).for_each(|row| desk.reports_on(slice, row, State::Waiting)));
        desk.step(0);
        // Both launch on one card only, and wait on the other from then on.
        for slice in 0..2 {
            while desk.row(slice).published.holder != Holder::All {
                desk.steps_for(1);
            }
            desk.reports_on(slice, 0, State::Running);
            desk.steps_for(30);
        }
        let published = desk.steps_for(2_000);
        for (slice, kind, holder, _) in &published {
            assert_eq!(*kind, Kind::Turn, "{shares:?}: slice {slice}");
            assert!(
                [Holder::All, Holder::None].contains(holder),
                "{shares:?}: {slice} {holder:?} {published:?}"
            );
        }
        for slice in 0..2 {
            let rows = &desk.view.slices[slice].rows;
            assert_eq!(rows[0].published.until, rows[1].published.until, "{shares:?}");
            let has = |it: &&(u64, Kind, Holder, u64)| (it.0, it.2) == (slice as u64, Holder::All);
            assert!(published.iter().filter(has).count() >= 4, "{shares:?}: slice {slice}");
        }
    }
}

/// Otherwise a kernel that waits for ever would have the card for ever, because it is never billed.
#[test]
fn a_turn_without_a_report_is_not_prolonged() {
    let mut desk = two([90, 10]);
    desk.works(0, 4 * MS);
    desk.reports(0, State::Waiting);
    desk.step(MS);
    desk.reports(1, State::Running);
    desk.works(1, 20 * MS);
    desk.reports(1, State::Waiting);
    assert_eq!(desk.step(0), [turn(0, 20 * MS)]);
    desk.reports(0, State::Running);
    // 20 ms of a tenth are worth 180 of the rest.
    let prolonged = desk.steps_for(400);
    let (turns, last) = (prolonged.len(), desk.row(0).published);
    assert!((7..=9).contains(&turns), "{prolonged:?}");
    assert!(desk.now > last.until + 200 * MS);
}
