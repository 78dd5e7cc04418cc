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
    /// Bytes that the driver takes for modules.
    Module,
    /// Bytes that the driver takes for a context's stacks, heap and printf buffer beyond what the
    /// context has from the start.
    Local,
    /// Bytes that a graph memory pool reserves.
    Graphs,
}

/// The allocations and frees of a graph's launch in their order, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The largest sum of requested bytes on the way, relative to the start.
    pub rise: u64,
    /// The smallest one, as a positive number.
    pub fall: u64,
    /// Requested bytes at the end, relative to the start.
    pub bytes: i64,
    /// Live allocations at the end, relative to the start.
    pub allocations: i64,
}

impl Walk {
    /// Adds an allocation.
    pub fn allocate(&mut self, bytes: u64) {
        self.bytes += bytes as i64;
        self.allocations += 1;
        self.rise = self.rise.max(self.bytes.max(0) as u64);
    }

    /// Adds a free.
    pub fn free(&mut self, bytes: u64) {
        self.bytes -= bytes as i64;
        self.allocations -= 1;
        self.fall = self.fall.max((-self.bytes).max(0) as u64);
    }
}

impl Kind {
    /// The kind of this number on the wire.
    pub fn from_wire(number: u32) -> Option<Self> {
        let kinds = [
            Self::Requested,
            Self::Context,
            Self::Managed,
            Self::Module,
            Self::Local,
            Self::Graphs,
        ];
        kinds.get(number as usize).copied()
    }

    /// Whether a program requests these bytes itself.
    pub fn is_requested(self) -> bool {
        matches!(self, Self::Requested | Self::Managed | Self::Graphs)
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

    /// Changes it by `change`, with `rise` more than now on the way.
    fn pass(&mut self, rise: u64, change: i64) {
        self.peak = self.peak.max(self.now + rise);
        self.now = self.now.saturating_add_signed(change);
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
    /// Bytes of modules.
    pub modules: Level,
    /// Bytes of raised limits: stacks, heaps and printf buffers.
    pub local: Level,
    /// Bytes that allocations take beyond the requested ones.
    pub rounding: Level,
    /// `requested`, and all that the driver takes: `context`, `modules`, `local` and `rounding`.
    pub occupied: Level,
    /// Bytes that graph memory pools have reserved, allocated or not.
    pub graphs: Level,
    /// Live allocations.
    pub allocations: u64,
}

impl Holding {
    /// Bytes of the card in use, of every kind.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.held.now - self.managed + self.driver().map(|level| level.now).iter().sum::<u64>()
    }

    /// What the driver takes.
    fn driver(&self) -> [Level; 4] {
        [self.context, self.modules, self.local, self.rounding]
    }

    /// An upper bound of the bytes of the card that were ever in use at once.
    pub fn bytes_peak(&self) -> u64 {
        let driver: u64 = self.driver().map(|level| level.peak).iter().sum();
        (self.held.peak - self.managed + driver).max(self.bytes())
    }

    /// Sets every peak to the current value.
    pub fn reset_peaks(&mut self) {
        let parts = [&mut self.requested, &mut self.cached, &mut self.held, &mut self.context];
        parts.into_iter().for_each(Level::reset_peak);
        let parts = [&mut self.modules, &mut self.local, &mut self.rounding, &mut self.occupied];
        parts.into_iter().for_each(Level::reset_peak);
        self.graphs.reset_peak();
    }

    /// Whether one charge of these bytes can be released, which has taken `rounding` more.
    #[inline]
    pub(super) fn holds(&self, kind: Kind, bytes: u64, rounding: u64) -> bool {
        match kind {
            Kind::Requested => {
                bytes <= self.requested.now - self.managed
                    && rounding <= self.rounding.now
                    && self.allocations > 0
            }
            Kind::Context => bytes <= self.context.now,
            Kind::Module => bytes <= self.modules.now,
            Kind::Local => bytes <= self.local.now,
            Kind::Managed => bytes <= self.managed && self.allocations > 0,
            Kind::Graphs => bytes <= self.cached.now.min(self.graphs.now),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, kind: Kind, bytes: u64, rounding: u64) {
        if kind != Kind::Graphs {
            self.occupied.add(bytes + rounding);
        }
        self.rounding.add(rounding);
        match kind {
            Kind::Context => self.context.add(bytes),
            Kind::Module => self.modules.add(bytes),
            Kind::Local => self.local.add(bytes),
            Kind::Graphs => {
                self.graphs.add(bytes);
                self.cached.add(bytes);
                self.held.add(bytes);
            }
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
    pub(super) fn take(&mut self, kind: Kind, bytes: u64, rounding: u64) {
        if kind != Kind::Graphs {
            self.occupied.now -= bytes + rounding;
        }
        self.rounding.now -= rounding;
        match kind {
            Kind::Context => self.context.now -= bytes,
            Kind::Module => self.modules.now -= bytes,
            Kind::Local => self.local.now -= bytes,
            Kind::Graphs => {
                self.graphs.now -= bytes;
                self.cached.now -= bytes;
                self.held.now -= bytes;
            }
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

    /// Whether the holding has the memory that a walk allocates and frees.
    pub(super) fn can_walk(&self, walk: &Walk) -> bool {
        walk.rise <= self.cached.now
            && walk.fall <= self.requested.now - self.managed
            && self.allocations.checked_add_signed(walk.allocations).is_some()
    }

    /// Applies a walk, peaks on the way included.
    pub(super) fn walk(&mut self, walk: &Walk) {
        self.requested.pass(walk.rise, walk.bytes);
        self.occupied.pass(walk.rise, walk.bytes);
        self.cached.pass(walk.fall, -walk.bytes);
        self.allocations = self.allocations.saturating_add_signed(walk.allocations);
    }

    /// Subtracts all that `other` holds.
    pub(super) fn take_all(&mut self, other: &Self) {
        self.requested.now -= other.requested.now;
        self.cached.now -= other.cached.now;
        self.held.now -= other.held.now;
        self.managed -= other.managed;
        self.context.now -= other.context.now;
        self.modules.now -= other.modules.now;
        self.local.now -= other.local.now;
        self.rounding.now -= other.rounding.now;
        self.occupied.now -= other.occupied.now;
        self.graphs.now -= other.graphs.now;
        self.allocations -= other.allocations;
    }
}
