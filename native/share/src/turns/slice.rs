//! A slice: its cards, and the turn that it has.

use super::process::{Process, Waiting};
use super::slice_card::{Sharing, SliceCard};
use super::{AHEAD_NS, BATCHES_NS, SHORTEST_NS, SILENT_NS, SliceView};
use crate::{Grant, Holder, Kind};

#[derive(Debug)]
pub(super) struct Slice {
    pub key: u64,
    seen: u64,
    pub rows: Vec<SliceCard>,
    /// Its rows on cards with turns on which it is active. It gets turns on all of them or on none.
    pub gang: Vec<usize>,
    pub turn: Option<Turn>,
    /// Since when its work has gone on past its turn. Turns that only unblock it do not reset this.
    pub overdue_since: Option<u64>,
    /// The published word; `None` if it is unknown.
    pub regulated: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub kind: Kind,
    pub holder: Holder,
    /// The end; `u64::MAX` for a card that it has alone.
    pub until: u64,
    pub rows: Vec<TurnRow>,
    pub began: u64,
    /// Its holder has nothing to do now: the card is free for others.
    pub idle: bool,
    /// Granted so that work which waits for a launch of the slice can end.
    pub unblocks: bool,
}

/// A turn on one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRow {
    pub row: usize,
    /// The number of its grant; of the first one if it was prolonged.
    first: u32,
    /// The billed time when it began.
    billed: u64,
}

impl Turn {
    pub fn covers(&self, row: usize, slot: u16) -> bool {
        let has_row = self.rows.iter().any(|place| place.row == row);
        has_row && (self.holder == Holder::All || self.holder == Holder::Slot(slot))
    }

    pub fn has_row(&self, row: usize) -> bool {
        self.rows.iter().any(|place| place.row == row)
    }
}

impl Slice {
    pub fn new(key: u64) -> Self {
        Self {
            key,
            seen: 0,
            rows: Vec::new(),
            gang: Vec::new(),
            turn: None,
            overdue_since: None,
            regulated: None,
        }
    }

    pub fn update(&mut self, now: u64, passed: u64, view: &SliceView) {
        self.seen = now;
        if self.rows.len() > view.rows.len() {
            self.rows.truncate(view.rows.len());
            self.turn = None;
        }
        for (i, seen) in view.rows.iter().enumerate() {
            if i == self.rows.len() {
                self.rows.push(SliceCard::new(now, seen));
            }
            self.rows[i].update(now, passed, seen);
        }
    }

    pub fn seen_at(&self, now: u64) -> bool {
        self.seen == now
    }

    pub fn credit(&mut self, now: u64, passed: u64) {
        for (r, row) in self.rows.iter_mut().enumerate() {
            let turn = self.turn.as_ref().filter(|turn| turn.has_row(r));
            row.credit(now, passed, turn.map(|turn| turn.kind));
        }
    }

    /// Grants the slice a turn on its gang, or prolongs its turn.
    pub fn grant_turn(&mut self, now: u64, kind: Kind, holder: Holder, until: u64, unblocks: bool) {
        let before = self.turn.take().filter(|turn| turn.holder == holder);
        let rows = self.gang.iter().map(|&r| {
            let row = &mut self.rows[r];
            row.newcomer = false;
            row.last_served = now;
            let kept = before.iter().flat_map(|turn| &turn.rows).find(|place| place.row == r);
            let first = kept.map_or(row.grant.turn.wrapping_add(1), |place| place.first);
            TurnRow { row: r, first, billed: row.ledger.billed }
        });
        let rows = rows.collect();
        self.turn = Some(Turn { kind, holder, until, rows, began: now, idle: false, unblocks });
    }

