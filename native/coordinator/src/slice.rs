//! One slice as the coordinator has it: its three files, mapped.

use crate::guard::Guarded;
use crate::wait::Bell;
use hami_account::{Account, CARDS, ProcessIdentity, SLOTS};
use hami_limits::grants::{Grant, GrantsPage, Holder, Kind};
use hami_limits::{FileError, LimitsView};
use hami_share::turns::{ProcessView, SliceCardView, SliceView, State};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

/// How often a slice is listened to between two ticks, for each of its cards. A handover takes a few
/// rings and some hundred microseconds; who rings more often keeps only himself waiting, for a tick.
const RINGS_PER_TICK: usize = 100;

pub(crate) struct Slice {
    /// Never another's: what `Turns` knows it by.
    key: u64,
    /// The card of each row.
    cards: Vec<u64>,
    limits: LimitsView,
    account: Account,
    grants: GrantsPage,
    guards: [Guarded; 3],
    /// Whether launches have to ask because of a neighbour; `None` until that is written.
    asks: Option<bool>,
    /// How often the bell had rung before the account was last read, and since the last tick.
    rung: u32,
    rung_lately: u32,
    /// Who was found dead, by slot. The slot may be another's by now.
    dead: [Option<ProcessIdentity>; SLOTS],
}

/// Why a directory is no slice that can be looked after.
pub(crate) enum Refused {
    /// It may become one: its files are not all there yet, or cannot be opened just now.
    NotYet,
    /// Never, as long as it is there.
    Damaged,
}

impl Slice {
    /// Maps the files of a slice; `card` numbers the cards, alike for all slices.
    pub fn open(
        directory: &Path,
        key: u64,
        mut card: impl FnMut(&str) -> u64,
    ) -> Result<Box<Self>, Refused> {
        let grants = GrantsPage::open(&directory.join("grants"))?;
        let limits = LimitsView::open(&directory.join("limits"))?;
        let account = Account::attach(&directory.join("account"))?;
        let guards = [
            Guarded::new(grants.mapped_at())?,
            Guarded::new(limits.mapped_at())?,
            Guarded::new(account.mapped_at())?,
        ];
        let cards = limits.rows().iter().map(|row| card(&row.uuid)).collect();
        let rung = account.bell().load(Ordering::SeqCst);
        Ok(Box::new(Self {
            key,
            cards,
            limits,
            account,
            grants,
            guards,
            asks: None,
            rung,
            rung_lately: 0,
            dead: [None; SLOTS],
        }))
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Whether a file was cut short: what was read of it is not what anybody wrote.
    pub fn is_damaged(&self) -> bool {
        self.guards.iter().any(Guarded::is_cut)
    }

    /// Whether its processes ask because of a neighbour: then they also have to see a pulse.
    pub fn asks(&self) -> bool {
        self.asks == Some(true)
    }

    /// What the bell was before the account was last read: what has rung since is news. None where
    /// nobody asks before he launches, and so nobody rings, or somebody does nothing else.
    pub fn bell(&self) -> Option<Bell<'_>> {
        let takes_part = self.asks() || self.limits.regulated().load(Ordering::Relaxed) != 0;
        let too_often = self.rung_lately as usize > RINGS_PER_TICK * self.cards.len();
        let bell = Bell { word: self.account.bell(), seen: self.rung };
        (takes_part && !too_often).then_some(bell)
    }

    /// Listens to the bell again, however often it has rung.
    pub fn listen(&mut self) {
        self.rung_lately = 0;
    }

    /// Reads what its processes say.
    pub fn read(&mut self, view: &mut SliceView) {
        let rung = self.account.bell().load(Ordering::SeqCst);
        self.rung_lately = self.rung_lately.saturating_add(rung.wrapping_sub(self.rung));
        self.rung = rung;
        // A file that is shorter by now may end before anything else that is read here.
        black_box(self.account.compute(SLOTS - 1, CARDS - 1).state.load(Ordering::Relaxed));
        view.key = self.key;
        view.rows.resize_with(self.cards.len(), SliceCardView::default);
        let slots = self.account.high_water();
        for (row, (view, card)) in view.rows.iter_mut().zip(&self.cards).enumerate() {
            view.card = *card;
            view.regime = self.limits.regime(row);
            view.published = self.grants.grant(row);
            self.read_processes(row, slots, view);
        }
    }

