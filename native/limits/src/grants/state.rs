//! The state with which a process answers a grant.
//!
//! It stands in the account as one word, `turn << 32 | state`, where `turn` is the grant that the
//! process had seen. The interposer writes it, the coordinator reads it, and both use this type.

/// A process's work on a card.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeState {
    /// Nothing is in flight, and no permission is requested. A thread may still wait for the
    /// process's own bucket during a turn of the process, because no grant fills that bucket.
    #[default]
    Idle = 0,
    /// A thread waits to launch, for a turn or, without turns, for the process's own bucket.
    /// Nothing is in flight, or the work in flight has not ended for so long that it may wait for
    /// that launch.
    Waiting = 1,
    /// Work may be in flight; the last may have just ended.
    Running = 2,
}

impl ComputeState {
    /// The word of a process that has seen `turn`.
    #[inline]
    pub fn to_word(self, turn: u32) -> u64 {
        u64::from(turn) << 32 | self as u64
    }

    /// The turn and the state in a word. An unknown state is read as idle, so that no process waits
    /// for another that writes invalid words.
    #[inline]
    pub fn from_word(word: u64) -> (u32, Self) {
        let state = match word as u32 {
            1 => Self::Waiting,
            2 => Self::Running,
            _ => Self::Idle,
        };
        ((word >> 32) as u32, state)
    }
}

#[cfg(test)]
mod tests {
    use super::ComputeState::{self, Idle, Running, Waiting};

    #[test]
    fn a_word_holds_the_turn_and_the_state() {
        for turn in [0, 1, 7, u32::MAX] {
            for state in [Idle, Waiting, Running] {
                assert_eq!(ComputeState::from_word(state.to_word(turn)), (turn, state));
            }
        }
        assert_eq!(Running.to_word(7), 0x0000_0007_0000_0002);
    }

    #[test]
    fn an_unknown_state_is_idle() {
        for unknown in [3, 4, 0x8000_0001, u32::MAX] {
            assert_eq!(ComputeState::from_word(9 << 32 | u64::from(unknown)), (9, Idle));
        }
    }
}
