//! The words that the limits page and the grants page carry.

/// What becomes of time that a share leaves unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stays unused: the share is a ceiling.
    #[default]
    Hard,
    /// It is lent: the share is a weight among those who want the card.
    Soft,
}

/// Who goes first when several slices want a card.
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

/// Who may launch now on a slice's card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The grant's number, one more with each change.
    pub turn: u32,
    /// What it allows.
    pub kind: Kind,
    /// Whom it allows it.
    pub holder: Holder,
    /// The end of a turn.
    pub until: u64,
}

/// What a grant allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nobody coordinates here: every process keeps its own bucket.
    #[default]
    Own,
    /// The holder may launch as its own bucket allows.
    Alone,
    /// Only the holder may launch, until the turn's end.
    Turn,
}

/// Whom a grant means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// No process of the slice.
    #[default]
    Nobody,
    /// The process in this slot of the account.
    Slot(u16),
    /// Every process of the slice.
    Everyone,
}
