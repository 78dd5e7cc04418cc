//! What a process answers to a grant: what it has on the card, and the turn that it had seen.
//!
//! The answer stands in the account, `turn << 32 | state` in one word. Whoever says it, whoever reads it
//! there and whoever decides by it knows it from here.

/// What a process has on a card.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeState {
    /// Nothing in flight, and nothing asked for. A thread may wait all the same, in a turn of its own:
    /// for its own bucket, which no grant fills.
    #[default]
    Idle = 0,
    /// A thread waits to launch, for a turn or, without turns, for its own bucket. Nothing is in flight,
    /// or what is has not ended for so long that it may wait for that very launch.
    Wants = 1,
    /// Work may be in flight; the last may just have ended.
    Runs = 2,
}

impl ComputeState {
    /// The word of a process that has seen `turn`.
    #[inline]
    pub fn to_word(self, turn: u32) -> u64 {
        u64::from(turn) << 32 | self as u64
    }

    /// The turn and the state in a word. A state that there is none of is read as idle: it asks for
    /// nothing, and nobody shall wait for a liar.
    #[inline]
    pub fn from_word(word: u64) -> (u32, Self) {
        let state = match word as u32 {
            1 => Self::Wants,
            2 => Self::Runs,
            _ => Self::Idle,
        };
        ((word >> 32) as u32, state)
    }
}

#[cfg(test)]
mod tests {
    use super::ComputeState::{self, Idle, Runs, Wants};

    #[test]
    fn a_word_says_the_turn_and_the_state_that_were_put_in() {
        for turn in [0, 1, 7, u32::MAX] {
            for state in [Idle, Wants, Runs] {
                assert_eq!(ComputeState::from_word(state.to_word(turn)), (turn, state));
            }
        }
        assert_eq!(Runs.to_word(7), 0x0000_0007_0000_0002);
    }

    #[test]
    fn who_says_what_there_is_none_of_is_idle() {
        for unknown in [3, 4, 0x8000_0001, u32::MAX] {
            assert_eq!(ComputeState::from_word(9 << 32 | u64::from(unknown)), (9, Idle));
        }
    }
}
