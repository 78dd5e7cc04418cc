//! A slice in the coordinator: its three files, mapped.

use crate::departures::Life;
use crate::guard::Guarded;
use crate::measure::Measure;
use crate::sweep::Sweep;
use crate::wait::{WakeWord, cpu_time, now};
use hami_account::{Account, CARDS, ProcessIdentity, SLOTS};
use hami_limits::grants::{Grant, GrantsPage, Holder, Kind};
use hami_limits::{FileError, LimitsView};
use hami_share::lease::{ProcessView, SliceCardView, SliceView, State};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

/// How many wake-ups of a slice count between two ticks, for each of its cards. A handover takes a
/// few of them and some hundred microseconds. A slice that signals more often only delays itself,
/// until the tick.
const WAKES_PER_TICK: usize = 100;

/// The most processor time for one probe of a slice, which takes 0.2 ms for 256 processes. The
/// kernel looks through all locks of a file, and a process of the slice can take thousands.
const MAX_PROBE_CPU_NS: u64 = 20_000_000;

pub(crate) struct Slice {
    /// Identifies the slice for `Leases`. It is never reused.
    key: u64,
    gang: Option<u128>,
    /// The card of each row.
    cards: Vec<u64>,
    limits: LimitsView,
    account: Account,
    grants: GrantsPage,
    guards: [Guarded; 3],
    /// Whether launches need admission because of a neighbour; `None` until the word is written.
    regulated: Option<bool>,
    /// The wake-up word before the account was last read, and the number of wake-ups since the last
    /// tick.
    wakes_seen: u32,
    wakes_since_tick: u32,
    /// The processes that were probed, by slot. The slot may have another process by now.
    lives: [Option<Life>; SLOTS],
    /// Whether the last probe took so long that the next one measures its processor time.
    is_slow: bool,
    /// What the driver holds for processes beyond what they are charged, by slot and row.
    measures: BTreeMap<(usize, usize), Measured>,
    /// Why nothing of it is read any more, if that is not a truncated file.
    damage: Option<&'static str>,
}

/// A measure of the process that joined at this time.
struct Measured {
    joined_at: u64,
    measure: Measure,
}

/// Which processes to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that others wait for: with running work, or with the lease. A process that died while
    /// it waited is found when it has the lease.
    WaitedFor,
    /// Also the idle ones of slices with a share, because their neighbours need admission while
    /// such a slice is present.
    WithShare,
    /// All of them.
    All,
}

/// Why a directory cannot be opened as a slice.
pub(crate) enum OpenError {
    /// It may become a slice: some files do not exist yet, or cannot be opened now.
    NotYet,
    /// It is damaged, as long as the directory exists.
    Damaged,
}

impl Slice {
    /// Maps the files of a slice. `card` numbers the cards by UUID, equally for all slices.
    pub fn open(
        directory: &Path,
        key: u64,
        mut card: impl FnMut(&str) -> u64,
    ) -> Result<Box<Self>, OpenError> {
        let grants = GrantsPage::open(&directory.join("grants"))?;
        let limits = LimitsView::open(&directory.join("limits"))?;
        let account = Account::attach(&directory.join("account"))?;
        let guards = [
            Guarded::new(grants.mapped_at())?,
            Guarded::new(limits.mapped_at())?,
            Guarded::new(account.mapped_at())?,
        ];
        let cards = limits.rows().iter().map(|row| card(&row.uuid)).collect();
        let wakes_seen = account.wake_word().load(Ordering::SeqCst);
        Ok(Box::new(Self {
            key,
            gang: limits.gang().map(u128::from_le_bytes),
            cards,
            limits,
            account,
            grants,
            guards,
            regulated: None,
            wakes_seen,
            wakes_since_tick: 0,
            lives: [None; SLOTS],
            is_slow: false,
            measures: BTreeMap::new(),
            damage: None,
        }))
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Why the values that were read from its files do not count.
    pub fn damage(&self) -> Option<&'static str> {
        let is_truncated = self.guards.iter().any(Guarded::is_truncated);
        if is_truncated { Some("one of its files was truncated") } else { self.damage }
    }

    /// Does work that reads or writes the files. Its programs can write anything there: if that makes
    /// the work panic, this slice is damaged, and no other one.
    pub fn contain(&mut self, work: impl FnOnce(&mut Self)) {
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        if done.is_err() {
            self.damage = Some("a number in one of its files is false");
        }
    }

    /// Whether its launches need admission because of a neighbour. Then its processes need a pulse
    /// too.
    pub fn regulated(&self) -> bool {
        self.regulated == Some(true)
    }

