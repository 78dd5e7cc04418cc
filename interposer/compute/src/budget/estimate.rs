//! How long launches are predicted to take, packed into one word so that assembly can subtract it
//! from a budget with one instruction.

/// The estimate for one launch, for a sum of launches, or for a whole budget.
///
/// Predicted nanoseconds are in the upper half. The lower half has the number of launches and,
/// below it, how many of them are *others*: of another kind than the rest of the batch.
///
/// The highest bit of each half is 0. It becomes 1 when more is subtracted than is left, so the
/// wrapper subtracts both halves at once and then looks at two signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate(pub(super) u64);

const NS_SHIFT: u32 = 32;
const LAUNCHES_SHIFT: u32 = 16;
const OTHER: u64 = 1;

impl Estimate {
    /// More than any budget has: for launches that always need admission.
    pub(crate) const UNPAYABLE_NS: u32 = 1 << 22;
    const MOST_LAUNCHES: u32 = 0x7fff;
    const MOST_NS: u32 = 0x7fff_ffff;

    /// One launch that is predicted to take `ns`.
    pub(crate) const fn of_launch(ns: u32) -> Self {
        Self((ns as u64) << NS_SHIFT | 1 << LAUNCHES_SHIFT | OTHER)
    }

    /// A budget for `launches` launches that together are predicted to take `ns`.
    pub(super) fn of_budget(ns: u64, launches: u32) -> Self {
        let ns = ns.min(u64::from(Self::MOST_NS));
        let launches = u64::from(launches.min(Self::MOST_LAUNCHES));
        // The largest possible number of others: no budget has that many launches.
        Self(ns << NS_SHIFT | launches << LAUNCHES_SHIFT | u64::from(u16::MAX))
    }

    /// The same, of the batch's own kind or of another one.
    pub(crate) const fn as_other(self, is_other: bool) -> Self {
        Self(self.0 & !OTHER | is_other as u64)
    }

    #[cfg(test)]
    pub(crate) const fn plus(self, more: Self) -> Self {
        Self(self.0 + more.0)
    }

    /// The predicted nanoseconds.
    pub const fn ns(self) -> u32 {
        (self.0 >> NS_SHIFT) as u32
    }

    /// The number of launches.
    pub const fn launches(self) -> u32 {
        self.0 as u32 >> LAUNCHES_SHIFT
    }

    /// Whether there are launches of another kind.
    pub const fn has_others(self) -> bool {
        self.0 as u16 > 0
    }
}
