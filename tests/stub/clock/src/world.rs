//! The file that the processes of a world share, and the lock that guards its table.
//!
//! The first eight bytes are the time; a file of zeroes is a world that has not begun. The holder
//! of the lock may be killed at any instruction; then the next process takes over the lock. In the
//! worst case the table has a half-entered thread, which `/proc` shows as ended.

use crate::alive::{self, Life};
use crate::raw;
use crate::table::{ROWS, Row, State, Table};
use std::cell::UnsafeCell;
use std::ffi::{CString, OsStr};
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long, in real time, the running thread may be silent before its state is read from `/proc`.
pub const SILENCE: Duration = Duration::from_millis(20);
/// No thread has the turn.
const NOBODY: u32 = 0;
/// Set in the lock's word while a thread may wait for it; thread numbers are below.
const CONTENDED: u32 = 1 << 31;

/// The shared file.
#[repr(C)]
#[derive(Debug)]
pub struct World {
    /// Nanoseconds since the world began.
    now: AtomicU64,
    /// The kernel's number of the thread that holds the lock; 0: no thread.
    lock: AtomicU32,
    /// The row of the thread that runs, plus one.
    running: AtomicU32,
    /// How many threads wait for a lock of the C library.
    pub lock_waiters: AtomicU32,
    /// By row: 1 when the turn was passed to the thread and the thread has not taken it yet.
    turns: [AtomicU32; ROWS],
    table: UnsafeCell<Table>,
}

// SAFETY: the table is reached through the lock alone.
unsafe impl Sync for World {}

