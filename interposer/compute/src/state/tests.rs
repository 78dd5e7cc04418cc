//! The verdict about launches, without a driver, a coordinator or a clock.

use hami_account::Debt;
use hami_limits::grants::{Grant, Holder, Kind, UNBLOCKS_IDLE};
use hami_share::timing;

use super::{State, Verdict, WaitsFor};
use crate::events::Event;
use crate::launch::Stream;
use crate::seats::{Seats, Terms};

const MS: u64 = 1_000_000;
/// The function that most of the tests launch.
const KERNEL: usize = 7;
const START: u64 = 1_000 * MS;

fn state() -> State {
    State::new(Debt::default(), START)
}

fn stream(handle: usize) -> Stream {
    Stream { context: 0x1000, handle }
}

/// A bucket of this rate, and no coordinator.
fn bucket(percent: u32) -> Terms {
    Terms { grant: None, is_granted: true, rate: Some(percent * 10_000) }
}

/// A lease of the coordinator with this depth, and no bucket.
fn lease(depth: u64, is_granted: bool) -> Terms {
    let (kind, holder) = (Kind::Lease, Holder::Slot(0));
    let grant = Grant { number: 1, kind, holder, until: u64::MAX, depth, others: 0, unblock: 0 };
    Terms { grant: Some(grant), is_granted, rate: None }
}

impl State {
    fn ask(&mut self, terms: &Terms, handle: usize, at: u64) -> Verdict {
        self.verdict(terms, (stream(handle).queue(), KERNEL), (at, at))
    }

    /// Launches if the verdict allows it. Returns what it waits for otherwise, and until when.
    fn launch(&mut self, terms: &Terms, handle: usize, at: u64) -> Result<(), (WaitsFor, u64)> {
        let (cost, depth) = match self.ask(terms, handle, at) {
            Verdict::Go { cost, depth, .. } => (cost, depth),
            Verdict::Wait { what, until } => return Err((what, until)),
            Verdict::Unlimited => panic!("unlimited"),
        };
        let launched = self.launched(stream(handle), (KERNEL, cost), depth, at);
        if launched.records {
            self.close(stream(handle).queue(), Some(Event::numbered(at as usize)), true, at);
        }
        Ok(())
    }

    /// The oldest interval of a stream has ended, and took so long alone on the card.
    fn end(&mut self, terms: &Terms, handle: usize, took: u64, at: u64) {
        let billed = self.ended(stream(handle).queue(), (Some(took), took), 0, at);
        self.debit(terms.rate, billed, at);
    }

    /// A state that knows how long [`KERNEL`] takes.
    fn knowing(cost: u64) -> Self {
        let mut state = state();
        let terms = lease(timing::DEPTH, true);
        state.launch(&terms, 0x10, START - 900 * MS).unwrap();
        state.end(&terms, 0x10, cost, START - 900 * MS + cost);
        state
    }
}

#[test]
fn without_a_share_or_a_coordinator_a_launch_is_unlimited() {
    let terms = Terms { grant: None, is_granted: true, rate: None };
    assert_eq!(state().ask(&terms, 0x10, START), Verdict::Unlimited);
}

#[test]
fn without_the_lease_a_launch_waits_for_it() {
    let verdict = state().launch(&lease(timing::DEPTH, false), 0x10, START);
    assert_eq!(verdict, Err((WaitsFor::Lease, u64::MAX)));
}

#[test]
fn the_holder_of_a_lease_has_as_much_in_flight_as_its_depth() {
    for cost in [MS / 10, MS / 2, MS, 2 * MS] {
        for depth in [timing::SHALLOW, timing::DEPTH, timing::METERED] {
            let mut state = State::knowing(cost);
            let terms = lease(depth, true);
            let launches =
                (0..1000).take_while(|_| state.launch(&terms, 0x10, START).is_ok()).count() as u64;
            assert_eq!(launches, (depth / cost).max(1), "{cost} ns, depth {depth}");
            let (what, _) = state.launch(&terms, 0x10, START).unwrap_err();
            assert_eq!(what, WaitsFor::Room);
        }
    }
}

#[test]
fn the_end_of_work_makes_room() {
    let mut state = State::knowing(4 * MS);
    let terms = lease(timing::DEPTH, true);
    for step in 0..10 {
        let at = START + step * 4 * MS;
        state.launch(&terms, 0x10, at).unwrap();
        assert!(state.launch(&terms, 0x10, at).is_err());
        state.end(&terms, 0x10, 4 * MS, at + 4 * MS);
    }
}

