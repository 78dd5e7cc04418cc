//! The times that the coordinator knows of a process: when it was last seen alive, and when its
//! death was noticed.

use hami_account::ProcessIdentity;

/// The life of a process in a slot of an account. Times are ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub process: ProcessIdentity,
    pub joined_at: u64,
    /// A time at which the process was certainly alive. The last probe that found its lock held is
    /// no proof, because a process that reaps a dead one also holds that lock for a moment. So this
    /// is the time of the probe before that one.
    pub alive_at: u64,
    /// When the last probe that found the lock held began.
    probed_at: u64,
    /// When the first probe that found the process dead had ended.
    pub dead_since: Option<u64>,
}

impl Life {
    pub fn new(process: ProcessIdentity, joined_at: u64) -> Self {
        Self { process, joined_at, alive_at: joined_at, probed_at: joined_at, dead_since: None }
    }

    /// Whether both are the same process, running the same program.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.process, self.joined_at) == (other.process, other.joined_at)
    }

    /// Stores the result of a probe that took place between these times. A dead process stays dead.
    pub fn probed(&mut self, is_dead: bool, begin: u64, end: u64) {
        if is_dead {
            self.dead_since.get_or_insert(end);
        } else if self.dead_since.is_none() {
            (self.alive_at, self.probed_at) = (self.probed_at, begin);
        }
    }
}