    /// Ends the turn if it is over. `alone`: the process that may have the card alone.
    pub fn end_turn(&mut self, now: u64, alone: Option<u16>) {
        let busy = self.turn_is_busy();
        let Some(turn) = &mut self.turn else { return };
        let rows = &mut self.rows;
        let over = match turn.kind {
            Kind::Own => true,
            Kind::Alone => {
                alone.map(Holder::Slot) != Some(turn.holder)
                    || !self.gang.first().is_some_and(|row| turn.has_row(*row))
            }
            Kind::Turn => {
                // Its holder has nothing to do, but another process of the slice waits.
                let passes_on = |row: &SliceCard| !busy && row.is_waiting();
                let goes_on = |place: &TurnRow| {
                    rows.get(place.row)
                        .is_some_and(|row| row.sharing == Sharing::Turns && !passes_on(row))
                };
                !turn.rows.iter().all(goes_on) || now >= turn.until
            }
        };
        if !over {
            turn.idle = turn.kind == Kind::Turn && !busy;
            return;
        }
        if turn.kind == Kind::Turn && now >= turn.until {
            for place in &turn.rows {
                let Some(row) = rows.get_mut(place.row) else { continue };
                let last = row.grant.turn.wrapping_sub(place.first);
                for process in &mut row.processes {
                    // It has neither launched nor reported that it has seen the turn.
                    let unanswered = process.last.turn.wrapping_sub(place.first) > last;
                    if process.is_waiting()
                        && unanswered
                        && turn.covers(place.row, process.last.slot)
                    {
                        process.skip_silent();
                    }
                }
            }
        }
        self.turn = None;
    }

    /// Whether a holder of the turn waits or works.
    fn turn_is_busy(&self) -> bool {
        self.turn.iter().any(|turn| {
            turn.rows.iter().any(|place| {
                self.rows.get(place.row).is_some_and(|row| {
                    row.processes.iter().any(|process| {
                        (process.is_waiting() || process.is_running())
                            && turn.covers(place.row, process.last.slot)
                    })
                })
            })
        })
    }

    /// Updates which work goes on without a turn, and stops waiting for it if that is useless.
    pub fn update_overdue(&mut self, now: u64) {
        // Work on one card may wait for a launch on another, which waits for a turn. So in a slice
        // that is active on several cards, work without a turn need not end.
        let in_gang = self.gang.len() > 1;
        let useless = self.overdue_since.is_some_and(|since| now - since > SILENT_NS)
            && in_gang
            && self.gang.iter().any(|row| self.rows[*row].is_waiting());
        let mut late = false;
        for (r, row) in self.rows.iter_mut().enumerate() {
            for process in &mut row.processes {
                let entitled = row.sharing != Sharing::Turns
                    || self.turn.as_ref().is_some_and(|turn| turn.covers(r, process.last.slot));
                let metered_until = row.metered_until;
                process.wait_for(now, Waiting { entitled, in_gang, useless, metered_until });
                late |= process.is_overdue();
            }
        }
        if late {
            self.overdue_since.get_or_insert(now);
        } else if !self.turn.as_ref().is_some_and(|turn| turn.unblocks) {
            self.overdue_since = None;
        }
    }

    /// Whether its kernels go on past the turn for longer than two short batches while the slice
    /// has several cards. They may wait for one of its launches.
    pub fn needs_unblocking(&self, now: u64) -> bool {
        let late = self.overdue_since.is_some_and(|since| now - since >= BATCHES_NS);
        late && self.turn.is_none() && self.gang.len() > 1
    }

    /// Whether the turn is about to end, or does not have all cards on which launches wait, while
    /// its holder responds.
    pub fn may_go_on(&self, now: u64) -> bool {
        self.turn.as_ref().is_some_and(|turn| {
            let ends = now.saturating_add(AHEAD_NS) >= turn.until;
            let mut elsewhere = self.gang.iter().filter(|row| !turn.has_row(**row));
            let goes_on = ends || elsewhere.any(|row| self.rows[*row].is_waiting());
            turn.kind == Kind::Turn && goes_on && self.responds(turn, now)
        })
    }

    /// Whether a holder of the turn has reported that it saw it, or works. A stopped one gets no
    /// more.
    fn responds(&self, turn: &Turn, now: u64) -> bool {
        turn.rows.iter().any(|place| {
            let row = &self.rows[place.row];
            row.processes.iter().any(|process| {
                let saw = process.is_waiting() && process.last.turn == row.grant.turn;
                turn.covers(place.row, process.last.slot) && (saw || process.has_heartbeat(now))
            })
        })
    }