    /// The wake-up word with its value before the account was last read. `None` if no launch of the
    /// slice needs admission, so that none signals, or if a process signals too often.
    pub fn wake_word(&self) -> Option<WakeWord<'_>> {
        let takes_part = self.regulated() || self.limits.regulated().load(Ordering::Relaxed) != 0;
        let too_often = self.wakes_since_tick as usize > WAKES_PER_TICK * self.cards.len();
        let word = WakeWord { word: self.account.wake_word(), seen: self.wakes_seen };
        (takes_part && !too_often).then_some(word)
    }

    /// Lets the wake-ups of the slice count again after a tick.
    pub fn reset_wakes(&mut self) {
        self.wakes_since_tick = 0;
    }

    /// Reads the reports of its processes.
    pub fn read(&mut self, view: &mut SliceView) {
        let wakes_seen = self.account.wake_word().load(Ordering::SeqCst);
        self.wakes_since_tick =
            self.wakes_since_tick.saturating_add(wakes_seen.wrapping_sub(self.wakes_seen));
        self.wakes_seen = wakes_seen;
        // If the file was truncated, this last word faults before anything else that is read here.
        black_box(self.account.compute(SLOTS - 1, CARDS - 1).state.load(Ordering::Relaxed));
        view.key = self.key;
        view.gang = self.gang;
        view.rows.resize_with(self.cards.len(), SliceCardView::default);
        let slots = self.account.high_water();
        for (row, (view, card)) in view.rows.iter_mut().zip(&self.cards).enumerate() {
            view.card = *card;
            view.regime = self.limits.regime(row);
            view.published = self.grants.grant(row);
            view.processes.clear();
            view.processes.extend((0..slots).filter_map(|slot| self.process(slot, row)));
        }
    }

    /// Probes the processes of this scope.
    pub fn probe(&mut self, scope: Scope) {
        let has_share = self.limits.regulated().load(Ordering::Relaxed) != 0;
        let all = scope == Scope::All || scope == Scope::WithShare && has_share;
        let grants: Vec<Grant> = (0..self.cards.len()).map(|row| self.grants.grant(row)).collect();
        let is_waited_for = |slot: usize| {
            grants.iter().enumerate().any(|(row, grant)| {
                match self.account.compute(slot, row).report().state {
                    State::Running => true,
                    State::Waiting => may_launch(grant, slot),
                    State::Idle => false,
                }
            })
        };
        let slots = (0..self.account.high_water()).filter(|slot| all || is_waited_for(*slot));
        let candidates: Vec<(usize, Life)> =
            slots.filter_map(|slot| Some((slot, self.life(slot)?))).collect();
        if candidates.is_empty() {
            return;
        }
        let mut wanted = [false; SLOTS];
        for (slot, _) in &candidates {
            wanted[*slot] = true;
        }
        // The identities were read before: a slot may be reaped and taken again in the meantime.
        let (begin, cpu_begin) = (now(), self.is_slow.then(cpu_time));
        let dead = self.account.find_dead(|slot| wanted[slot]);
        let end = now();
        // Another process may have had the processor, so the time that passes is no proof. From then
        // on each probe is measured: how many slots it has is for the slice's programs to say.
        self.is_slow |= end - begin > MAX_PROBE_CPU_NS;
        if cpu_begin.is_some_and(|begin| cpu_time() - begin > MAX_PROBE_CPU_NS) {
            self.damage = Some("its account has so many locks that other slices would wait");
        }
        for (slot, found) in candidates {
            let known = self.lives[slot].filter(|life| life.is_of(&found));
            let mut life = known.unwrap_or(found);
            life.probed(dead[slot], begin, end);
            self.lives[slot] = Some(life);
        }
    }

    /// Whether any process has joined it.
    pub fn has_processes(&self) -> bool {
        (0..self.account.high_water()).any(|slot| self.account.holder(slot).is_some())
    }

    /// Writes which dead processes' memory the driver has freed, as a sweep shows it, and then the
    /// time of the sweep.
    pub fn publish_departures(&mut self, sweep: &Sweep, now: u64) {
        for slot in 0..self.account.high_water() {
            if let Some(life) = self.known_life(slot)
                && sweep.shows_freed(&life, now)
            {
                self.grants.set_departed(slot, life.joined_at);
            }
        }
        self.grants.set_swept_at(sweep.started_at);
    }

    /// Compares what the driver holds for each process with what the process is charged. A process
    /// that has died keeps its part until its slot is free.
    pub fn measure(&mut self, sweep: &Sweep) {
        let rows = self.limits.rows();
        let mut sums = vec![0_u64; rows.len()];
        let mut kept = BTreeMap::new();
        for slot in 0..self.account.high_water() {
            let Some(life) = self.known_life(slot) else { continue };
            for (row, (card, sum)) in rows.iter().zip(&mut sums).enumerate() {
                let known = self.measures.get(&(slot, row));
                let known = known.filter(|known| known.joined_at == life.joined_at);
                let mut measure = known.map_or_else(Measure::default, |known| known.measure);
                let excess = match life.dead_since {
                    None => {
                        let holding = self.account.holding(slot, row);
                        measure.update(sweep, &life.process, &card.uuid, holding)
                    }
                    // Importers may keep its slot for longer than the driver keeps its memory.
                    Some(_) if sweep.memory_of(&life.process, &card.uuid).is_none() => 0,
                    Some(_) => measure.excess(),
                };
                *sum = sum.saturating_add(excess);
                kept.insert((slot, row), Measured { joined_at: life.joined_at, measure });
            }
        }
        self.measures = kept;
        for (row, sum) in sums.into_iter().enumerate() {
            self.account.set_measured(row, sum);
        }
    }

    /// The process that has a slot now; `None` if it is free.
    fn life(&self, slot: usize) -> Option<Life> {
        let process = self.account.holder(slot)?;
        Some(Life::new(process, self.account.joined_at(slot)))
    }

    /// The process that has a slot now, if it was probed.
    fn known_life(&self, slot: usize) -> Option<Life> {
        let found = self.life(slot)?;
        self.lives[slot].filter(|life| life.is_of(&found))
    }

    fn process(&self, slot: usize, row: usize) -> Option<ProcessView> {
        let holder = self.account.holder(slot)?;
        let words = self.account.compute(slot, row);
        Some(ProcessView {
            slot: slot as u16,
            id: id_of(holder, self.account.joined_at(slot)),
            report: words.report(),
            active_at: words.active_at.load(Ordering::SeqCst),
            dead: self.known_life(slot).is_some_and(|life| life.dead_since.is_some()),
        })
    }

    /// Sets whether its launches need admission. Grants count only with a recent pulse.
    pub fn set_regulated(&mut self, regulated: bool, now: u64) {
        if self.regulated != Some(regulated) {
            self.pulse(now);
            self.grants.set_regulated(regulated);
            self.regulated = Some(regulated);
        }
    }

    /// Writes the word of a slice that was just opened: an earlier coordinator may have written
    /// another.
    pub fn initialise(&mut self, now: u64) {
        if self.regulated.is_none() {
            self.set_regulated(false, now);
        }
    }

    /// Stops all launches of the slice, because its files are damaged.
    pub fn block(&mut self, now: u64) {
        self.set_regulated(true, now);
        for row in 0..self.cards.len() {
            let number = self.grants.grant(row).number.wrapping_add(1);
            let revoked = Grant { number, kind: Kind::Lease, ..Grant::default() };
            self.grants.set(row, revoked);
        }
    }

    pub fn pulse(&self, now: u64) {
        self.grants.set_pulse(now);
    }

    pub fn grant(&self, row: usize, grant: Grant) {
        self.grants.set(row, grant);
    }
}

