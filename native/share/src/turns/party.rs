//! A party: the slices that have their turns together, and the turn that they have.
//!
//! A slice is a party by itself, or the slices of a gang are one. A party gets its turns on all of
//! its cards at once, because kernels of two cards may wait for each other, and would wait for ever
//! for a card that another party has. The processes of a slice with one card have turns one after
//! the other. Other parties, and processes whose kernels wait for each other, have their turns
//! together; the driver then divides the time among the processes.

use super::process::{Entitled, Process};
use super::slice::{Sharing, Slice, SliceCard};
use super::{
    AHEAD_NS, ANSWER_NS, BATCHES_NS, LEAST_BILL_NS, MEETS_NS, PAUSES_NS, STALL_NS, STUCK_NS,
};
use crate::limiter::LONGEST_TURN_NS;
use crate::{Holder, Kind};

/// A gang, or the key of a slice by itself.
pub(super) type PartyId = (Option<u128>, u64);

/// The party of a slice.
pub(super) fn party_of(slice: &Slice) -> PartyId {
    slice.gang.map_or((None, slice.key), |gang| (Some(gang), 0))
}

#[derive(Debug)]
pub(super) struct Party {
    pub id: PartyId,
    /// Slice and row of its active members on cards with turns.
    pub members: Vec<(usize, usize)>,
    pub turn: Option<Turn>,
    /// Since when its work has gone on past its turn.
    pub overdue_since: Option<u64>,
    /// How many of its processes have work past its turn, and since when it has been this number.
    overdue: (usize, u64),
    /// When it last had nothing to do in its turn.
    paused_at: Option<u64>,
    /// When it last had a turn so that its work could end.
    unblocked_at: u64,
    /// Until when its processes have their turns together, because their kernels wait for each
    /// other.
    meets_until: u64,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub kind: Kind,
    /// The end; `u64::MAX` for cards that it has alone.
    pub until: u64,
    pub cards: Vec<usize>,
    pub began: u64,
    /// The processes that may launch: one, or all.
    pub holder: Holder,
    /// Granted so that work which waits for a launch of the party can end.
    pub unblocks: bool,
}

impl Turn {
    pub fn covers(&self, card: usize, slot: u16) -> bool {
        self.cards.contains(&card)
            && (self.holder == Holder::All || self.holder == Holder::Slot(slot))
    }
}

impl Party {
    pub fn new(id: PartyId) -> Self {
        Self {
            id,
            members: Vec::new(),
            turn: None,
            overdue_since: None,
            overdue: (0, 0),
            paused_at: None,
            unblocked_at: 0,
            meets_until: 0,
        }
    }

    pub fn rows<'a>(&'a self, slices: &'a [Slice]) -> impl Iterator<Item = &'a SliceCard> {
        self.members.iter().map(|(s, r)| &slices[*s].rows[*r])
    }

    /// Its cards, each once.
    pub fn cards(&self, slices: &[Slice]) -> Vec<usize> {
        let mut cards: Vec<usize> = self.rows(slices).map(|row| row.card).collect();
        cards.sort_unstable();
        cards.dedup();
        cards
    }

