//! One slice: its rows, and the turn that it has.

use super::process::{Process, Waiting};
use super::row::{Row, Sharing};
use super::{AHEAD_NS, BATCHES_NS, SHORTEST_NS, SILENT_NS, SliceView};
use crate::{Grant, Holder, Kind};

#[derive(Debug)]
pub(super) struct Slice {
    pub key: u64,
    seen: u64,
    pub rows: Vec<Row>,
    /// Its rows on cards with turns on which it is active: it gets turns on all of them or on none.
    pub gang: Vec<usize>,
    pub turn: Option<Turn>,
    /// Its work has gone on past its turn since then, shorter prolongations included.
    pub late_since: Option<u64>,
    /// What is published; `None` where nobody knows.
    pub regulated: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub kind: Kind,
    pub holder: Holder,
    /// `u64::MAX` for a card that it has alone.
    pub until: u64,
    pub places: Vec<Place>,
    pub began: u64,
    /// Its holder has nothing to do just now: the card is free for others.
    pub parked: bool,
    /// Given so that work which waits for other work of the slice can end.
    pub stretch: bool,
}

/// One row of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub row: usize,
    /// The number of the grant, or of the first one if it was prolonged.
    first: u32,
    /// What was billed when it began.
    billed: u64,
}

impl Turn {
    pub fn covers(&self, row: usize, slot: u16) -> bool {
        let has_row = self.places.iter().any(|place| place.row == row);
        has_row && (self.holder == Holder::Everyone || self.holder == Holder::Slot(slot))
    }

