//! The rule of the virtual time: which thread runs next.
//!
//! The table has a row for each thread. It does not wait, and reads no clock and no state of the
//! kernel. It is in the shared file, and the caller holds the file's lock. A file full of zeroes is
//! an empty table.
//!
//! Exactly one thread runs. When it waits, the thread with the earliest wake time runs next; at
//! equal times, the one with the lower order. The time jumps to that wake time if it is in the
//! future. So the result depends only on what the threads do.

/// The most threads at once.
pub const ROWS: usize = 256;
/// The most words that a thread can wait for at once, as in the kernel's `futex_waitv`.
pub const KEYS: usize = 128;
/// The wake time of a thread that waits without a time.
pub const NEVER: u64 = u64::MAX;
/// The `woken` of a wait that has reached its time, or has not ended.
const BY_TIME: u32 = u32::MAX;

/// A word that threads wait for: the same for every process that maps it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The file, or the process.
    pub space: u64,
    /// The offset or address in it.
    pub offset: u64,
}

/// The state of a row.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The row is free.
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
    /// 1 while its process is stopped by a signal; then it is skipped.
    pub stopped: u32,
    pub pid: u32,
    pub tid: u32,
    /// When the kernel started it, which distinguishes it from a later thread of the same number.
    pub started: u64,
    /// Its `pthread_self`.
    pub thread: u64,
    /// Its order at equal times: the lower one runs first.
    pub order: u64,
    /// How much later than requested it continues, in nanoseconds.
    pub late: u64,
    /// When it continues.
    pub wake_at: u64,
    /// Threads that have yielded at this time run after the others, in the order in which they
    /// yielded.
    pub behind: u64,
    /// When it began to wait, counted in waits: the longest waiting is woken first.
    since: u64,
    woken: u32,
    bitset: u32,
    keys: u32,
}

/// The wait of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The time at which it continues by itself, without the lateness.
    pub until: u64,
    /// The words; each may wake it.
    pub keys: &'a [Key],
    /// Only wake-ups that share a bit with this mask wake it.
    pub bitset: u32,
}

/// Why a wait has ended.
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
    /// The processes that have entered by themselves so far; the others are their children.
    pub joined: u32,
    /// 1 once as many processes have entered as were expected.
    pub begun: u32,
    /// The number of processes without a position of their own.
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

    /// The rows of threads.
    pub fn taken(&self) -> Vec<usize> {
        (0..self.high_water).filter(|index| self.rows[*index].state != State::Free).collect()
    }

    /// The position of a process that has none of its own: after all that do.
    pub fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        (1 << 31) + self.arrivals - 1
    }

    /// Adds a thread that is ready to run at `now`; None when all rows are taken.
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

    /// Removes a thread.
    pub fn leave(&mut self, index: usize) {
        self.rows[index].state = State::Free;
    }

    /// Makes a thread wait from `now` on. A wait for a time that has come yields to others.
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

    /// Takes the turn from a thread at `now`, which waits for nothing and is ready again.
    pub fn interrupt(&mut self, index: usize, now: u64) {
        let row = &mut self.rows[index];
        row.state = State::Waiting;
        (row.wake_at, row.keys) = (now.min(row.wake_at), 0);
    }

    /// Wakes at most so many threads that wait for the word, the longest waiting first; returns
    /// their number.
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
            // A thread that has already reached its time misses the wake-up.
            row.wake_at = row.wake_at.min(now + row.late);
            (row.woken, row.keys, row.behind) = (word as u32, 0, 0);
        }
        count
    }

    /// The index of a word among those that a thread waits for.
    fn word(&self, index: usize, key: Key) -> Option<usize> {
        self.keys[index][..self.rows[index].keys as usize].iter().position(|word| *word == key)
    }

    /// The thread that runs next; None when all wait for each other, or are stopped.
    pub fn next(&self) -> Option<usize> {
        let candidates = self.rows[..self.high_water].iter().enumerate().filter(|(_, row)| {
            row.state == State::Waiting && row.stopped == 0 && row.wake_at != NEVER
        });
        candidates
            .min_by_key(|(_, row)| (row.wake_at, row.behind, row.order))
            .map(|(index, _)| index)
    }

    /// Passes the turn to a thread.
    pub fn run(&mut self, index: usize) {
        self.rows[index].state = State::Running;
    }

    /// Why the last wait of a thread has ended.
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
