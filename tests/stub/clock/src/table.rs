//! Who runs next: the rule of the virtual time, over rows that stand for threads.
//!
//! Nothing here waits, looks at a clock or asks the kernel: the rows lie in the shared file, and
//! whoever calls holds its lock. A file full of zeroes is an empty table.
//!
//! Exactly one thread runs. When it waits, the thread with the earliest wake time runs next, at
//! equal times the one of the lower order; time jumps to that wake time if it lies ahead. So all
//! that happens follows from what the threads do, and from nothing else.

/// How many threads can take part at once.
pub const ROWS: usize = 256;
/// How many words a thread can wait for at once, as many as the kernel's `futex_waitv` allows.
pub const KEYS: usize = 128;
/// The wake time of who waits for somebody else alone.
pub const NEVER: u64 = u64::MAX;
/// The `woken` of a wait that reached its time, or still goes on.
const BY_TIME: u32 = u32::MAX;

/// A word that threads wait for: the same for every process that maps it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Which file, or which process.
    pub space: u64,
    /// Where in it.
    pub offset: u64,
}

/// What a thread is doing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No thread: the row can be taken.
    Free = 0,
    /// It has the turn.
    Running = 1,
    /// It waits, for its time or for a word.
    Waiting = 2,
}

/// One thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub state: State,
    /// 1 while its process is stopped by a signal: it is passed over.
    pub stopped: u32,
    pub pid: u32,
    pub tid: u32,
    /// When the kernel started it: tells it from a later one of the same number.
    pub started: u64,
    /// Its thread in its process, as `pthread_self` says.
    pub thread: u64,
    /// Who goes first at equal times: the lower.
    pub order: u64,
    /// How much later than asked it runs on, in nanoseconds.
    pub late: u64,
    /// When it runs on.
    pub wake_at: u64,
    /// Who let others go first at this time goes behind them, in the order of doing so.
    pub behind: u64,
    /// When it began to wait, counted in waits: the longest waiting is woken first.
    since: u64,
    woken: u32,
    bitset: u32,
    keys: u32,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The time at which it runs on by itself, before lateness.
    pub until: u64,
    /// The words of which each may wake it.
    pub keys: &'a [Key],
    /// Only wakes that share a bit with this wake it.
    pub bitset: u32,
}

/// Why a wait was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    ByTime,
    /// By the word of this number.
    By(usize),
}

/// All threads.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// Processes that have come by themselves so far; the others are children of these.
    pub joined: u32,
    /// 1 once as many have come as were expected.
    pub begun: u32,
    /// Orders given to processes that did not bring one.
    arrivals: u64,
    waits: u64,
    high_water: usize,
    rows: [Row; ROWS],
    keys: [[Key; KEYS]; ROWS],
}

impl Table {
    pub fn row(&self, index: usize) -> &Row {
        &self.rows[index]
    }

    pub fn row_mut(&mut self, index: usize) -> &mut Row {
        &mut self.rows[index]
    }

    /// The rows that are threads.
    pub fn taken(&self) -> Vec<usize> {
        (0..self.high_water).filter(|index| self.rows[*index].state != State::Free).collect()
    }

    /// The place in the order of a process that brings none: behind all that do.
    pub fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        (1 << 31) + self.arrivals - 1
    }

    /// A row for a new thread, ready to run at `now`; None when all are taken.
    pub fn join(&mut self, pid: u32, tid: u32, order: u64, late: u64, now: u64) -> Option<usize> {
        let index = self.rows.iter().position(|row| row.state == State::Free)?;
        self.high_water = self.high_water.max(index + 1);
        self.rows[index] = Row {
            state: State::Waiting,
            stopped: 0,
            pid,
            tid,
            started: 0,
            thread: 0,
            order,
            late,
            wake_at: now,
            behind: 0,
            since: 0,
            woken: BY_TIME,
            bitset: 0,
            keys: 0,
        };
        Some(index)
    }

    /// The thread is no more.
    pub fn leave(&mut self, index: usize) {
        self.rows[index].state = State::Free;
    }

    /// The thread waits from `now` on. One that waits for a time that is here lets others go first.
    pub fn wait(&mut self, index: usize, wait: &Wait, now: u64) {
        self.waits += 1;
        let keys = wait.keys.len().min(KEYS);
        self.keys[index][..keys].copy_from_slice(&wait.keys[..keys]);
        let row = &mut self.rows[index];
        row.state = State::Waiting;
        (row.wake_at, row.behind) = match wait.until {
            NEVER => (NEVER, 0),
            until if until <= now => (now, self.waits),
            until => (until.saturating_add(row.late), 0),
        };
        (row.since, row.woken, row.bitset, row.keys) =
            (self.waits, BY_TIME, wait.bitset, keys as u32);
    }

    /// The thread lost the turn at `now` without having waited; it listens for nothing.
    pub fn interrupt(&mut self, index: usize, now: u64) {
        let row = &mut self.rows[index];
        row.state = State::Waiting;
        (row.wake_at, row.keys) = (now.min(row.wake_at), 0);
    }

    /// Wakes at most so many that wait for the word, the longest waiting first; how many it were.
    pub fn wake(&mut self, key: Key, count: usize, bitset: u32, now: u64) -> usize {
        for woken in 0..count {
            let waiting = (0..self.high_water).filter_map(|index| {
                let row = &self.rows[index];
                let listens = row.state == State::Waiting && row.bitset & bitset != 0;
                let word = listens.then(|| self.word(index, key)).flatten()?;
                Some((row.since, index, word))
            });
            let Some((_, index, word)) = waiting.min() else { return woken };
            let row = &mut self.rows[index];
            // Who reached its time already has missed the wake.
            row.wake_at = row.wake_at.min(now + row.late);
            (row.woken, row.keys, row.behind) = (word as u32, 0, 0);
        }
        count
    }

    /// Which of the words that a thread waits for this is.
    fn word(&self, index: usize, key: Key) -> Option<usize> {
        self.keys[index][..self.rows[index].keys as usize].iter().position(|word| *word == key)
    }

    /// Who runs next; None when all that are left wait for each other, or are stopped.
    pub fn next(&self) -> Option<usize> {
        let candidates = self.rows[..self.high_water].iter().enumerate().filter(|(_, row)| {
            row.state == State::Waiting && row.stopped == 0 && row.wake_at != NEVER
        });
        candidates
            .min_by_key(|(_, row)| (row.wake_at, row.behind, row.order))
            .map(|(index, _)| index)
    }

    /// Gives a thread the turn.
    pub fn run(&mut self, index: usize) {
        self.rows[index].state = State::Running;
    }

    /// Why the last wait of a thread was over.
    pub fn woken(&self, index: usize) -> Woken {
        match self.rows[index].woken {
            BY_TIME => Woken::ByTime,
            word => Woken::By(word as usize),
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
