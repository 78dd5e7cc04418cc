//! The coordinator: one process per runtime directory that grants turns on the cards.
//!
//! If slices share a card by time, a launch needs permission, and permissions must not overlap. So one
//! process per runtime directory reads what the processes of all its slices have stored in their accounts,
//! calls [`hami_share::turns`] to choose the next one, and writes the grants into the slices' grants pages. It
//! receives no messages and stores nothing of its own: if it is killed at any instant, the files hold all
//! that the next one needs, and after 50 ms without a pulse each process limits itself.
//!
//! ```text
//! <runtime>/slices/<id>/limits   ─┐
//!                       account  ─┼─► slice ─► View ─► Turns::step ─► Decision ─► grants pages
//!                       grants   ─┘     ▲                                 │
//!                                       └── wait: wake-ups, time ◄────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | `slices` | the slices of the directory: found, read together, written to |
//! | `slice` | the three files of one slice, mapped |
//! | `guard` | files that are truncated while they are mapped |
//! | `wait` | waiting for any of many wake-up words; the clock |
//!
//! The coordinator sleeps until a wake-up word is signalled, until the next decision is due, or until the
//! next tick. At a tick it writes its pulse, looks for new and removed slices, and probes processes that
//! may have died: every 10 ms while launches need permission, otherwise every 100 ms.
//!
//! It trusts no account: the programs of a slice write it and may truncate it. A slice with a truncated
//! file gets no turns any more, so it does not launch; other slices are not affected. One thread does all
//! the work, and all its waits and clocks are libc's, so that tests can replace the clock.
//!
//! `hami_py/coordinator` runs this crate in a process of its own. The first slice with a share starts that
//! process, and `hami run` restarts it within a second if it is killed.

mod guard;
mod slice;
mod slices;
mod wait;

use crate::guard::Handler;
use crate::slices::Slices;
use crate::wait::{Waiting, now};
use hami_share::turns::{Turns, View};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often to write the pulse, look for slices, and probe processes with work, while launches need
/// permission. It is a fifth of the age at which a pulse is too old.
const BUSY_TICK_NS: u64 = 10_000_000;
/// How often to look for slices while no launch needs permission, and to probe all processes.
const IDLE_TICK_NS: u64 = 100_000_000;

/// Grants turns to the slices under `<runtime>/slices`, until there has been none for `linger`.
///
/// It runs on the calling thread, and installs a handler for SIGBUS for that time. The caller makes sure
/// that only one process at a time does this for a runtime directory.
///
/// # Errors
/// The runtime directory cannot be read, or the handler cannot be installed.
pub fn coordinate(runtime: &Path, linger: Duration) -> io::Result<()> {
    let mut slices = Slices::new(runtime)?;
    let _handler = Handler::install()?;
    let linger_ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
    let mut turns = Turns::new();
    let mut view = View::default();
    let mut waiting = Waiting::new();
    let (mut last_tick, mut last_full_probe, mut empty_since) = (None, None, None);
    loop {
        let begin = now();
        let tick_ns = if slices.any_regulated() { BUSY_TICK_NS } else { IDLE_TICK_NS };
        if last_tick.is_none_or(|last: u64| begin >= last + tick_ns) {
            last_tick = Some(begin);
            slices.pulse(begin);
            slices.scan();
            let all = last_full_probe.is_none_or(|last| begin >= last + IDLE_TICK_NS);
            last_full_probe = if all { Some(begin) } else { last_full_probe };
            slices.probe(all);
            slices.reset_wakes();
            empty_since = if slices.found_any() { None } else { empty_since.or(Some(begin)) };
            if empty_since.is_some_and(|since| begin - since >= linger_ns) {
                return Ok(());
            }
        }
        slices.read(&mut view);
        let decision = turns.step(begin, &view);
        slices.publish(&decision, begin);

        let tick_ns = if slices.any_regulated() { BUSY_TICK_NS } else { IDLE_TICK_NS };
        let tick = last_tick.unwrap_or(begin) + tick_ns;
        let until = decision.wake_at.map_or(tick, |wake_at| wake_at.min(tick));
        let until = empty_since.map_or(until, |since| until.min(since.saturating_add(linger_ns)));
        waiting.wait(slices.wake_words(), until);
    }
}
