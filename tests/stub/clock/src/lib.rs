//! `libstub-clock.so`: one virtual time for a whole group of real processes.
//!
//! Time that is measured on a busy machine is never the same twice, and what a compute limiter does
//! in a minute takes a minute. This library is preloaded into every program of a test's world, last
//! in the list, and answers their questions for the time from one shared file. Of all their threads
//! exactly one runs at a time; when it sleeps or waits, the next one runs, and when none is ready,
//! time jumps to where the first of them wakes. So computing takes no time, waiting takes exactly as
//! long as asked, and a run is the same each time.
//!
//! | module | what it does |
//! |---|---|
//! | [`table`] | the rule: who runs next, and when; pure |
//! | [`world`] | the shared file, its lock, handing over the turn, noticing who was killed |
//! | [`member`] | this process's and each thread's part in it |
//! | [`time`], [`futex`], [`locks`], [`processes`] | what is interposed |
//! | [`keys`] | which word an address is, for all processes |
//! | [`settings`] | the variables |
//!
//! A thread that is in any other system call counts as running: the others wait for it. So requests
//! to the stub's server take no time, and reading from an idle pipe stops the world.
//!
//! Not virtual: the time of day, `poll`, `select` and `epoll` with a timeout, timers, waiting for a
//! child, read-write locks, `pthread_mutex_timedlock`, and glibc's locks of its own.

// The library's own tests must not be run under it: there nothing is exported, and so not used.
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
