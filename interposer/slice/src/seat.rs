//! The compute layer's view of one card in one layer of the slice: the share, the coordinator's
//! grant, and the words in which the process reports its own use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hami_account::{ComputeState, ComputeWords, Debt};
use hami_limits::grants::{Grant, Kind, SILENCE_NS};
use hami_limits::{Mode, Regime, VariableShare};
use hami_share::timing;

use crate::layer::Layer;

/// This process at one card of one layer.
pub struct Seat {
    layer: &'static Layer,
    row: usize,
    /// The share that the environment sets for the innermost slice.
    environment: Option<VariableShare>,
}

impl Seat {
    pub(crate) fn new(
        layer: &'static Layer,
        row: usize,
        environment: Option<VariableShare>,
    ) -> Self {
        Self { layer, row, environment }
    }

    /// The share in the limits page, in percent below 100, and its mode.
    pub fn share(&self) -> Option<(u32, Mode)> {
        let Regime { share, mode, .. } = self.layer.regime(self.row);
        (1..100).contains(&share).then_some((share, mode))
    }

    /// The share that a variable sets. The coordinator does not know it.
    pub fn environment_share(&self) -> Option<(u32, Mode)> {
        self.environment.map(|set| (set.share, set.mode))
    }

    /// The coordinator's grant; `None` while no coordinator runs, or it leaves the card to the
    /// slices.
    pub fn grant(&self, now: u64) -> Option<Grant> {
        let grants = self.layer.grants()?;
        let pulse = grants.pulse();
        if pulse == 0 || now.saturating_sub(pulse) > SILENCE_NS {
            return None;
        }
        Some(grants.grant(self.row)).filter(|grant| grant.kind != Kind::Own)
    }

    /// Waits until the grant has another number than this, or until the time is over.
    pub fn wait_for_grant(&self, seen: u32, timeout: Duration) {
        if let Some(grants) = self.layer.grants() {
            grants.wait(self.row, seen, timeout);
        }
    }

    /// This process's slot in the account.
    pub fn slot(&self) -> Option<u16> {
        Some(self.layer.member()?.slot())
    }

    /// The words in which this process reports its use of the card.
    pub fn words(&self) -> Option<&'static ComputeWords> {
        self.layer.member()?.compute(self.row)
    }

    /// The debt here of processes of the slice that have exited.
    pub fn unpaid_debt(&self, now: u64) -> Debt {
        self.layer.unpaid_debt(self.row, now)
    }

    /// Wakes the coordinator, so that it reads the words.
    pub fn wake_coordinator(&self) {
        if let Some(member) = self.layer.member() {
            member.wake_coordinator();
        }
    }

    /// The number of processes of the slice that use this card, this one included.
    pub fn active(&self, now: u64) -> u32 {
        1 + self.others(now, timing::ACTIVE).count() as u32
    }

    /// The number of them that have work in flight, this one included.
    pub fn running(&self, now: u64) -> u32 {
        let others = self.others(now, 2 * timing::HEARTBEAT);
        1 + others.filter(|words| words.report().state == ComputeState::Running).count() as u32
    }

    /// The other processes of the slice that have used this card within the time `age`.
    fn others(&self, now: u64, age: u64) -> impl Iterator<Item = &'static ComputeWords> {
        let own = self.slot();
        let others = self.layer.computing(self.row).filter(move |(slot, _)| Some(*slot) != own);
        others.map(|(_, words)| words).filter(move |words| {
            let then = words.metered_at.load(Ordering::Relaxed);
            then != 0 && now.saturating_sub(then) <= age
        })
    }
}