#[test]
fn a_bucket_gives_the_share_whatever_the_kernels_take() {
    for percent in [1, 5, 30, 50, 75, 99] {
        for cost in [MS, 3 * MS, 10 * MS, 30 * MS, 100 * MS, 400 * MS] {
            let (mut state, terms) = (State::knowing(cost), bucket(percent));
            let (mut at, mut used) = (START, 0);
            let end = START + 1_000 * cost.max(10 * MS);
            while at < end {
                match state.launch(&terms, 0x10, at) {
                    Ok(()) => {
                        at += cost;
                        used += cost;
                        state.end(&terms, 0x10, cost, at);
                    }
                    Err((what, until)) => {
                        assert_eq!(what, WaitsFor::Credit);
                        assert!(until > at, "it would spin");
                        at = until;
                    }
                }
            }
            let share = used as f64 * 100.0 / (at - START) as f64;
            // At the end, at most what was saved up and one kernel more.
            let more = (timing::SAVED + cost) as f64 * 100.0 / (at - START) as f64;
            let range = f64::from(percent) - more - 0.1..f64::from(percent) + more + 0.1;
            assert!(range.contains(&share), "{percent} % of kernels of {cost} ns: {share}");
        }
    }
}

#[test]
fn the_debt_of_earlier_processes_is_paid_first() {
    let debt = Debt::new(START + 1_000 * MS, 500_000);
    let mut state = State::new(debt, START);
    let (what, until) = state.launch(&bucket(50), 0x10, START).unwrap_err();
    assert_eq!(what, WaitsFor::Credit);
    assert!((999 * MS..=1_001 * MS).contains(&(until - START)), "{until}");
    assert_eq!(state.launch(&bucket(50), 0x10, until), Ok(()));
    // The coordinator has the debts of the slice in its own ledger.
    let mut state = State::new(debt, START);
    state.leave_debts_to_the_coordinator();
    let (_, until) = state.launch(&bucket(50), 0x10, START).unwrap_err();
    assert!(until - START < MS, "{until}");
}

#[test]
fn one_kernel_on_each_of_sixteen_streams_may_wait_for_the_others() {
    let (mut state, terms) = (State::knowing(3 * MS), lease(timing::DEPTH, true));
    for handle in 0..16 {
        assert_eq!(state.launch(&terms, 0x10 + handle, START), Ok(()), "stream {handle}");
    }
    let (what, _) = state.launch(&terms, 0x10 + 16, START).unwrap_err();
    assert_eq!(what, WaitsFor::Room);
}

#[test]
fn a_launch_that_stalled_work_may_wait_for_is_made() {
    for is_granted in [true, false] {
        let mut state = State::knowing(MS);
        state.launch(&lease(timing::SHALLOW, true), 0x10, START).unwrap();
        let terms = lease(timing::SHALLOW, is_granted);
        let (mut at, mut waits) = (START, Vec::new());
        while let Verdict::Wait { what, until } =
            state.verdict(&terms, (stream(0x10).queue(), KERNEL), (START, at))
        {
            waits.push((what, until - at));
            if waits.len() > 8 {
                break;
            }
            at = until;
        }
        let what = if is_granted { WaitsFor::Room } else { WaitsFor::Lease };
        assert!(waits.iter().all(|(reason, _)| *reason == what), "{waits:?}");
        if is_granted {
            assert!((timing::STALL..=2 * timing::STALL).contains(&(at - START)), "{waits:?}");
        } else {
            // Another process may have the card: the coordinator decides, asked less and less
            // often.
            let times: Vec<_> = waits.iter().map(|(_, wait)| *wait).collect();
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
            assert!(waits.len() > 8, "{waits:?}");
        }
    }
}

#[test]
fn the_coordinator_unblocks_as_many_launches_as_it_says() {
    for (only_idle, is_idle) in [(false, false), (true, false), (true, true)] {
        let mut state = State::knowing(MS);
        let denied = lease(timing::DEPTH, false);
        if !is_idle {
            state.launch(&lease(timing::DEPTH, true), 0x20, START).unwrap();
        }
        assert!(state.launch(&denied, 0x10, START).is_err());
        state.change_waiting(&Seats::new(Vec::new()), None, Some(WaitsFor::Lease), START);
        let mut terms = denied;
        let unblock = 2 | if only_idle { UNBLOCKS_IDLE } else { 0 };
        terms.grant = terms.grant.map(|grant| Grant { unblock, ..grant });
        let made =
            (0..3).filter(|stream| state.launch(&terms, 0x30 + stream, START + 1).is_ok()).count();
        let is_meant = is_idle || !only_idle;
        assert_eq!(made, if is_meant { 2 } else { 0 }, "only idle: {only_idle}, idle: {is_idle}");
    }
}

#[test]
fn a_launch_of_unknown_cost_waits_for_the_one_before_it() {
    let (mut state, terms) = (state(), lease(timing::ALONE_DEPTH, true));
    state.launch(&terms, 0x10, START).unwrap();
    let (what, _) = state.launch(&terms, 0x10, START).unwrap_err();
    assert_eq!(what, WaitsFor::Room);
    state.end(&terms, 0x10, MS, START + MS);
    for _ in 0..8 {
        state.launch(&terms, 0x10, START + MS).unwrap();
    }
}