    pub fn has_row(&self, row: usize) -> bool {
        self.places.iter().any(|place| place.row == row)
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
            late_since: None,
            regulated: None,
        }
    }

    pub fn absorb(&mut self, now: u64, passed: u64, view: &SliceView) {
        self.seen = now;
        if self.rows.len() > view.rows.len() {
            self.rows.truncate(view.rows.len());
            self.turn = None;
        }
        for (i, seen) in view.rows.iter().enumerate() {
            if i == self.rows.len() {
                self.rows.push(Row::new(now, seen));
            }
            self.rows[i].absorb(now, passed, seen);
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

    /// Gives the slice a turn on its gang, or prolongs the one that it has.
    pub fn give(&mut self, now: u64, kind: Kind, holder: Holder, until: u64, stretch: bool) {
        let before = self.turn.take().filter(|turn| turn.holder == holder);
        let places = self.gang.iter().map(|&r| {
            let row = &mut self.rows[r];
            row.newcomer = false;
            row.last_served = now;
            let kept = before.iter().flat_map(|turn| &turn.places).find(|place| place.row == r);
            let first = kept.map_or(row.grant.turn.wrapping_add(1), |place| place.first);
            Place { row: r, first, billed: row.book.billed }
        });
        let places = places.collect();
        self.turn = Some(Turn { kind, holder, until, places, began: now, parked: false, stretch });
    }

    /// Ends the turn if it is over. `alone`: the process that may have the card to itself.
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
                // Its holder has nothing to do, but another process of the slice has.
                let passes_on = |row: &Row| !busy && row.wants();
                let goes_on = |place: &Place| {
                    rows.get(place.row)
                        .is_some_and(|row| row.sharing == Sharing::Turns && !passes_on(row))
                };
                !turn.places.iter().all(goes_on) || now >= turn.until
            }
        };
        if !over {
            turn.parked = turn.kind == Kind::Turn && !busy;
            return;
        }
        if turn.kind == Kind::Turn && now >= turn.until {
            for place in &turn.places {
                let Some(row) = rows.get_mut(place.row) else { continue };
                let last = row.grant.turn.wrapping_sub(place.first);
                for process in &mut row.processes {
                    // Neither launched nor said that it has seen the turn.
                    let unanswered = process.said.turn.wrapping_sub(place.first) > last;
                    if process.wants() && unanswered && turn.covers(place.row, process.said.slot) {
                        process.pass_silent();
                    }
                }
            }
        }
        self.turn = None;
    }

    /// Somebody whom the turn is for wants or does something.
    fn turn_is_busy(&self) -> bool {
        self.turn.iter().any(|turn| {
            turn.places.iter().any(|place| {
                self.rows.get(place.row).is_some_and(|row| {
                    row.processes.iter().any(|process| {
                        (process.wants() || process.runs())
                            && turn.covers(place.row, process.said.slot)
                    })
                })
            })
        })
    }

    /// Notes whose work goes on without a turn, and gives up waiting where waiting is of no use.
    pub fn pass_over(&mut self, now: u64) {
        // Work on one card may wait for a launch on another, which waits for a turn: within a slice
        // that is active on several cards a drain need not end.
        let in_gang = self.gang.len() > 1;
        let in_vain = self.late_since.is_some_and(|since| now - since > SILENT_NS)
            && in_gang
            && self.gang.iter().any(|row| self.rows[*row].wants());
        let mut late = false;
        for (r, row) in self.rows.iter_mut().enumerate() {
            for process in &mut row.processes {
                let entitled = row.sharing != Sharing::Turns
                    || self.turn.as_ref().is_some_and(|turn| turn.covers(r, process.said.slot));
                let metered_until = row.metered_until;
                process.wait_for(now, Waiting { entitled, in_gang, in_vain, metered_until });
                late |= process.is_overdue();
            }
        }
        if late {
            self.late_since.get_or_insert(now);
        } else if !self.turn.as_ref().is_some_and(|turn| turn.stretch) {
            self.late_since = None;
        }
    }

    /// Its kernels go on past the turn for longer than two short batches, on a card of several, while
    /// a launch of it waits: they may wait for that launch.
    pub fn needs_stretch(&self, now: u64) -> bool {
        let late = self.late_since.is_some_and(|since| now - since >= BATCHES_NS);
        late && self.turn.is_none() && self.gang.len() > 1
    }

    /// The turn is about to end, or does not reach all cards on which launches wait.
    pub fn may_go_on(&self, now: u64) -> bool {
        self.turn.as_ref().is_some_and(|turn| {
            let ends = now.saturating_add(AHEAD_NS) >= turn.until;
            let mut elsewhere = self.gang.iter().filter(|row| !turn.has_row(**row));
            let goes_on = ends || elsewhere.any(|row| self.rows[*row].wants());
            turn.kind == Kind::Turn && goes_on && self.answers(turn, now)
        })
    }

    /// A holder of the turn has said that it saw it, or works: one that was stopped gets no more.
    fn answers(&self, turn: &Turn, now: u64) -> bool {
        turn.places.iter().any(|place| {
            let row = &self.rows[place.row];
            row.processes.iter().any(|process| {
                let saw = process.wants() && process.said.turn == row.grant.turn;
                turn.covers(place.row, process.said.slot) && (saw || process.beats(now))
            })
        })
    }

    /// Engine time on a row that will yet be billed to the turn, if its holder works to the end of it.
    pub fn to_come(&self, row: usize, now: u64) -> u64 {
        let Some(turn) = self.turn.as_ref().filter(|turn| !turn.parked) else { return 0 };
        let Some(place) = turn.places.iter().find(|place| place.row == row) else { return 0 };
        let billed = self.rows[row].book.billed - place.billed;
        let unbilled = (now - turn.began).saturating_sub(billed).min(2 * BATCHES_NS);
        unbilled.max(self.rows[row].untold(now))
            + turn.until.saturating_sub(now).min(2 * BATCHES_NS)
    }

    /// A grant that is published for the row, and may be used, is to be taken back.
    pub fn loses(&self, r: usize, now: u64) -> bool {
        let row = &self.rows[r];
        let usable = match row.grant.kind {
            Kind::Own | Kind::Alone => true,
            Kind::Turn => row.grant.holder != Holder::Nobody && row.grant.until > now,
        };
        row.sharing == Sharing::Turns
            && usable
            && !self.turn.as_ref().is_some_and(|turn| turn.has_row(r))
    }

    /// What is to be published for a row, if it differs from what is.
    pub fn renew_grant(&mut self, r: usize, now: u64) -> Option<Grant> {
        let turn = self.turn.as_ref().filter(|turn| turn.has_row(r));
        let row = &mut self.rows[r];
        let (kind, holder, until) = match turn {
            _ if row.sharing == Sharing::Open => (Kind::Own, Holder::Everyone, 0),
            _ if row.sharing == Sharing::Metered => (Kind::Alone, Holder::Everyone, 0),
            Some(turn) if turn.kind == Kind::Turn => (Kind::Turn, turn.holder, turn.until),
            Some(turn) => (turn.kind, turn.holder, 0),
            // What has run out by itself needs no word.
            None if row.grant.kind == Kind::Turn && row.grant.until <= now => return None,
            None => (Kind::Turn, Holder::Nobody, 0),
        };
        let grant = Grant { turn: row.grant.turn.wrapping_add(1), kind, holder, until };
        let same = (kind, holder, until) == (row.grant.kind, row.grant.holder, row.grant.until);
        if same || (kind == Kind::Own && row.grant.kind == Kind::Own) {
            return None;
        }
        row.grant = grant;
        Some(grant)
    }

    /// The next instant at which something is due.
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
        if let Some(since) = self.late_since {
            due(since + BATCHES_NS);
        }
        for row in self.rows.iter().filter(|row| row.sharing == Sharing::Turns) {
            if row.wants() || !row.is_active(now) {
                due(now + row.book.opens_in(row.regime));
            }
            row.processes.iter().filter_map(Process::inactive_at).for_each(&mut due);
            let waited_for = row.processes.iter().filter_map(Process::waited_for_until);
            waited_for.for_each(|until| due(until + 1));
        }
        next
    }

    /// A process works on the row without a turn.
    pub fn is_overdue(&self, row: usize) -> bool {
        self.rows[row].processes.iter().any(Process::is_overdue)
    }

    /// Of those who wait on a row, the process that has been served least, with a turn's work that is
    /// yet to be billed.
    pub fn next_process(&self, r: usize, now: u64) -> Option<u16> {
        let entitled = |slot| self.turn.as_ref().is_some_and(|turn| turn.covers(r, slot));
        let wanting = self.rows[r]
            .processes
            .iter()
            .filter(|process| process.wants() || (process.runs() && entitled(process.said.slot)));
        let next = wanting.min_by_key(|process| {
            let to_come = if entitled(process.said.slot) { self.to_come(r, now) } else { 0 };
            process.served.saturating_add(to_come)
        });
        next.map(|process| process.said.slot)
    }
}
