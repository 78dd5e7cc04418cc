//! The memory of one card that one client, one group, or all of them hold.

/// The purpose of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the card that the program has requested.
    Requested,
    /// Bytes that the driver takes for a context.
    Context,
    /// Managed bytes that the program has requested; they are not on the card.
    Managed,
}

impl Kind {
    /// The kind of this number on the wire.
    pub fn from_wire(number: u32) -> Option<Self> {
        [Self::Requested, Self::Context, Self::Managed].get(number as usize).copied()
    }
}

/// A quantity and its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub now: u64,
    /// The largest value since the start or the last [`Level::reset_peak`].
    pub peak: u64,
}

impl Level {
    /// Increases it.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.now += amount;
        self.peak = self.peak.max(self.now);
    }

    /// Increases and decreases it at one instant, so that the sum in between does not count for the
    /// peak.
    pub fn change(&mut self, more: u64, less: u64) {
        self.now = self.now + more - less;
        self.peak = self.peak.max(self.now);
    }

    /// Sets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.now;
    }
}

/// The memory of one card that one client, one group or all of them hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Requested bytes of every kind: linear, managed, from pools.
    pub requested: Level,
    /// Bytes that memory pools have reserved and that no allocation uses.
    pub cached: Level,
    /// `requested` and `cached` together.
    pub held: Level,
    /// The managed part of `requested`.
    pub managed: u64,
    /// Bytes of contexts.
    pub context: Level,
    /// `requested` and `context` together.
    pub occupied: Level,
    /// Live allocations.
    pub allocations: u64,
}

impl Holding {
    /// Bytes of the card in use, of every kind.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.held.now - self.managed + self.context.now
    }

    /// An upper bound of the bytes of the card that were ever in use at once.
    pub fn bytes_peak(&self) -> u64 {
        (self.held.peak - self.managed + self.context.peak).max(self.bytes())
    }

    /// Sets every peak to the current value.
    pub fn reset_peaks(&mut self) {
        let parts = [&mut self.requested, &mut self.cached, &mut self.held, &mut self.context];
        parts.into_iter().for_each(Level::reset_peak);
        self.occupied.reset_peak();
    }

    /// Whether one charge of these bytes can be released.
    #[inline]
    pub(super) fn holds(&self, kind: Kind, bytes: u64) -> bool {
        match kind {
            Kind::Requested => bytes <= self.requested.now - self.managed && self.allocations > 0,
            Kind::Context => bytes <= self.context.now,
            Kind::Managed => bytes <= self.managed && self.allocations > 0,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, kind: Kind, bytes: u64) {
        self.occupied.add(bytes);
        match kind {
            Kind::Context => self.context.add(bytes),
            Kind::Requested | Kind::Managed => {
                self.requested.add(bytes);
                self.held.add(bytes);
                self.allocations += 1;
                if kind == Kind::Managed {
                    self.managed += bytes;
                }
            }
        }
    }

    #[inline]
    pub(super) fn take(&mut self, kind: Kind, bytes: u64) {
        self.occupied.now -= bytes;
        match kind {
            Kind::Context => self.context.now -= bytes,
            Kind::Requested | Kind::Managed => {
                self.requested.now -= bytes;
                self.held.now -= bytes;
                self.allocations -= 1;
                if kind == Kind::Managed {
                    self.managed -= bytes;
                }
            }
        }
    }

    /// A pool grows by `room`, and `bytes` of it are allocated.
    #[inline]
    pub(super) fn add_pooled(&mut self, room: u64, bytes: u64) {
        self.requested.add(bytes);
        self.cached.change(room, bytes);
        self.held.add(room);
        self.occupied.add(bytes);
        self.allocations += 1;
    }

    /// `bytes` of a pool are freed, and the pool returns `room` to the card.
    #[inline]
    pub(super) fn take_pooled(&mut self, bytes: u64, room: u64) {
        self.requested.now -= bytes;
        self.cached.change(bytes, room);
        self.held.now -= room;
        self.occupied.now -= bytes;
        self.allocations -= u64::from(bytes > 0);
    }

    /// Subtracts all that `other` holds.
    pub(super) fn take_all(&mut self, other: &Self) {
        self.requested.now -= other.requested.now;
        self.cached.now -= other.cached.now;
        self.held.now -= other.held.now;
        self.managed -= other.managed;
        self.context.now -= other.context.now;
        self.occupied.now -= other.occupied.now;
        self.allocations -= other.allocations;
    }
}
