//! The coordinator: one process per runtime directory that leases the cards to slices.
//!
//! If slices share the time of a card, a launch needs admission, and leases must not overlap.
//! So one process per runtime directory reads the accounts of all its slices, calls
//! [`hami_share::lease`] to choose the next leases, and writes the grants into the slices' grants
//! pages. It receives no messages and stores nothing of its own. It can be killed at any instant:
//! the files contain all that the next coordinator needs, and after 50 ms without a pulse each
//! process limits itself.
//!
//! ```text
//! <runtime>/slices/<id>/limits   ─┐
//!                       account  ─┼─► slice ─► View ─► Leases::step ─► Decision ─► grants pages
//!                       grants   ─┘     ▲                                  │
//!                                       └── wait: wake-ups, time ◄─────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | `slices` | the slices of the directory: found, read together, written to |
//! | `slice` | the three files of one slice, mapped |
//! | `guard` | files that are truncated while they are mapped |
//! | `sweep` | which processes' memory the driver still holds: the sweeper's file |
//! | `measure` | what the driver holds for a process beyond what it is charged |
//! | `meter` | the same for one slice without a coordinator |
//! | `departures` | when a process was alive, and when its death was noticed |
//! | `wait` | waiting for any of many wake-up words; the clock |
//!
//! The coordinator sleeps until a wake-up word is signalled, until the next decision is due, or
//! until the next tick. At a tick it writes its pulse, looks for new and removed slices, and probes
//! processes that may have died. It ticks every 10 ms while launches need admission, otherwise
//! every 40 ms while a sweeper runs, otherwise every 100 ms.
//!
//! # Departures
//!
//! In a container the library cannot know when the driver has freed the memory of a dead process:
//! NVML uses the host's PIDs. A *sweeper* outside writes NVML's list of processes into the file
//! `<runtime>/sweep` (`sweep`). While that file is fresh, the coordinator probes the processes of
//! all slices every 40 ms. When it has read a new sweep, it writes into the grants pages which dead
//! processes' memory is free, and then the time of the sweep.
//!
//! The memory of a dead process is free if a sweep does not list the process and started after its
//! death was noticed. Two cases are special:
//!
//! * The sweeper may list a process that it has never seen alive, so it cannot identify it. Such an
//!   entry counts for every dead process, except those that were still alive after the coordinator
//!   had first read the entry.
//! * A listed process may still run, although its slot has no lock: it has called exec. Then its
//!   memory counts as free 750 ms after the old program's death was noticed.
//!
//! # Trust
//!
//! The coordinator trusts no account: the programs of a slice write it and may truncate it. A slice
//! with a truncated file gets no more leases, so it cannot launch; other slices are not affected.
//! One thread does all the work. It waits and reads the time through libc only, so that tests can
//! replace the clock.
//!
//! `hami_py/coordinator` runs this crate in a process of its own. The first slice with a share
//! starts that process, and `hami run` restarts it within a second if it is killed.

mod departures;
#[cfg(test)]
mod fuzz;
mod guard;
mod measure;
mod meter;
mod slice;
mod slices;
mod sweep;
mod wait;

pub use crate::meter::Meter;

use crate::guard::Handler;
use crate::slice::Scope;
use crate::slices::Slices;
use crate::sweep::SweepFile;
use crate::wait::{Waiting, now};
use hami_share::lease::{Leases, View};
use hami_share::timing;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Lets the kernel kill this process when the thread that started it ends.
///
/// # Errors
/// It has ended already.
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: it takes two numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if std::os::unix::process::parent_id() == parent {
        Ok(())
    } else {
        Err(io::Error::other("the process that started the coordinator has ended"))
    }
}

/// Leases the cards to the slices under `<runtime>/slices`. Returns when there has been no slice for
/// the time `linger`.
///
/// It runs on the calling thread, and installs a handler for SIGBUS for that time. The caller makes
/// sure that only one process at a time does this for a runtime directory.
///
/// # Errors
/// The runtime directory cannot be read, or the handler cannot be installed.
pub fn coordinate(runtime: &Path, linger: Duration) -> io::Result<()> {
    let mut slices = Slices::new(runtime)?;
    let mut sweeps = SweepFile::new(runtime);
    let _handler = Handler::install()?;
    let linger_ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
    let mut leases = Leases::new();
    let mut view = View::default();
    let mut waiting = Waiting::new();
    let (mut last_tick, mut last_scan, mut last_full_probe) = (None, None, None);
    let mut empty_since = None;
    loop {
        let begin = now();
        if is_due(last_tick, tick_ns(&slices, &sweeps, begin), begin) {
            last_tick = Some(begin);
            slices.pulse(begin);
            if is_due(last_scan, timing::SCAN, begin) || slices.may_have_changed() {
                last_scan = Some(begin);
                slices.scan();
            }
            let is_new = sweeps.read();
            let sweep = sweeps.fresh(begin);
            let (all, every) = match sweep {
                Some(_) => (Scope::All, timing::SWEPT_TICK),
                None => (Scope::WithShare, timing::IDLE_TICK),
            };
            if is_due(last_full_probe, every, begin) {
                last_full_probe = Some(begin);
                slices.probe(all);
            } else {
                slices.probe(Scope::WaitedFor);
            }
            // An older sweep shows nothing of a death that was noticed since.
            if let Some(sweep) = sweep.filter(|_| is_new) {
                slices.publish_sweep(sweep, begin);
            }
            slices.reset_wakes();
            empty_since = if slices.found_any() { None } else { empty_since.or(Some(begin)) };
            if empty_since.is_some_and(|since| begin - since >= linger_ns) {
                return Ok(());
            }
        }
        slices.read(&mut view);
        let decision = leases.step(begin, &view);
        slices.publish(&decision, begin);

        let tick = last_tick.unwrap_or(begin) + tick_ns(&slices, &sweeps, begin);
        let until = decision.wake_at.map_or(tick, |wake_at| wake_at.min(tick));
        let until = empty_since.map_or(until, |since| until.min(since.saturating_add(linger_ns)));
        waiting.wait(slices.wake_words(), until);
    }
}

/// Whether something that is done this often is due.
fn is_due(last: Option<u64>, every_ns: u64, now: u64) -> bool {
    last.is_none_or(|last| now >= last + every_ns)
}

fn tick_ns(slices: &Slices, sweeps: &SweepFile, now: u64) -> u64 {
    if slices.any_regulated() {
        timing::BUSY_TICK
    } else if sweeps.fresh(now).is_some() {
        timing::SWEPT_TICK
    } else {
        timing::IDLE_TICK
    }
}