/// A number that differs from that of every other process that ever has the slot.
fn id_of(process: ProcessIdentity, joined_at: u64) -> u64 {
    let ProcessIdentity { pid, start_time, pid_namespace } = process;
    joined_at ^ u64::from(pid) ^ start_time.rotate_left(32) ^ pid_namespace.rotate_left(16)
}

fn may_launch(grant: &Grant, slot: usize) -> bool {
    match grant.holder {
        Holder::None => false,
        Holder::Slot(holder) => grant.kind != Kind::Own && usize::from(holder) == slot,
        Holder::All => grant.kind != Kind::Own,
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { .. } | FileError::TooLarge { .. } | FileError::Full { .. } => {
                Self::NotYet
            }
            FileError::Damaged { .. } | FileError::Invalid(_) => Self::Damaged,
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(_: io::Error) -> Self {
        Self::NotYet
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step ends the test")]
mod tests {
    use super::*;
    use hami_limits::Row;
    use hami_limits::page::LimitsPage;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    /// The slice says that it has one slot, and no locks to look through, for every other probe.
    #[test]
    fn locks_that_a_probe_meets_only_sometimes_are_measured() {
        let directory = std::env::temp_dir().join(format!("some-locks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        LimitsPage::create(&directory.join("limits"), None, &[Row::new("GPU-a")]).unwrap();
        Account::create(&directory.join("account")).unwrap();
        drop(GrantsPage::create(&directory.join("grants")).unwrap());
        let mut file = std::fs::OpenOptions::new();
        let account = file.read(true).write(true).open(directory.join("account")).unwrap();
        for at in (0..20_000).rev() {
            // SAFETY: all zeroes are a valid request.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as _, 10_000 + 2 * at, 1);
            // SAFETY: an open file and a valid request.
            assert_eq!(unsafe { libc::fcntl(account.as_raw_fd(), libc::F_OFD_SETLK, &lock) }, 0);
        }
        // All slots seem to be taken.
        for slot in 0..SLOTS as u64 {
            account.write_all_at(&[1, 0, 0, 0, 1, 0, 0, 0], 36_864 + 256 * slot).unwrap();
        }
        let mut slice = Slice::open(&directory, 1, |_| 0).ok().unwrap();
        for (slots, is_left_out) in [(256_u32, false), (1, false), (256, true)] {
            account.write_all_at(&slots.to_ne_bytes(), 64).unwrap();
            slice.probe(Scope::All);
            assert_eq!(slice.damage().is_some(), is_left_out, "{slots} slots");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
