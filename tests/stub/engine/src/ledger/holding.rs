//! What somebody holds of one card, kind by kind.

/// What a charge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the card that the program asked for.
    Requested,
    /// Bytes that the driver takes because a context exists.
    Context,
    /// Managed bytes that the program asked for: requested, but not the card's.
    Managed,
}

impl Kind {
    /// The kind of this number on the wire.
    pub fn from_wire(number: u32) -> Option<Self> {
        [Self::Requested, Self::Context, Self::Managed].get(number as usize).copied()
    }
}

/// A quantity and the most it has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub now: u64,
    /// The most since the start or the last [`Level::forget_peak`].
    pub peak: u64,
}

impl Level {
    /// More of it.
    #[inline]
    pub fn add(&mut self, amount: u64) {
        self.now += amount;
        self.peak = self.peak.max(self.now);
    }

    /// First more, then less of it: at no instant is there as much as in between.
    pub fn change(&mut self, more: u64, less: u64) {
        self.now = self.now + more - less;
        self.peak = self.peak.max(self.now);
    }

    /// Lets the peak start again from now.
    pub fn forget_peak(&mut self) {
        self.peak = self.now;
    }
}

/// What one client, one group or all of them hold of one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes programs asked for, of whatever kind: linear, managed, from pools.
    pub requested: Level,
    /// Bytes that memory pools have reserved and no allocation lives in.
    pub cached: Level,
    /// `requested` and `cached` together.
    pub held: Level,
    /// The managed part of `requested`.
    pub managed: u64,
    /// Bytes of contexts.
    pub context: Level,
    /// Live allocations.
    pub allocations: u64,
}

impl Holding {
    /// Bytes of the card in use, of whatever kind.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.held.now - self.managed + self.context.now
    }

    /// No fewer bytes of the card than were ever in use at once.
    pub fn bytes_peak(&self) -> u64 {
        (self.held.peak - self.managed + self.context.peak).max(self.bytes())
    }

    /// Lets every peak start again from now.
    pub fn forget_peaks(&mut self) {
        for level in [&mut self.requested, &mut self.cached, &mut self.held, &mut self.context] {
            level.forget_peak();
        }
    }

    /// Whether one charge of these bytes can be taken back.
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

    /// A pool grows by `room`, and `bytes` of what it has come to live.
    #[inline]
    pub(super) fn add_pooled(&mut self, room: u64, bytes: u64) {
        self.requested.add(bytes);
        self.cached.change(room, bytes);
        self.held.add(room);
        self.allocations += 1;
    }

    /// `bytes` of a pool live no more, and it gives back `room`.
    #[inline]
    pub(super) fn take_pooled(&mut self, bytes: u64, room: u64) {
        self.requested.now -= bytes;
        self.cached.change(bytes, room);
        self.held.now -= room;
        self.allocations -= u64::from(bytes > 0);
    }

    /// Takes away all that `other` holds of it.
    pub(super) fn take_all(&mut self, other: &Self) {
        self.requested.now -= other.requested.now;
        self.cached.now -= other.cached.now;
        self.held.now -= other.held.now;
        self.managed -= other.managed;
        self.context.now -= other.context.now;
        self.allocations -= other.allocations;
    }
}
