//! Whether a thread still exists, from `/proc`.
//!
//! The library reads it only when the running thread has not passed on the turn for a while, and
//! around signals.

use std::fs;

/// The state of a thread in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Lives,
    /// Stopped by a signal.
    Stopped,
    /// Ended, or only waiting to be reaped.
    Dead,
}

/// The state letter and the start time in ticks, from a line of `/proc/…/stat`.
fn parse(stat: &str) -> Option<(char, u64)> {
    // The name before them may contain any characters; the closing parenthesis is the last one.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn stat(pid: u32, tid: u32) -> Option<(char, u64)> {
    parse(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?)
}

/// When the kernel started a thread; 0 if it has ended.
pub fn started(pid: u32, tid: u32) -> u64 {
    stat(pid, tid).map_or(0, |(_, started)| started)
}

/// The state of the thread that was started at `started`.
pub fn look(pid: u32, tid: u32, started: u64) -> Life {
    match stat(pid, tid) {
        Some((_, other)) if other != started => Life::Dead,
        None | Some(('Z' | 'X' | 'x', _)) => Life::Dead,
        Some(('T' | 't', _)) => Life::Stopped,
        Some(_) => Life::Lives,
    }
}

/// Whether all threads of a process have ended.
pub fn is_dead(pid: u32) -> bool {
    each(pid, |state| matches!(state, 'Z' | 'X' | 'x'))
}

/// Whether a signal has stopped all threads of a process.
pub fn is_stopped(pid: u32) -> bool {
    each(pid, |state| matches!(state, 'T' | 't' | 'Z' | 'X' | 'x'))
}

fn each(pid: u32, holds: impl Fn(char) -> bool) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let names = tasks.flatten().map(|task| task.file_name());
    names.filter_map(|name| stat(pid, name.to_str()?.parse().ok()?)).all(|(state, _)| holds(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        let line = "12 (a) Z (b) R 1 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 5551 8 9";
        assert_eq!(parse(line), Some(('R', 5551)));
        assert_eq!(parse("12 (cut off"), None);
    }

    #[test]
    fn this_thread_lives_and_another_of_its_number_does_not() {
        let (pid, tid) = (crate::raw::process_id(), crate::raw::thread_id());
        let start = started(pid, tid);
        assert_ne!(start, 0);
        assert_eq!(look(pid, tid, start), Life::Lives);
        assert_eq!(look(pid, tid, start + 1), Life::Dead);
        assert!(!is_dead(pid) && !is_stopped(pid));
    }
}
