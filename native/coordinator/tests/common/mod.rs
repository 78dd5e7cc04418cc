//! A runtime directory with slices, a coordinator in its own process, and members that simulate
//! programs: they wait, run while they have the lease, signal, and detect each other.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../account/tests/common/mod.rs"]
pub mod processes;

use hami_account::{Account, ComputeState, Member, Report};
use hami_limits::grants::{Grant, GrantsPage, GrantsView, Holder, Kind, SILENCE_NS};
use hami_limits::{LimitsPage, Mode, Row};
use hami_share::timing;
use processes::Child;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Far longer than any step of a test takes.
pub const DEADLINE: Duration = Duration::from_secs(30);
pub const CARD: &str = "GPU-11111111-2222-3333-4444-555555555555";

/// A runtime directory, removed with the test.
pub struct Runtime(PathBuf);

impl Runtime {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("coordinator-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("slices")).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a slice, which may not exist yet.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join("slices").join(name)
    }

    /// A new slice with a share of one card.
    pub fn slice(&self, name: &str, share: Option<u32>) -> PathBuf {
        let directory = self.at(name);
        std::fs::create_dir(&directory).unwrap();
        // Work of a soft slice may go on beside one that returns from a pause.
        let row = Row { share, mode: Mode::Hard, ..Row::new(CARD) };
        LimitsPage::create(&directory.join("limits"), None, &[row]).unwrap();
        Account::create(&directory.join("account")).unwrap();
        drop(GrantsPage::create(&directory.join("grants")).unwrap());
        directory
    }

    /// A coordinator in its own process, which is killed when this value is dropped.
    pub fn coordinator(&self, linger: Duration) -> Child {
        Child::run(|| hami_coordinator::coordinate(&self.0, linger).unwrap())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The memory that all players of a test share.
pub struct Stage {
    /// The slice whose players have work on the card, in the upper bits, and how many they are, in
    /// the lowest [`COUNT_BITS`]. All are of one slice, if the rules hold.
    running: AtomicU64,
    /// How often a player found work of another slice.
    pub overlaps: AtomicU32,
    /// How often a player could not run for so long that others did not have to wait for it.
    pub late: AtomicU32,
    pub end: AtomicU32,
    /// The leases of each player.
    pub leases: [AtomicU32; 256],
}

const COUNT_BITS: u32 = 16;

pub fn stage() -> &'static Stage {
    // SAFETY: zero is a value of each field, and atomics are made for several processes.
    unsafe { processes::shared() }
}

impl Stage {
    /// A player of a slice starts to work. False if another slice has work on the card.
    fn enter(&self, slice: u64) -> bool {
        let next = |running: u64| match running {
            0 => Some(slice << COUNT_BITS | 1),
            _ => (running >> COUNT_BITS == slice).then_some(running + 1),
        };
        self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// A player that has entered ends its work.
    fn leave(&self) {
        let next = |running: u64| {
            let is_last = running & ((1 << COUNT_BITS) - 1) == 1;
            Some(if is_last { 0 } else { running - 1 })
        };
        let _ = self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    pub fn leases_of(&self, player: usize) -> u32 {
        self.leases[player].load(Ordering::SeqCst)
    }

    /// Waits until these players have had some more leases each.
    pub fn wait_for_leases(&self, players: &[usize], more: u32) {
        let before: Vec<u32> = players.iter().map(|player| self.leases_of(*player)).collect();
        let goals = || players.iter().zip(&before).map(|(player, before)| (*player, before + more));
        wait_until(
            || goals().all(|(player, goal)| self.leases_of(player) >= goal),
            || {
                let waits = goals().filter(|(player, goal)| self.leases_of(*player) < *goal);
                format!("too few leases: {:?}", waits.collect::<Vec<_>>())
            },
        );
    }

    /// Asserts that two slices never had the card at once. A player that cannot run during its lease
    /// is skipped like a stopped one, and may then meet another.
    pub fn assert_none_met(&self) {
        let met = self.overlaps.load(Ordering::SeqCst);
        let late = self.late.load(Ordering::SeqCst);
        assert!(met <= late, "two slices had the card at once {met} times, {late} of them late");
    }
}

/// Waits for an effect of other processes.
pub fn wait_until(done: impl Fn() -> bool, otherwise: impl Fn() -> String) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "{}", otherwise());
        std::thread::sleep(Duration::from_micros(500));
    }
}

