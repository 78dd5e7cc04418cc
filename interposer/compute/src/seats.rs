//! The shares that bind this process on a card, and the coordinator's grant.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hami_account::ComputeWords;
use hami_limits::Mode;
use hami_limits::grants::{Grant, Holder, Kind};
use hami_share::timing;
use vgpu_slice::Seat;

/// This process's seats at a card, outermost first. The coordinator of the first one grants leases.
pub(crate) struct Seats(Vec<Counted>);

/// The limits of this process's launches at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// The coordinator's grant; `None` while no coordinator runs.
    pub(crate) grant: Option<Grant>,
    /// Whether the grant lets this process launch; true without one.
    pub(crate) is_granted: bool,
    /// The rate of this process's own bucket in millionths of the card's time; `None` if the bucket
    /// does not bind.
    pub(crate) rate: Option<u32>,
}

/// A seat, and how many processes of its slice use the card. Counting them reads the whole account,
/// so the number is kept for a while.
struct Counted {
    seat: Seat,
    active: AtomicU32,
    until: AtomicU64,
}

impl Counted {
    fn active(&self, at: u64) -> u32 {
        if at >= self.until.load(Ordering::Relaxed) {
            self.active.store(self.seat.active(at), Ordering::Relaxed);
            self.until.store(at + timing::SILENT, Ordering::Relaxed);
        }
        self.active.load(Ordering::Relaxed)
    }
}

impl Seats {
    pub(crate) fn new(seats: Vec<Seat>) -> Self {
        let counted = |seat| Counted { seat, active: AtomicU32::new(1), until: AtomicU64::new(0) };
        Self(seats.into_iter().map(counted).collect())
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.0.iter().map(|counted| &counted.seat)
    }

    /// The outermost seat.
    pub(crate) fn outermost(&self) -> Option<&Seat> {
        self.seats().next()
    }

    /// The words in which this process reports to each of its slices.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'static ComputeWords> {
        self.seats().filter_map(Seat::words)
    }

    /// The longest debt that earlier processes of the slices have left.
    pub(crate) fn unpaid_debt(&self, at: u64) -> hami_account::Debt {
        self.seats().map(|seat| seat.unpaid_debt(at)).max().unwrap_or_default()
    }

    /// The limits of this process's launches now.
    pub(crate) fn terms(&self, at: u64) -> Terms {
        let grant = self.outermost().and_then(|seat| seat.grant(at));
        let is_granted = grant.as_ref().is_none_or(|grant| self.is_granted(grant, at));
        Terms { grant, is_granted, rate: self.rate(grant.as_ref(), at) }
    }

    /// Whether a grant lets this process launch.
    fn is_granted(&self, grant: &Grant, at: u64) -> bool {
        let Some(seat) = self.outermost() else { return true };
        let is_ours = match grant.holder {
            Holder::All => true,
            Holder::Slot(slot) => seat.slot() == Some(slot),
            Holder::None => false,
        };
        // The coordinator is late if a lease was not revoked so long after its end.
        let is_late = at >= grant.until + timing::HANDOVER;
        is_ours && (grant.kind == Kind::Alone || at < grant.until || is_late)
    }

    /// The rate of this process's own bucket. Without a grant, any share of any layer binds it.
    ///
    /// The coordinator enforces the share in the outermost slice's page by leases, and lends idle
    /// time to soft shares. The bucket enforces everything else. Without a coordinator the
    /// processes of a slice divide its share among them.
    fn rate(&self, grant: Option<&Grant>, at: u64) -> Option<u32> {
        let of_seat = |(index, counted): (usize, &Counted)| {
            let seat = &counted.seat;
            let coordinated = grant.filter(|_| index == 0);
            let has_lease = coordinated.is_some_and(|grant| grant.kind == Kind::Lease);
            let binds = |mode: Mode| mode == Mode::Hard || grant.is_none();
            let page = seat.share().filter(|(_, mode)| binds(*mode) && !has_lease);
            let environment = seat.environment_share().filter(|(_, mode)| binds(*mode));
            let lowest = [page, environment].into_iter().flatten().map(|(share, _)| share).min()?;
            let sharing =
                if coordinated.is_some_and(is_exclusive) { 1 } else { counted.active(at) };
            Some((lowest * 10_000 / sharing).max(1))
        };
        self.0.iter().enumerate().filter_map(of_seat).min()
    }

    /// How many processes of the slice, this one included, may have used the card in the elapsed
    /// time of this process's work, and how many of others have the lease too. Without a lease,
    /// nobody knows those of other slices.
    pub(crate) fn possible_users(&self, at: u64) -> (u64, u64) {
        let grant = self.outermost().and_then(|seat| seat.grant(at));
        let is_shared = !grant.as_ref().is_some_and(is_exclusive);
        let members = self.seats().map(|seat| seat.running(at)).max();
        let members = members.filter(|_| is_shared).unwrap_or(1);
        (u64::from(members), grant.map_or(0, |grant| grant.others.into()))
    }
}

impl Terms {
    /// Whether no share binds this process.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.grant.is_none() && self.rate.is_none()
    }

    /// Whether the coordinator grants leases on the card.
    pub(crate) fn by_leases(&self) -> bool {
        self.grant.is_some_and(|grant| grant.kind == Kind::Lease)
    }
}

/// Whether a grant keeps all other processes of the slice from the card.
fn is_exclusive(grant: &Grant) -> bool {
    matches!(grant.holder, Holder::Slot(_))
}
