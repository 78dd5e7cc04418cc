//! Tests of a coordinator and programs, each in its own process, with real files.

mod common;

use common::processes::Child;
use common::{Player, Runtime, grant, is_silent, play, player, stage, wait_until};
use hami_account::{Account, ComputeState};
use hami_limits::grants::{GrantsView, Holder, Kind};
use std::sync::atomic::Ordering;
use std::time::Duration;

const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn programs_of_two_slices_have_leases_and_never_meet() {
    let runtime = Runtime::new("leases");
    let (first, second) = (runtime.slice("first", Some(30)), runtime.slice("second", Some(70)));
    let stage = stage();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _players = [player(&first, 0, stage), player(&first, 1, stage), player(&second, 2, stage)];
    stage.wait_for_leases(&[0, 1, 2], 5);
    stage.assert_none_met();
    // Both need admission, and get a pulse.
    let view = GrantsView::open(&second.join("grants")).unwrap();
    assert_eq!((view.regulated().load(Ordering::SeqCst), view.grant(0).kind), (1, Kind::Lease));
    wait_until(|| !is_silent(&second), || "it is forgotten".into());
}

#[test]
fn without_a_share_no_launch_needs_admission() {
    let runtime = Runtime::new("unregulated");
    let (free, capped) = (runtime.slice("free", None), runtime.slice("capped", Some(20)));
    let stage = stage();
    let account = Account::attach(&free.join("account")).unwrap();
    let member = account.join().unwrap();
    let one = Player::new(&free, &member, 0, stage);
    one.report(0, ComputeState::Running);
    let _coordinator = runtime.coordinator(FOR_EVER);
    // The coordinator has found them once it has written to them.
    let (free_view, view) = (&one.view, GrantsView::open(&capped.join("grants")).unwrap());
    wait_until(|| free_view.pulse() != 0 && view.pulse() != 0, || "it finds no slice".into());
    assert_eq!(
        (free_view.regulated().load(Ordering::SeqCst), free_view.grant(0).kind),
        (0, Kind::Own)
    );
    // The capped one starts: from now on both need admission.
    let player = player(&capped, 1, stage);
    wait_until(
        || free_view.regulated().load(Ordering::SeqCst) == 1,
        || "it is not regulated".into(),
    );
    player.kill_and_wait();
    wait_until(
        || free_view.regulated().load(Ordering::SeqCst) == 0,
        || "it is still regulated".into(),
    );
}

