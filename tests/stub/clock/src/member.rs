//! This process's part in a world, and each thread's: entering, waiting, leaving.
//!
//! It is set up at load, or at the first interposed call if that comes earlier. Without
//! `STUB_CLOCK` it reads the environment once, and then every call goes straight to the C library.

use crate::alive;
use crate::raw;
use crate::settings::Settings;
use crate::table::{Key, NEVER, Wait, Woken};
use crate::world::{Guard, World};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Programs see the file's time plus this, so that "a minute ago" is a valid time.
pub const EPOCH: u64 = 1_000_000_000_000;

/// How often a thread may read the clock and wait at one instant. Then the time advances for it, so
/// that a thread that spins until a time reaches it.
const PATIENCE: u32 = 1000;
/// How far the time then advances, in nanoseconds.
const NUDGE: u64 = 1000;

/// The role of this process in a world.
#[derive(Debug)]
enum Part {
    None,
    Observer(&'static World),
    Member(Member),
}

/// This process in its world.
#[derive(Debug)]
pub struct Member {
    pub world: &'static World,
    late: u64,
    expect: u32,
    position: Option<u64>,
    /// The key whose destructor runs at each thread's end.
    end: libc::pthread_key_t,
}

static PART: OnceLock<Part> = OnceLock::new();
/// The process's position in the order, in the upper half; a forked child gets its own.
static POSITION: AtomicU64 = AtomicU64::new(0);
/// How many threads of this process have entered.
static BORN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// This thread's row plus one; 0 before it has entered.
    static ROW: Cell<usize> = const { Cell::new(0) };
    /// How often this thread has read the clock or waited at an instant, and that instant.
    static EVENTS: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    /// Set while the library itself calls the C library.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Enters at load, before the program's `main`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn enter() {
        let _ = member();
    }
    enter
};

fn part() -> &'static Part {
    PART.get_or_init(|| {
        let part = Settings::from_environment().and_then(|settings| match settings {
            None => Ok(Part::None),
            Some(settings) => {
                let world = World::open(&settings.file)?;
                if settings.observes {
                    return Ok(Part::Observer(world));
                }
                let mut end = 0;
                // SAFETY: the key is a position for the answer, the function is this library's.
                if unsafe { libc::pthread_key_create(&raw mut end, Some(at_thread_end)) } != 0 {
                    return Err("no room for a thread key".into());
                }
                let Settings { late, expect, position, .. } = settings;
                Ok(Part::Member(Member { world, late, expect, position, end }))
            }
        });
        part.unwrap_or_else(|message| {
            eprintln!("stub-clock: {message}");
            std::process::abort()
        })
    })
}

/// The world whose time this process reads without taking part.
pub fn observed() -> Option<&'static World> {
    match part() {
        Part::Observer(world) => Some(world),
        _ => None,
    }
}

/// This process's part, after the calling thread has entered and has the turn; None where the call
/// belongs to the C library.
pub fn member() -> Option<&'static Member> {
    if WITHIN.get() {
        return None;
    }
    let within = Within::enter();
    let Part::Member(member) = part() else { return None };
    match ROW.get().checked_sub(1) {
        None => member.enter(),
        // A thread that was stopped while it ran has lost its turn.
        Some(row) if member.world.running() != Some(row) => member.await_turn(row),
        Some(_) => {}
    }
    drop(within);
    Some(member)
}

/// While it lives, interposed calls of this thread go to the C library.
struct Within(bool);

impl Within {
    fn enter() -> Self {
        Self(WITHIN.replace(true))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(self.0);
    }
}

impl Member {
    /// The time for this thread, in nanoseconds. Repeated reads advance it.
    pub fn read(&self) -> u64 {
        if self.is_crowded() {
            let _within = Within::enter();
            let until = self.world.now() + NUDGE;
            self.pass_until(&Wait { until, keys: &[], bitset: 0 }, 0);
        }
        EPOCH + self.world.now()
    }