    /// Looks which of those are dead that others wait for: whose work runs, or whose turn it is. Who
    /// died waiting is found when its turn comes. `all`: also which of those who do nothing; where a
    /// slice with a share is there, its neighbours ask.
    pub fn probe(&mut self, all: bool) {
        let all = all && self.limits.regulated().load(Ordering::Relaxed) != 0;
        let grants: Vec<Grant> = (0..self.cards.len()).map(|row| self.grants.grant(row)).collect();
        let is_waited_for = |slot: usize| {
            grants.iter().enumerate().any(|(row, grant)| {
                let state = self.account.compute(slot, row).state.load(Ordering::Relaxed);
                match State::from_word(state).1 {
                    State::Runs => true,
                    State::Wants => has_turn(grant, slot),
                    State::Idle => false,
                }
            })
        };
        let slots = 0..self.account.high_water();
        let asked: Vec<(usize, ProcessIdentity)> = slots
            .filter(|slot| all || is_waited_for(*slot))
            .filter_map(|slot| Some((slot, self.account.holder(slot)?)))
            .collect();
        if asked.is_empty() {
            return;
        }
        // Named before they are probed: a slot may be reaped and taken again meanwhile.
        let dead = self.account.find_dead(|slot| asked.iter().any(|(asked, _)| *asked == slot));
        for (slot, holder) in asked.into_iter().filter(|(slot, _)| dead[*slot]) {
            self.dead[slot] = Some(holder);
        }
    }

    /// The processes of a row, and what those have used that are gone. When a slot is reaped, its
    /// part moves from one to the other: then both are read again, so that it counts once.
    fn read_processes(&self, row: usize, slots: usize, view: &mut SliceCardView) {
        for _ in 0..3 {
            view.departed_ns = self.account.departed_used_ns(row);
            view.processes.clear();
            view.processes.extend((0..slots).filter_map(|slot| self.process(slot, row)));
            if self.account.departed_used_ns(row) == view.departed_ns {
                break;
            }
        }
    }

    fn process(&self, slot: usize, row: usize) -> Option<ProcessView> {
        let holder = self.account.holder(slot)?;
        let words = self.account.compute(slot, row);
        let (turn, state) = State::from_word(words.state.load(Ordering::SeqCst));
        Some(ProcessView {
            slot: slot as u16,
            id: id_of(holder, self.account.joined_at(slot)),
            state,
            turn,
            used_ns: words.used_ns.load(Ordering::SeqCst),
            active_at: words.active_at.load(Ordering::SeqCst),
            dead: self.dead[slot] == Some(holder),
        })
    }

    /// Says whether its processes have to ask. They believe in grants as long as they see a pulse.
    pub fn set_asks(&mut self, asks: bool, now: u64) {
        if self.asks != Some(asks) {
            self.pulse(now);
            self.grants.set_regulated(asks);
            self.asks = Some(asks);
        }
    }

    /// Writes down what a slice that was just opened is: an earlier coordinator may have said else.
    pub fn settle(&mut self, now: u64) {
        if self.asks.is_none() {
            self.set_asks(false, now);
        }
    }

    /// Lets nobody of it launch any more: its files are not what they have to be.
    pub fn shut(&mut self, now: u64) {
        self.set_asks(true, now);
        for row in 0..self.cards.len() {
            let turn = self.grants.grant(row).turn.wrapping_add(1);
            let nobody = Grant { turn, kind: Kind::Turn, holder: Holder::Nobody, until: 0 };
            self.grants.set(row, nobody);
        }
    }

    pub fn pulse(&self, now: u64) {
        self.grants.set_pulse(now);
    }

    pub fn grant(&self, row: usize, grant: Grant) {
        self.grants.set(row, grant);
    }
}

/// A number for a process: none that has its slot after it has the same.
fn id_of(process: ProcessIdentity, joined_at: u64) -> u64 {
    let ProcessIdentity { pid, start_time, pid_namespace } = process;
    joined_at ^ u64::from(pid) ^ start_time.rotate_left(32) ^ pid_namespace.rotate_left(16)
}

fn has_turn(grant: &Grant, slot: usize) -> bool {
    match grant.holder {
        Holder::Nobody => false,
        Holder::Slot(holder) => grant.kind != Kind::Own && usize::from(holder) == slot,
        Holder::Everyone => grant.kind != Kind::Own,
    }
}

impl From<FileError> for Refused {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { .. } | FileError::Full { .. } => Self::NotYet,
            FileError::Damaged { .. } | FileError::Invalid(_) => Self::Damaged,
        }
    }
}

impl From<io::Error> for Refused {
    fn from(_: io::Error) -> Self {
        Self::NotYet
    }
}