pub fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A program that always has more to do, and only works in its leases.
pub struct Player<'a> {
    pub view: GrantsView,
    pub member: &'a Member<'a>,
    pub index: usize,
    /// The same for all players of a slice.
    slice: u64,
    stage: &'static Stage,
}

impl<'a> Player<'a> {
    pub fn new(
        directory: &Path,
        member: &'a Member<'a>,
        index: usize,
        stage: &'static Stage,
    ) -> Self {
        let view = GrantsView::open(&directory.join("grants")).unwrap();
        let slice = std::fs::metadata(directory).unwrap().ino() & (u64::MAX >> COUNT_BITS);
        Self { view, member, index, slice, stage }
    }

    pub fn report(&self, grant: u32, state: ComputeState) {
        let report = Report { grant, state, ..Report::default() };
        self.member.compute(0).unwrap().set_report(report);
        self.member.wake_coordinator();
    }

    /// Until when this program may work; `None` if it may not.
    pub fn may_until(&self, grant: Grant) -> Option<u64> {
        let me =
            matches!(grant.holder, Holder::All) || grant.holder == Holder::Slot(self.member.slot());
        let until = match grant.kind {
            Kind::Lease => grant.until,
            // As long as its bucket allows, and no other process waits.
            Kind::Alone => now() + 5_000_000,
            Kind::Own => 0,
        };
        (me && now() < until).then_some(until)
    }

    /// Plays until the end of the test.
    pub fn play(&self) {
        let mut seen = None;
        while self.stage.end.load(Ordering::SeqCst) == 0 {
            let grant = self.view.grant(0);
            if let Some(until) = self.may_until(grant) {
                self.work(grant, until);
                seen = Some(grant.number);
                continue;
            }
            if seen != Some(grant.number) {
                self.report(grant.number, ComputeState::Waiting);
                seen = Some(grant.number);
            }
            self.view.wait(0, grant.number, Duration::from_millis(20));
        }
        self.report(seen.unwrap_or(0), ComputeState::Idle);
    }

    fn work(&self, grant: Grant, until: u64) {
        let words = self.member.compute(0).unwrap();
        let mut at = now();
        let mut longest = 0;
        words.active_at.store(at, Ordering::SeqCst);
        self.report(grant.number, ComputeState::Running);
        // The coordinator may have read the state before: only now it is certain.
        if self.may_until(self.view.grant(0)).is_none() {
            return self.report(grant.number, ComputeState::Waiting);
        }
        let entered = self.stage.enter(self.slice);
        if !entered {
            self.stage.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        while at < until && self.view.grant(0).number == grant.number {
            std::thread::sleep(Duration::from_micros(500));
            let later = now();
            words.used_ns.fetch_add(later - at, Ordering::SeqCst);
            words.active_at.store(later, Ordering::SeqCst);
            longest = longest.max(later - at);
            at = later;
        }
        if entered {
            self.stage.leave();
        }
        if longest.max(now() - at) > timing::SILENT / 2 {
            self.stage.late.fetch_add(1, Ordering::SeqCst);
        }
        self.stage.leases[self.index].fetch_add(1, Ordering::SeqCst);
        self.report(grant.number, ComputeState::Waiting);
    }
}

/// A process of a slice that plays.
pub fn player(directory: &Path, index: usize, stage: &'static Stage) -> Child {
    Child::run(|| play(directory, index, stage))
}

pub fn play(directory: &Path, index: usize, stage: &'static Stage) {
    let account = Account::attach(&directory.join("account")).unwrap();
    let member = account.join().unwrap();
    Player::new(directory, &member, index, stage).play();
}

/// Whether the pulse is too old.
pub fn is_silent(directory: &Path) -> bool {
    let pulse = pulse(directory);
    now().saturating_sub(pulse) > SILENCE_NS
}

pub fn grant(directory: &Path) -> Grant {
    GrantsView::open(&directory.join("grants")).unwrap().grant(0)
}

pub fn pulse(directory: &Path) -> u64 {
    GrantsView::open(&directory.join("grants")).unwrap().pulse()
}
