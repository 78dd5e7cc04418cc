//! The loop: look, decide, publish, wait.

use crate::guard::Handler;
use crate::slices::Slices;
use crate::wait::{Waiting, now};
use hami_share::turns::{Turns, View};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often to look for new slices, at those who have died, and to give a sign of life, while
/// processes wait for grants. A fifth of the silence after which they do without.
const BUSY_TICK_NS: u64 = 10_000_000;
/// How often to look for slices while nobody waits for anything, and at those who do nothing.
const IDLE_TICK_NS: u64 = 100_000_000;

/// Hands out turns to the slices under `<runtime>/slices`, until there has been none for `linger`.
///
/// It works on the calling thread, and while it works SIGBUS has a handler of its own. One process at
/// a time may do this for a runtime directory; that is the caller's to see to.
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
    let (mut last_tick, mut last_roll_call, mut empty_since) = (None, None, None);
    loop {
        let begin = now();
        let tick_ns = if slices.any_asks() { BUSY_TICK_NS } else { IDLE_TICK_NS };
        if last_tick.is_none_or(|last: u64| begin >= last + tick_ns) {
            last_tick = Some(begin);
            slices.pulse(begin);
            slices.look();
            let all = last_roll_call.is_none_or(|last| begin >= last + IDLE_TICK_NS);
            last_roll_call = if all { Some(begin) } else { last_roll_call };
            slices.probe(all);
            slices.listen();
            empty_since = if slices.found_any() { None } else { empty_since.or(Some(begin)) };
            if empty_since.is_some_and(|since| begin - since >= linger_ns) {
                return Ok(());
            }
        }
        slices.read(&mut view);
        let decision = turns.step(begin, &view);
        slices.publish(&decision, begin);

        let tick_ns = if slices.any_asks() { BUSY_TICK_NS } else { IDLE_TICK_NS };
        let tick = last_tick.unwrap_or(begin) + tick_ns;
        let until = decision.wake_at.map_or(tick, |wake_at| wake_at.min(tick));
        let until = empty_since.map_or(until, |since| until.min(since.saturating_add(linger_ns)));
        waiting.wait(slices.bells(), until);
    }
}