    /// Lets others run until a time, or until one of the words is woken.
    ///
    /// The time is as programs see it, [`NEVER`] for none.
    pub fn wait(&self, until: u64, keys: &[Key], bitset: u32) -> Woken {
        let _within = Within::enter();
        let mut until = if until == NEVER { NEVER } else { until.saturating_sub(EPOCH) };
        if self.is_crowded() {
            until = until.max(self.world.now() + NUDGE);
        }
        self.pass_until(&Wait { until, keys, bitset }, self.late)
    }

    /// Counts an event of this thread; returns whether there were too many at this instant.
    fn is_crowded(&self) -> bool {
        let now = self.world.now();
        let (instant, count) = EVENTS.get();
        let count = if instant == now { count + 1 } else { 1 };
        EVENTS.set((now, count));
        count > PATIENCE
    }

    fn pass_until(&self, wait: &Wait, late: u64) -> Woken {
        let row = ROW.get() - 1;
        let mut table = self.lock_in_turn(row);
        table.row_mut(row).late = late;
        table.wait(row, wait, self.world.now());
        if table.pass() == Some(row) {
            table.keep(row);
        } else {
            drop(table);
            self.await_turn(row);
            table = self.world.lock();
        }
        table.woken(row)
    }

    /// Wakes at most so many threads that wait for the word; returns their number.
    pub fn wake(&self, key: Key, count: usize, bitset: u32) -> usize {
        let _within = Within::enter();
        let now = self.world.now();
        self.world.lock().wake(key, count, bitset, now)
    }

    /// Adds a row for a thread of this process that is about to start; returns it.
    pub fn expect_thread(&self) -> usize {
        let _within = Within::enter();
        self.new_row(&mut self.world.lock(), raw::process_id(), Self::next_order())
    }

    /// Records the thread of a row.
    pub fn name_thread(&self, row: usize, thread: libc::pthread_t) {
        let _within = Within::enter();
        self.world.lock().row_mut(row).thread = thread;
    }

    /// Frees a row whose thread could not be started.
    pub fn forget(&self, row: usize) {
        let _within = Within::enter();
        self.world.lock().leave(row);
    }

    /// Enters the calling thread with the row that was added for it; returns when it has the turn.
    pub fn begin_thread(&self, row: usize) {
        let _within = Within::enter();
        self.identify(&mut self.world.lock(), row);
        self.await_turn(row);
    }

    /// Returns when the thread has left the world.
    pub fn await_thread(&self, thread: libc::pthread_t) {
        let key = thread_key(thread);
        loop {
            let within = Within::enter();
            let table = self.world.lock();
            let pid = raw::process_id();
            let mut rows = table.taken().into_iter().map(|index| *table.row(index));
            let lives = rows.any(|row| row.pid == pid && row.thread == thread);
            drop(table);
            drop(within);
            if !lives {
                return;
            }
            self.wait(NEVER, &[key], u32::MAX);
        }
    }

    /// Adds a row for a child process that is about to be forked; returns it.
    pub fn expect_child(&self) -> usize {
        let _within = Within::enter();
        let mut table = self.world.lock();
        let position = table.arrive();
        self.new_row(&mut table, 0, position << 32)
    }

    /// The parent's part of a fork: records the child's number.
    pub fn name_child(&self, row: usize, pid: u32) {
        let _within = Within::enter();
        self.world.lock().row_mut(row).pid = pid;
    }

    /// The child's part of a fork; returns when it has the turn.
    pub fn begin_child(&self, row: usize) {
        let within = Within::enter();
        let mut table = self.world.lock();
        let order = table.row(row).order;
        table.row_mut(row).pid = raw::process_id();
        drop(table);
        drop(within);
        POSITION.store(order, Ordering::Relaxed);
        BORN.store(1, Ordering::Relaxed);
        self.begin_thread(row);
    }

    /// Runs a function with the locked table, so that no thread is in the middle of a wait.
    pub fn with_table<T>(&self, act: impl FnOnce(&mut Guard) -> T) -> T {
        let _within = Within::enter();
        act(&mut self.world.lock())
    }