    /// The engine time on a row that will still be billed to the turn, if its holder works to its
    /// end.
    pub fn expected(&self, row: usize, now: u64) -> u64 {
        let Some(turn) = self.turn.as_ref().filter(|turn| !turn.idle) else { return 0 };
        let Some(place) = turn.rows.iter().find(|place| place.row == row) else { return 0 };
        let billed = self.rows[row].ledger.billed - place.billed;
        let unbilled = (now - turn.began).saturating_sub(billed).min(2 * BATCHES_NS);
        unbilled.max(self.rows[row].unreported(now))
            + turn.until.saturating_sub(now).min(2 * BATCHES_NS)
    }

    /// Whether a published grant of the row that can be used is being revoked.
    pub fn is_revoked(&self, r: usize, now: u64) -> bool {
        let row = &self.rows[r];
        let usable = match row.grant.kind {
            Kind::Own | Kind::Alone => true,
            Kind::Turn => row.grant.holder != Holder::None && row.grant.until > now,
        };
        row.sharing == Sharing::Turns
            && usable
            && !self.turn.as_ref().is_some_and(|turn| turn.has_row(r))
    }

    /// The grant to publish for a row, if it differs from the published one.
    pub fn next_grant(&mut self, r: usize, now: u64) -> Option<Grant> {
        let turn = self.turn.as_ref().filter(|turn| turn.has_row(r));
        let row = &mut self.rows[r];
        let (kind, holder, until) = match turn {
            _ if row.sharing == Sharing::Unregulated => (Kind::Own, Holder::All, 0),
            _ if row.sharing == Sharing::Metered => (Kind::Alone, Holder::All, 0),
            Some(turn) if turn.kind == Kind::Turn => (Kind::Turn, turn.holder, turn.until),
            Some(turn) => (turn.kind, turn.holder, 0),
            // A turn that has expired need not be revoked.
            None if row.grant.kind == Kind::Turn && row.grant.until <= now => return None,
            None => (Kind::Turn, Holder::None, 0),
        };
        let grant = Grant { turn: row.grant.turn.wrapping_add(1), kind, holder, until };
        let same = (kind, holder, until) == (row.grant.kind, row.grant.holder, row.grant.until);
        if same || (kind == Kind::Own && row.grant.kind == Kind::Own) {
            return None;
        }
        row.grant = grant;
        Some(grant)
    }

    /// The time of the slice's next event.
    pub fn next_due(&self, now: u64) -> u64 {
        let mut next = u64::MAX;
        let mut due = |at: u64| {
            if at > now {
                next = next.min(at);
            }
        };
        if let Some(turn) = &self.turn {
            due(turn.until);
            due(turn.until.saturating_sub(AHEAD_NS));
            due(turn.began + SHORTEST_NS);
        }
        if let Some(since) = self.overdue_since {
            due(since + BATCHES_NS);
        }
        for row in self.rows.iter().filter(|row| row.sharing == Sharing::Turns) {
            if row.is_waiting() || !row.is_active(now) {
                due(now + row.ledger.may_run_in(row.regime));
            }
            row.processes.iter().filter_map(Process::inactive_at).for_each(&mut due);
            let waited_for = row.processes.iter().filter_map(Process::waited_for_until);
            waited_for.for_each(|until| due(until + 1));
        }
        next
    }

    /// Whether others wait for work on the row that has no turn.
    pub fn is_overdue(&self, row: usize) -> bool {
        self.rows[row].processes.iter().any(Process::is_overdue)
    }

    /// Of the processes that wait on a row, the one with the least engine time. Time of a turn that
    /// is not billed yet counts.
    pub fn next_process(&self, r: usize, now: u64) -> Option<u16> {
        let entitled = |slot| self.turn.as_ref().is_some_and(|turn| turn.covers(r, slot));
        let wanting = self.rows[r].processes.iter().filter(|process| {
            process.is_waiting() || (process.is_running() && entitled(process.last.slot))
        });
        let next = wanting.min_by_key(|process| {
            let expected = if entitled(process.last.slot) { self.expected(r, now) } else { 0 };
            process.served.saturating_add(expected)
        });
        next.map(|process| process.last.slot)
    }
}
