//! `libstub-clock.so`: one virtual time for a whole group of real processes.
//!
//! On a busy machine measured times differ from run to run, and a test of one minute of a compute
//! limiter takes a minute. This library is preloaded into every program of a test's world, last in
//! the list, and all of them read the time of one shared file. Exactly one of their threads runs at
//! a time. When it sleeps or waits, the next one runs; when none is ready, the time jumps to the
//! first wake-up. So computing takes no time, a wait takes exactly as long as requested, and each
//! run is the same.
//!
//! | module | what it does |
//! |---|---|
//! | [`table`] | the rule which thread runs next, and when; pure |
//! | [`world`] | the shared file, its lock, passing the turn, detecting killed processes |
//! | [`member`] | this process's and each thread's part in it |
//! | [`time`], [`futex`], [`locks`], [`processes`] | what is interposed |
//! | [`keys`] | the identity of a word for all processes |
//! | [`settings`] | the variables |
//!
//! A thread that is in any other system call counts as running: the others wait for it. So requests
//! to the stub's server take no time, and reading from an idle pipe stops the world.
//!
//! Not virtual: the time of day, `poll`, `select` and `epoll` with a timeout, timers, waits for a
//! child, read-write locks, `pthread_mutex_timedlock`, and glibc's internal locks.

// The library's own tests must not run under it, so there nothing is exported, and much is unused.
#![cfg_attr(test, allow(dead_code))]

mod alive;
mod futex;
mod keys;
mod locks;
mod member;
mod processes;
mod raw;
mod settings;
mod table;
mod time;
mod world;