    /// Enters a thread without a row: a process's first, or one that was created without an
    /// interposed call.
    fn enter(&self) {
        let pid = raw::process_id();
        let mut table = self.world.lock();
        let before = table.taken().into_iter().filter(|row| table.row(*row).pid == pid);
        let before: Vec<usize> = before.collect();
        let is_first = BORN.load(Ordering::Relaxed) == 0;
        if is_first && !before.is_empty() {
            return self.continue_after_exec(table, &before);
        }
        if is_first {
            let position = self.position.unwrap_or_else(|| table.arrive());
            POSITION.store(position << 32, Ordering::Relaxed);
        }
        let row = self.new_row(&mut table, pid, Self::next_order());
        self.identify(&mut table, row);
        if is_first {
            table.joined += 1;
            if table.joined >= self.expect {
                table.begun = 1;
            }
        }
        if table.begun == 1 && self.world.running().is_none() {
            table.pass();
        }
        drop(table);
        self.await_turn(row);
    }

    /// Takes over the turn of the program that ran in this process before `exec`. Its other threads
    /// have ended.
    fn continue_after_exec(&self, mut table: Guard, before: &[usize]) {
        let running = self.world.running();
        let kept = before.iter().find(|row| Some(**row) == running).unwrap_or(&before[0]);
        for row in before.iter().filter(|row| *row != kept) {
            table.leave(*row);
        }
        POSITION.store(table.row(*kept).order, Ordering::Relaxed);
        BORN.store(1, Ordering::Relaxed);
        self.identify(&mut table, *kept);
        drop(table);
        if running != Some(*kept) {
            self.await_turn(*kept);
        }
    }

    fn next_order() -> u64 {
        POSITION.load(Ordering::Relaxed) + u64::from(BORN.fetch_add(1, Ordering::Relaxed))
    }

    fn new_row(&self, table: &mut Guard, pid: u32, order: u64) -> usize {
        let now = self.world.now();
        table.join(pid, 0, order, self.late, now).unwrap_or_else(|| {
            eprintln!("stub-clock: no room for another thread");
            std::process::abort()
        })
    }

    fn identify(&self, table: &mut Guard, index: usize) {
        let (pid, tid) = (raw::process_id(), raw::thread_id());
        let row = table.row_mut(index);
        (row.pid, row.tid, row.started) = (pid, tid, alive::started(pid, tid));
        // SAFETY: both calls concern the calling thread alone; the value only has to be non-null.
        unsafe {
            row.thread = libc::pthread_self();
            libc::pthread_setspecific(self.end, std::ptr::without_provenance(1));
        }
        ROW.set(index + 1);
    }

    fn await_turn(&self, row: usize) {
        self.world.await_turn(row, || self.look_after(row));
    }

    fn lock_in_turn(&self, row: usize) -> Guard<'_> {
        self.world.lock_in_turn(row, || self.look_after(row))
    }

    /// Checks the running thread's state, while a thread of this process waits for the turn.
    fn look_after(&self, row: usize) {
        let mut table = self.world.lock();
        // A process that runs this code can no longer be stopped.
        if table.row(row).stopped != 0 {
            table.mark(raw::process_id(), false);
        }
        table.look_after();
    }
}

/// The word for a thread's end.
fn thread_key(thread: libc::pthread_t) -> Key {
    Key { space: u64::from(raw::process_id()) << 1 | 1, offset: thread }
}

/// How often this destructor is deferred, so that other destructors run first.
const LAST_ROUND: usize = 3;

/// Ends a thread and passes on the turn. Later work of the C library for the thread takes no part
/// in the virtual time.
extern "C" fn at_thread_end(round: *mut c_void) {
    WITHIN.set(true);
    let (Part::Member(member), Some(row)) = (part(), ROW.get().checked_sub(1)) else { return };
    if round.addr() < LAST_ROUND {
        let next = std::ptr::without_provenance::<c_void>(round.addr() + 1);
        // SAFETY: as in `identify`.
        unsafe { libc::pthread_setspecific(member.end, next) };
        WITHIN.set(false);
        return;
    }
    // SAFETY: concerns the calling thread alone.
    let key = thread_key(unsafe { libc::pthread_self() });
    let mut table = member.lock_in_turn(row);
    table.wake(key, usize::MAX, u32::MAX, member.world.now());
    table.leave(row);
    table.pass();
    ROW.set(0);
}