    /// Whether it has this card in a turn.
    pub fn has_turn_on(&self, card: usize) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.cards.contains(&card))
    }

    /// Whether a row of its slices has a grant that lets it launch, and no turn.
    pub fn is_revoked(&self, row: &SliceCard) -> bool {
        row.sharing == Sharing::Turns && row.may_launch() && !self.has_turn_on(row.card)
    }

    /// The kind of the turn that it has on a card.
    pub fn kind_on(&self, card: usize) -> Option<Kind> {
        self.turn.as_ref().filter(|turn| turn.cards.contains(&card)).map(|turn| turn.kind)
    }

    /// Whether it has had nothing to do in a turn a short time ago.
    pub fn pauses(&self, now: u64) -> bool {
        self.paused_at.is_some_and(|at| now - at < PAUSES_NS)
    }

    /// Whether a launch of it waits.
    pub fn waits(&self, slices: &[Slice]) -> bool {
        self.rows(slices).any(SliceCard::waits)
    }

    /// The time of the longest launch that waits, with a margin for the time until the process has
    /// seen its turn.
    pub fn needs(&self, slices: &[Slice]) -> u64 {
        let needs = self.rows(slices).map(SliceCard::needs).max().unwrap_or(0);
        let needs = needs.min(LONGEST_TURN_NS);
        if needs > 0 { needs + needs / 32 + AHEAD_NS } else { 0 }
    }

    /// The holder of its next turn. The processes of a slice on one card have turns one after the
    /// other, because a card loses time when it changes between contexts. Processes whose kernels
    /// wait for each other, those on several cards, and those of a gang have turns together.
    pub fn next_holder(&self, now: u64, slices: &[Slice]) -> Option<Holder> {
        let [(s, r)] = self.members[..] else { return Some(Holder::All) };
        let row = &slices[s].rows[r];
        if now < self.meets_until || row.active(now).nth(1).is_none() {
            return Some(Holder::All);
        }
        let has_turn = |slot| self.turn.as_ref().is_some_and(|turn| turn.covers(row.card, slot));
        row.next_process(has_turn, self.expected(row.card, now)).map(Holder::Slot)
    }

    /// The party gets a turn so that its work can end. If that work began in a turn, its processes
    /// have their turns together for a while.
    pub fn meet(&mut self, now: u64, slices: &[Slice]) {
        self.unblocked_at = now;
        let had_turn = self
            .rows(slices)
            .flat_map(|row| &row.processes)
            .any(|process| process.is_overdue() && process.had_turn);
        if had_turn {
            self.meets_until = now + MEETS_NS;
        }
    }

    /// Grants it a turn on its cards, or prolongs its turn.
    pub fn grant_turn(&mut self, now: u64, turn: Turn, slices: &mut [Slice]) {
        for (s, r) in &self.members {
            let row = &mut slices[*s].rows[*r];
            row.newcomer = false;
            row.last_served = now;
            if !self.turn.as_ref().is_some_and(|before| before.cards.contains(&row.card)) {
                row.first_turn = row.grant.turn.wrapping_add(1);
            }
        }
        self.turn = Some(turn);
    }

    /// Ends the turn if it is over. `alone`: the processes that may still have the cards alone.
    pub fn end_turn(&mut self, now: u64, alone: Option<Holder>, slices: &mut [Slice]) {
        let Some(turn) = &self.turn else { return };
        let over = match turn.kind {
            Kind::Own => true,
            Kind::Alone => alone != Some(turn.holder) || turn.cards != self.cards(slices),
            Kind::Turn => {
                self.skip_those_that_do_not_respond(now, slices);
                let cards = self.cards(slices);
                now >= turn.until
                    || turn.cards.iter().any(|card| !cards.contains(card))
                    || self.is_too_short(now, slices)
            }
        };
        let is_given_up = turn.kind == Kind::Turn && !self.is_busy(slices);
        if is_given_up {
            self.paused_at = Some(now);
            self.bill_shortest(now, slices);
        }
        if over || is_given_up {
            self.turn = None;
        }
    }

    /// Bills a turn that was given up for [`LEAST_BILL_NS`] at least: the handover has cost others
    /// time.
    fn bill_shortest(&self, now: u64, slices: &mut [Slice]) {
        let Some(turn) = &self.turn else { return };
        let missing = (turn.began + LEAST_BILL_NS).saturating_sub(now);
        for (s, r) in &self.members {
            let row = &mut slices[*s].rows[*r];
            if missing > 0 && turn.cards.contains(&row.card) {
                row.ledger.bill(missing);
            }
        }
    }

    /// Skips processes that have neither launched nor reported that they have seen the turn, and
    /// those whose work goes on without a heartbeat.
    fn skip_those_that_do_not_respond(&self, now: u64, slices: &mut [Slice]) {
        let Some(turn) = &self.turn else { return };
        let must_have_answered = now >= turn.until.min(turn.began + ANSWER_NS);
        for (s, r) in &self.members {
            let row = &mut slices[*s].rows[*r];
            let last = row.grant.turn.wrapping_sub(row.first_turn);
            let first = row.first_turn;
            let card = row.card;
            for process in row.processes.iter_mut().filter(|it| turn.covers(card, it.last.slot)) {
                let unanswered = process.last.report.turn.wrapping_sub(first) > last;
                let stopped = process.waits() && unanswered && must_have_answered;
                if process.is_silent(now) || (stopped && !process.is_running()) {
                    process.skip_silent();
                }
            }
        }
    }

    /// Whether nothing runs, and the rest of the turn is too short for each launch that waits.
    fn is_too_short(&self, now: u64, slices: &[Slice]) -> bool {
        let Some(turn) = &self.turn else { return false };
        let left = turn.until.saturating_sub(now);
        let mut waiting = 0;
        for row in self.rows(slices).filter(|row| turn.cards.contains(&row.card)) {
            for process in &row.processes {
                if process.is_running() {
                    return false;
                }
                if process.waits() && !process.is_stuck() {
                    let has_seen = process.last.report.turn == row.grant.turn;
                    if !has_seen || process.needs().min(LONGEST_TURN_NS) <= left {
                        return false;
                    }
                    waiting += 1;
                }
            }
        }
        waiting > 0
    }

    /// Whether a holder of the turn waits or works.
    fn is_busy(&self, slices: &[Slice]) -> bool {
        let Some(turn) = &self.turn else { return false };
        self.rows(slices).any(|row| {
            row.processes.iter().any(|process| {
                (process.waits() || process.is_running())
                    && turn.covers(row.card, process.last.slot)
            })
        })
    }

    /// Updates which work goes on without a turn.
    pub fn update_overdue(&mut self, now: u64, slices: &mut [Slice]) {
        let mut late = 0;
        for (s, r) in &self.members {
            let row = &mut slices[*s].rows[*r];
            let (card, metered_until) = (row.card, row.metered_until);
            for process in &mut row.processes {
                let turn = self.turn.as_ref().filter(|turn| turn.covers(card, process.last.slot));
                let entitled = match turn {
                    Some(turn) if turn.unblocks => Entitled::ToEnd,
                    Some(_) => Entitled::Yes,
                    None => Entitled::No,
                };
                process.wait_for(now, entitled, metered_until);
                late += usize::from(process.is_overdue());
            }
        }
        if late != self.overdue.0 {
            self.overdue = (late, now);
        }
        if late > 0 {
            self.overdue_since.get_or_insert(now);
        } else {
            self.overdue_since = None;
        }
    }

    /// Whether all of its work that goes on past the turn makes no progress, while one of its
    /// launches waits. The work may wait for that launch.
    pub fn needs_unblocking(&self, now: u64, slices: &[Slice]) -> bool {
        let (count, since) = self.overdue;
        let processes = || self.rows(slices).flat_map(|row| &row.processes);
        let late = count > 0
            && now - since >= STALL_NS
            && processes().all(|process| !process.is_overdue() || process.is_stalled());
        // Others do not wait for this work any more, so it gets less time.
        let mut since = processes().filter_map(Process::stuck_since);
        let stuck = since.any(|since| now >= since.max(self.unblocked_at) + STUCK_NS);
        self.turn.is_none() && self.waits(slices) && (late || stuck)
    }

    /// Whether the turn may be prolonged: its holder responds, and the turn is about to end, is too
    /// short for a launch that waits, or lacks a card on which a launch waits.
    pub fn may_go_on(&self, now: u64, slices: &[Slice]) -> bool {
        self.turn.as_ref().is_some_and(|turn| {
            let ends = now.saturating_add(AHEAD_NS) >= turn.until;
            let mut elsewhere = self.rows(slices).filter(|row| !turn.cards.contains(&row.card));
            let needs_more =
                self.needs(slices) > turn.until.saturating_sub(now).saturating_add(AHEAD_NS);
            let goes_on = ends || needs_more || elsewhere.any(SliceCard::waits);
            turn.kind == Kind::Turn && goes_on && self.responds(turn, slices)
        })
    }

    /// Whether a holder of the turn works, or has reported that it saw the turn. The turn of a
    /// stopped process is not prolonged.
    fn responds(&self, turn: &Turn, slices: &[Slice]) -> bool {
        self.rows(slices).filter(|row| turn.cards.contains(&row.card)).any(|row| {
            row.processes.iter().any(|process| {
                process.is_running()
                    || (process.waits() && process.last.report.turn == row.grant.turn)
            })
        })
    }

    /// The rest of the turn that will still be billed, if its holder works to its end.
    pub fn expected(&self, card: usize, now: u64) -> u64 {
        let turn = self.turn.as_ref().filter(|turn| turn.cards.contains(&card));
        turn.map_or(0, |turn| turn.until.saturating_sub(now))
    }

    /// The time of its next event.
    pub fn next_due(&self, now: u64, slices: &[Slice]) -> u64 {
        let mut next = u64::MAX;
        let mut due = |at: u64| {
            if at > now {
                next = next.min(at);
            }
        };
        if let Some(turn) = &self.turn {
            due(turn.until);
            due(turn.until.saturating_sub(AHEAD_NS));
            due(turn.began.saturating_add(ANSWER_NS));
        }
        if let Some(since) = self.overdue_since {
            due(since + BATCHES_NS);
            due(self.overdue.1 + STALL_NS);
        }
        for row in self.rows(slices) {
            if row.waits() {
                due(now + row.ledger.may_run_in(row.regime));
            }
            for process in &row.processes {
                process.inactive_at().into_iter().for_each(&mut due);
                process.waited_for_until(row.metered_until).into_iter().for_each(|at| due(at + 1));
                if process.is_running() {
                    due(process.silent_at() + 1);
                }
            }
        }
        next
    }
}