impl World {
    /// Maps the file until the process ends; creates it if it does not exist.
    pub fn open(path: &OsStr) -> Result<&'static Self, String> {
        let failed = |what: &str| {
            let error = std::io::Error::last_os_error();
            format!("STUB_CLOCK={}: {what}: {error}", path.display())
        };
        let name = CString::new(path.as_bytes()).map_err(|_| "STUB_CLOCK is no path")?;
        let size = size_of::<Self>();
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        // SAFETY: the name is a C string; the descriptor is this function's own; the mapping is
        // whole, since the file has its size and no process truncates it.
        unsafe {
            let file = libc::open(name.as_ptr(), flags, 0o600);
            if file < 0 {
                return Err(failed("cannot be opened"));
            }
            let sized = libc::ftruncate(file, size as libc::off_t) == 0;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let arguments = [0, size, access as usize, libc::MAP_SHARED as usize, file as usize, 0];
            let mapped = raw::call(libc::SYS_mmap, arguments);
            libc::close(file);
            if !sized || (-4095..0).contains(&mapped) {
                return Err(failed("cannot be mapped"));
            }
            Ok(&*(mapped as *const Self))
        }
    }

    /// The time, in nanoseconds since the world began.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    /// The row of the running thread.
    pub fn running(&self) -> Option<usize> {
        self.running.load(Ordering::Acquire).checked_sub(1).map(|row| row as usize)
    }

    /// Returns when the row has the turn. Calls `probe` while that takes long.
    pub fn await_turn(&self, row: usize, mut probe: impl FnMut()) {
        let turn = &self.turns[row];
        while turn.swap(0, Ordering::AcqRel) == 0 {
            raw::futex_wait(turn.as_ptr(), 0, SILENCE);
            if turn.load(Ordering::Acquire) == 0 {
                probe();
            }
        }
    }

    /// Takes the lock.
    pub fn lock(&self) -> Guard<'_> {
        let me = raw::thread_id();
        loop {
            match self.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Guard { world: self, wakes: None },
                Err(_) => self.wait_for_lock(),
            }
        }
    }

    /// Takes the lock for a thread that is about to pass on its turn. The thread has the turn when
    /// this returns: if it was stopped by a signal it may have lost the turn, and would pass on
    /// another thread's. `probe` is as for [`await_turn`](Self::await_turn).
    pub fn lock_in_turn(&self, row: usize, mut probe: impl FnMut()) -> Guard<'_> {
        loop {
            let mut guard = self.lock();
            if self.running() == Some(row) {
                // The turn may have returned before the thread noticed its loss.
                guard.keep(row);
                return guard;
            }
            drop(guard);
            self.await_turn(row, &mut probe);
        }
    }

    #[cold]
    fn wait_for_lock(&self) {
        let word = self.lock.fetch_or(CONTENDED, Ordering::Relaxed) | CONTENDED;
        if word == CONTENDED {
            // The lock is free. The mark keeps others from taking it too.
            let _ = self.lock.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
            return;
        }
        raw::futex_wait(self.lock.as_ptr(), word, SILENCE);
        let holder = word & !CONTENDED;
        // A thread is found by its own number as well as below its process.
        if self.lock.load(Ordering::Relaxed) == word
            && alive::look(holder, holder, alive::started(holder, holder)) == Life::Dead
        {
            let _ = self.lock.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// The table, while the lock is held. Dropping it wakes the thread that [`Guard::pass`] has chosen.
#[derive(Debug)]
pub struct Guard<'a> {
    world: &'a World,
    wakes: Option<usize>,
}

impl Guard<'_> {
    /// Passes the turn to the next thread and advances the time to it; returns its row.
    pub fn pass(&mut self) -> Option<usize> {
        let next = self.next();
        let Some(row) = next else {
            self.world.running.store(NOBODY, Ordering::Release);
            return None;
        };
        let wake_at = self.row(row).wake_at;
        if wake_at > self.world.now() {
            self.world.now.store(wake_at, Ordering::Release);
        }
        self.run(row);
        self.world.running.store(row as u32 + 1, Ordering::Release);
        self.world.turns[row].store(1, Ordering::Release);
        self.wakes = Some(row);
        next
    }

    /// Takes the turn that `pass` has passed to the caller itself.
    pub fn keep(&mut self, row: usize) {
        self.world.turns[row].store(0, Ordering::Release);
        self.wakes = None;
    }

    /// Takes the turn away from a thread that cannot use it.
    fn withdraw(&mut self, row: usize) {
        self.world.turns[row].store(0, Ordering::Release);
    }

    /// Frees the rows of a process's ended threads.
    pub fn strike_dead(&mut self, pid: u32) {
        for index in self.taken() {
            let row = *self.row(index);
            if row.pid == pid && life(&row) == Life::Dead {
                self.withdraw(index);
                self.leave(index);
            }
        }
    }

    /// Marks a process as stopped or continued.
    pub fn mark(&mut self, pid: u32, stopped: bool) {
        for index in self.taken() {
            if self.row(index).pid == pid {
                self.row_mut(index).stopped = u32::from(stopped);
            }
        }
    }

    /// Whether the turn is with an ended or stopped thread, or with none; if so, passes it to the
    /// next thread.
    pub fn look_after(&mut self) {
        if self.begun == 0 {
            return;
        }
        if let Some(index) = self.world.running() {
            let row = *self.row(index);
            match life(&row) {
                _ if row.state == State::Free => {}
                Life::Lives => return,
                Life::Dead => self.strike_dead(row.pid),
                Life::Stopped => {
                    let now = self.world.now();
                    self.withdraw(index);
                    self.mark(row.pid, true);
                    self.interrupt(index, now);
                }
            }
        }
        self.pass();
    }
}

fn life(row: &Row) -> Life {
    match (row.pid, row.tid) {
        // A child that is being created has no numbers yet.
        (0, _) => Life::Lives,
        (pid, 0) if alive::is_dead(pid) => Life::Dead,
        (_, 0) => Life::Lives,
        (pid, tid) => alive::look(pid, tid, row.started),
    }
}

impl Deref for Guard<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        // SAFETY: the lock is held.
        unsafe { &*self.world.table.get() }
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        // SAFETY: the lock is held, and the guard borrowed for as long as the table.
        unsafe { &mut *self.world.table.get() }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.world.lock.swap(0, Ordering::Release) & CONTENDED != 0 {
            raw::futex_wake(self.world.lock.as_ptr());
        }
        if let Some(row) = self.wakes {
            raw::futex_wake(self.world.turns[row].as_ptr());
        }
    }
}
