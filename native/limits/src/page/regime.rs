//! How a slice shares a card's time: the eight bytes that say so.

/// What becomes of time that a share leaves unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stays unused: the share is a ceiling.
    #[default]
    Hard,
    /// It is lent: the share is a weight among those who want the card.
    Soft,
}

/// Who goes first when several slices want a card. The shares hold within each priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// After all others.
    Low = -1,
    /// The usual one.
    #[default]
    Normal = 0,
    /// Before all others.
    High = 1,
}

/// How a slice shares one card's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regime {
    /// Percent of the card's time, 1 to 100; 0 is no limit, as 100 is.
    pub share: u32,
    /// What becomes of time that the share leaves unused.
    pub mode: Mode,
    /// Who goes first.
    pub priority: Priority,
}

impl Regime {
    /// As the page has it.
    pub(super) fn encode(self) -> [u8; 8] {
        let [a, b, c, d] = self.share.to_le_bytes();
        [a, b, c, d, self.mode as u8, self.priority as i8 as u8, 0, 0]
    }

    /// `None` for bytes that no writer writes, but for the share: the rows' check is the one for it.
    pub(super) fn decode(bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, mode, priority, 0, 0] = bytes else { return None };
        let share = u32::from_le_bytes([a, b, c, d]);
        let mode = match mode {
            0 => Mode::Hard,
            1 => Mode::Soft,
            _ => return None,
        };
        let priority = match priority as i8 {
            -1 => Priority::Low,
            0 => Priority::Normal,
            1 => Priority::High,
            _ => return None,
        };
        Some(Self { share, mode, priority })
    }
}
