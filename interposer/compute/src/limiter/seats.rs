//! The shares that bind this process on a card, and the coordinator's grant.

use hami_account::ComputeWords;
use hami_limits::Mode;
use hami_limits::grants::{Grant, Holder, Kind};
use vgpu_slice::Seat;

/// How long after the end of its turn a process waits for the coordinator's next grant. If the
/// turn was not revoked by then, the coordinator is late, and the process goes on.
const HANDOVER_NS: u64 = 500_000;

/// This process's seats at a card, outermost first. The coordinator of the first one grants turns.
pub(crate) struct Seats(pub(super) Vec<Seat>);

impl Seats {
    /// The outermost seat.
    pub(super) fn outermost(&self) -> Option<&Seat> {
        self.0.first()
    }

    /// The words in which this process reports to each of its slices.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static ComputeWords> {
        self.0.iter().filter_map(Seat::words)
    }

    /// The coordinator's grant; `None` while no coordinator runs.
    pub(super) fn grant(&self, at: u64) -> Option<Grant> {
        self.outermost()?.grant(at)
    }

    /// Whether a grant lets this process launch.
    pub(super) fn is_granted(&self, grant: &Grant, at: u64) -> bool {
        let Some(seat) = self.outermost() else { return true };
        let is_ours = match grant.holder {
            Holder::All => true,
            Holder::Slot(slot) => seat.slot() == Some(slot),
            Holder::None => false,
        };
        // A coordinator of an earlier version leaves expired turns as they are, and sets no depth.
        let is_late = grant.depth > 0 && at >= grant.until + HANDOVER_NS;
        is_ours && (grant.kind == Kind::Alone || at < grant.until || is_late)
    }

    /// Whether a share is set in any layer.
    pub(super) fn has_share(&self) -> bool {
        self.0.iter().any(|seat| seat.share().or(seat.environment_share()).is_some())
    }

    /// The rate of this process's own bucket in millionths of the card's time; `None` if the bucket
    /// does not bind now.
    ///
    /// The coordinator enforces the share in the outermost slice's page by turns, and lends idle
    /// time to soft shares. The bucket enforces everything else. Without a coordinator the
    /// processes of a slice divide its share among them.
    pub(super) fn rate(&self, grant: Option<&Grant>, at: u64) -> Option<u32> {
        let of_seat = |(index, seat): (usize, &Seat)| {
            let coordinated = grant.filter(|_| index == 0);
            let has_turn = coordinated.is_some_and(|grant| grant.kind == Kind::Turn);
            let binds = |mode: Mode| mode == Mode::Hard || grant.is_none();
            let page = seat.share().filter(|(_, mode)| binds(*mode) && !has_turn);
            let environment = seat.environment_share().filter(|(_, mode)| binds(*mode));
            let lowest = [page, environment].into_iter().flatten().map(|(share, _)| share).min()?;
            let sharing = if coordinated.is_some_and(is_exclusive) { 1 } else { seat.active(at) };
            Some((lowest * 10_000 / sharing).max(1))
        };
        self.0.iter().enumerate().filter_map(of_seat).min()
    }

    /// How many processes, this one included, may have used the card in the elapsed time of this
    /// process's work.
    pub(super) fn possible_users(&self, at: u64) -> u32 {
        self.members(at).saturating_add(self.others(at))
    }

    /// How many of them belong to this slice.
    pub(super) fn members(&self, at: u64) -> u32 {
        let is_shared = !self.grant(at).as_ref().is_some_and(is_exclusive);
        self.0.iter().map(|seat| seat.active(at)).max().filter(|_| is_shared).unwrap_or(1)
    }

    /// How many processes of other slices may have used the card, as far as the coordinator knows.
    pub(super) fn others(&self, at: u64) -> u32 {
        self.grant(at).map_or(0, |grant| u32::try_from(grant.others).unwrap_or(u32::MAX))
    }
}

/// Whether a grant keeps all other processes of the slice from the card.
fn is_exclusive(grant: &Grant) -> bool {
    matches!(grant.holder, Holder::Slot(_))
}