/// Also when it dies idle, which no other process notices.
#[test]
fn a_slice_without_a_share_is_metered_while_one_with_a_share_is_present() {
    let runtime = Runtime::new("present");
    let (free, capped) = (runtime.slice("free", None), runtime.slice("capped", Some(20)));
    let _coordinator = runtime.coordinator(FOR_EVER);
    let view = GrantsView::open(&free.join("grants")).unwrap();
    wait_until(|| view.pulse() != 0, || "it is not found".into());
    assert_eq!(view.regulated().load(Ordering::SeqCst), 0);
    let idle = Child::run(|| {
        let account = Account::attach(&capped.join("account")).unwrap();
        let _member = account.join().unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    wait_until(|| view.regulated().load(Ordering::SeqCst) == 1, || "it is not regulated".into());
    wait_until(
        || (view.grant(0).kind, view.grant(0).holder) == (Kind::Alone, Holder::All),
        || format!("it may not launch: {:?}", view.grant(0)),
    );
    idle.kill_and_wait();
    wait_until(|| view.regulated().load(Ordering::SeqCst) == 0, || "it is still regulated".into());
    wait_until(|| view.grant(0).kind == Kind::Own, || "it is still granted".into());
}

/// The lease of the dead process goes to a waiting one, though it never reports that it is done.
#[test]
fn a_program_that_dies_in_its_lease_delays_no_other() {
    let runtime = Runtime::new("dies");
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let stage = stage();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _survivor = player(&first, 0, stage);
    for round in 1..=5 {
        let dying = Child::run(|| {
            let account = Account::attach(&second.join("account")).unwrap();
            let member = account.join().unwrap();
            let dying = Player::new(&second, &member, 1, stage);
            loop {
                let grant = dying.view.grant(0);
                dying.report(grant.number, ComputeState::Waiting);
                if dying.may_until(grant).is_some() {
                    dying.report(grant.number, ComputeState::Running);
                    // In the middle of a kernel that would run for an hour.
                    let words = member.compute(0).unwrap();
                    words.active_at.store(common::now() + 3_600_000_000_000, Ordering::SeqCst);
                    stage.leases[1].fetch_add(1, Ordering::SeqCst);
                    loop {
                        std::thread::sleep(Duration::from_secs(1));
                    }
                }
                dying.view.wait(0, grant.number, Duration::from_millis(20));
            }
        });
        wait_until(|| stage.leases_of(1) == round, || format!("it gets no lease {round}"));
        dying.kill_and_wait();
        stage.wait_for_leases(&[0], 3);
    }
}

#[test]
fn a_program_that_is_stopped_in_its_lease_is_skipped_until_it_continues() {
    let runtime = Runtime::new("stopped");
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let stage = stage();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _one = player(&first, 0, stage);
    let other = player(&second, 1, stage);
    stage.wait_for_leases(&[0, 1], 3);
    for _ in 0..3 {
        other.signal(libc::SIGSTOP);
        stage.wait_for_leases(&[0], 3);
        other.signal(libc::SIGCONT);
        stage.wait_for_leases(&[0, 1], 3);
    }
}

#[test]
fn the_next_coordinator_continues_from_the_files_of_a_killed_one() {
    let runtime = Runtime::new("killed");
    let (first, second) = (runtime.slice("first", Some(40)), runtime.slice("second", Some(60)));
    let stage = stage();
    let _players = [player(&first, 0, stage), player(&second, 1, stage)];
    let view = GrantsView::open(&first.join("grants")).unwrap();
    let mut number = 0;
    for _ in 0..5 {
        let coordinator = runtime.coordinator(FOR_EVER);
        stage.wait_for_leases(&[0, 1], 2);
        stage.assert_none_met();
        coordinator.kill_and_wait();
        let newest = view.grant(0).number;
        assert!(newest > number, "grant {newest} after grant {number}");
        number = newest;
        wait_until(|| is_silent(&first), || "it still lives".into());
        assert_eq!(view.grant(0).number, number);
    }
}

/// A tenant may do what it likes with its account, but harms only itself.
#[test]
fn a_slice_that_truncates_its_account_harms_only_itself() {
    for size in [0, 1, 4096, 102_400, 364_544 - 4096] {
        let runtime = Runtime::new("cut");
        let stage = stage();
        let honest = [runtime.slice("first", Some(50)), runtime.slice("second", Some(30))];
        let cut = runtime.slice("cut", Some(20));
        let coordinator = runtime.coordinator(FOR_EVER);
        let _players = [player(&honest[0], 0, stage), player(&honest[1], 1, stage)];
        let cutter = player(&cut, 2, stage);
        stage.wait_for_leases(&[0, 1, 2], 2);
        cutter.kill_and_wait();
        // Words beyond the new end, and a high-water mark that leads there.
        let account = std::fs::OpenOptions::new().write(true).open(cut.join("account")).unwrap();
        account.set_len(size).unwrap();
        stage.wait_for_leases(&[0, 1], 5);
        // No process of it launches any more: without a grant it would launch as if it were alone.
        let is_shut = || {
            let grant = grant(&cut);
            (grant.kind, grant.holder) == (Kind::Lease, Holder::None) && !is_silent(&cut)
        };
        wait_until(is_shut, || "its processes may launch".into());
        // That remains so as long as its directory exists.
        account.set_len(397_312).unwrap();
        stage.wait_for_leases(&[0, 1], 5);
        assert!(is_shut());
        assert!(coordinator.is_alive());
    }
}

#[test]
fn a_slice_with_truncated_pages_is_dropped() {
    for file in ["limits", "grants"] {
        let runtime = Runtime::new(&format!("cut-{file}"));
        let stage = stage();
        let honest = [runtime.slice("first", Some(50)), runtime.slice("second", Some(30))];
        let cut = runtime.slice("cut", Some(20));
        let coordinator = runtime.coordinator(FOR_EVER);
        let _players = [player(&honest[0], 0, stage), player(&honest[1], 1, stage)];
        let cutter = player(&cut, 2, stage);
        stage.wait_for_leases(&[0, 1, 2], 2);
        cutter.kill_and_wait();
        let page = std::fs::OpenOptions::new().write(true).open(cut.join(file)).unwrap();
        page.set_len(0).unwrap();
        stage.wait_for_leases(&[0, 1], 5);
        assert!(coordinator.is_alive());
    }
}

#[test]
fn the_lease_of_a_removed_slice_ends() {
    let runtime = Runtime::new("removed");
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let stage = stage();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _players = [player(&first, 0, stage), player(&second, 1, stage)];
    stage.wait_for_leases(&[0, 1], 3);
    std::fs::remove_dir_all(&second).unwrap();
    stage.wait_for_leases(&[0], 3);
}

#[test]
fn a_hundred_slices_each_get_their_leases() {
    all_get_leases("hundred", 100, 100);
}

/// More wake-up words than one system call takes.
#[test]
fn a_few_of_very_many_slices_get_their_leases() {
    all_get_leases("many", 150, 20);
}

fn all_get_leases(name: &str, slices: usize, active: usize) {
    let runtime = Runtime::new(name);
    let stage = stage();
    let directories: Vec<_> =
        (0..slices).map(|slice| runtime.slice(&slice.to_string(), Some(1))).collect();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let players: Vec<usize> = (0..active).collect();
    // One process plays all of them, with a thread each: a hundred processes would not test more.
    let _all = Child::run(|| {
        std::thread::scope(|scope| {
            for (index, directory) in directories.iter().enumerate().take(active) {
                scope.spawn(move || play(directory, index, stage));
            }
        });
    });
    stage.wait_for_leases(&players, 1);
    stage.assert_none_met();
}

#[test]
fn a_slice_that_signals_all_the_time_has_a_limited_effect() {
    let runtime = Runtime::new("storm");
    let (first, second) = (runtime.slice("first", Some(50)), runtime.slice("second", Some(50)));
    let stage = stage();
    let _coordinator = runtime.coordinator(FOR_EVER);
    let _players = [player(&first, 0, stage), player(&second, 1, stage)];
    let _ringer = Child::run(|| {
        let account = Account::attach(&second.join("account")).unwrap();
        let member = account.join().unwrap();
        loop {
            member.wake_coordinator();
        }
    });
    stage.wait_for_leases(&[0, 1], 5);
    stage.assert_none_met();
}
