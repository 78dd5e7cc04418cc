//! Parties that have the lease together.

use super::*;

/// Slices with soft shares that all wait, after their first step.
fn soft(shares: &[u32]) -> (Desk, Vec<Published>) {
    let mut desk = Desk::new(shares);
    for slice in 0..shares.len() {
        desk.row(slice).regime.mode = Mode::Soft;
        desk.reports(slice, State::Waiting);
    }
    let published = desk.step(0);
    (desk, published)
}

fn served(desk: &Desk, slice: usize) -> u64 {
    desk.leases.slices[slice].rows[0].ledger.served / MS
}

#[test]
fn equal_soft_shares_have_the_lease_together() {
    let (mut desk, published) = soft(&[33, 33, 34]);
    let together = [0, 1, 2].map(|slice| (slice, Kind::Lease, Holder::All, timing::ROUND / 3));
    assert_eq!(published[3..], together);
    assert_eq!(desk.row(0).published.others, 2);
    (0..3).for_each(|slice| desk.reports(slice, State::Running));
    assert_eq!(desk.steps_for(60).iter().filter(|it| it.2 == Holder::None).count(), 0);
    // 20 ms each, of a third of the card.
    for slice in 0..3 {
        assert!((58..=61).contains(&served(&desk, slice)), "{}", served(&desk, slice));
    }
}

#[test]
fn the_driver_would_not_divide_the_card_as_these_ask() {
    type Change = fn(&mut Desk);
    let changes: [(&str, [u32; 3], Change); 6] = [
        ("unequal", [25, 25, 50], |_| {}),
        ("a ceiling", [33; 3], |desk| desk.row(1).regime.mode = Mode::Hard),
        ("a priority", [33; 3], |desk| desk.row(1).regime.priority = Priority::High),
        ("two processes", [33; 3], |desk| {
            let other = ProcessView { slot: 5, ..*desk.process(1) };
            desk.row(1).processes.push(other);
        }),
        ("two contexts", [33; 3], |desk| desk.process(1).report.is_split = true),
        ("a gang with an idle member", [33; 3], |desk| {
            desk.view.slices[1].gang = Some(9);
            let idle = SliceView { key: 9, ..desk.view.slices[1].clone() };
            desk.view.slices.push(idle);
            desk.process(3).report.state = State::Idle;
        }),
    ];
    for (name, shares, change) in changes {
        let mut desk = Desk::new(&shares);
        for slice in 0..3 {
            desk.row(slice).regime.mode = Mode::Soft;
            desk.reports(slice, State::Waiting);
        }
        change(&mut desk);
        desk.step(0);
        let holders = (0..3).filter(|slice| desk.holds(*slice)).count();
        assert_eq!(holders, 1, "{name}");
    }
}

#[test]
fn little_is_in_flight_while_a_slice_is_present_that_may_begin() {
    let mut desk = Desk::new(&[33; 3]);
    for slice in 0..3 {
        desk.row(slice).regime.mode = Mode::Soft;
    }
    for (present, depth) in [(true, timing::SHALLOW), (false, timing::DEPTH)] {
        desk.process(2).dead = !present;
        desk.reports(0, State::Waiting);
        desk.reports(1, State::Waiting);
        desk.steps_for(1);
        assert!(desk.holds(0) && desk.holds(1));
        assert_eq!(desk.row(0).published.depth, depth);
    }
}

#[test]
fn a_set_ends_when_its_members_do_not_agree_any_more() {
    for change in [Regime { priority: Priority::High, ..Regime::default() }, Regime::default()] {
        let (mut desk, _) = soft(&[50, 50]);
        desk.reports(0, State::Running);
        desk.reports(1, State::Running);
        desk.steps_for(5);
        let share = desk.row(0).regime.share;
        desk.row(0).regime = Regime { share, ..change };
        assert_eq!(desk.steps_for(1)[..1], [none(1)]);
        assert!(desk.holds(0) && !desk.holds(1), "{change:?}");
        assert_eq!(desk.row(0).published.others, 0);
    }
}

#[test]
fn who_is_owed_time_has_the_card_alone_until_both_have_had_the_same() {
    let (mut desk, _) = soft(&[50, 50]);
    desk.reports(0, State::Running);
    desk.reports(1, State::Running);
    desk.steps_for(10);
    // It pauses, and the other one has the card.
    desk.reports(0, State::Idle);
    desk.steps_for(20);
    desk.reports(0, State::Waiting);
    assert_eq!(desk.steps_for(1)[..2], [none(1), lease(0, 20)]);
    desk.reports(0, State::Running);
    desk.reports(1, State::Waiting);
    let mut alone = 1;
    while !desk.holds(1) {
        desk.steps_for(1);
        alone += 1;
    }
    assert!((17..=21).contains(&alone), "{alone} ms alone after 20 ms of pause");
    assert!(desk.holds(0));
    assert!(served(&desk, 1) - served(&desk, 0) <= 4);
}

#[test]
fn a_short_rest_keeps_the_lease_and_saves_nothing_up() {
    let (mut desk, _) = soft(&[50, 50]);
    desk.reports(1, State::Running);
    for _ in 0..100 {
        desk.reports(0, State::Running);
        desk.steps_for(2);
        desk.reports(0, State::Idle);
        desk.steps_for(1);
        assert!(desk.holds(0) && desk.holds(1));
    }
    assert!(served(&desk, 1) - served(&desk, 0) <= 4);
    desk.reports(0, State::Idle);
    desk.steps_for(7);
    assert!(!desk.holds(0) && desk.holds(1));
}

#[test]
fn who_rests_keeps_no_lease_while_nobody_uses_it() {
    let (mut desk, _) = soft(&[50, 50]);
    desk.reports(0, State::Idle);
    desk.reports(1, State::Idle);
    desk.steps_for(1);
    assert!(!desk.holds(0) && !desk.holds(1));
}

/// A process that reports work that it does not have is billed for it. Nobody pays for more than the
/// time that passed.
#[test]
fn the_parts_of_a_bill_are_the_whole() {
    let (mut desk, _) = soft(&[50, 50]);
    for state in [State::Running, State::Waiting, State::Idle] {
        let before = served(&desk, 0) + served(&desk, 1);
        desk.reports(0, State::Running);
        desk.reports(1, state);
        desk.steps_for(2);
        let billed = served(&desk, 0) + served(&desk, 1) - before;
        assert!((3..=5).contains(&billed), "{state:?}: {billed} of 2 ms at half the weight");
    }
}
