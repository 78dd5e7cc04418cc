//! A process's seat at one card of one slice, as the compute share sees it: what it may take, what it
//! is granted, and where it says what it takes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hami_account::{ComputeState, ComputeWords, Owed};
use hami_limits::grants::{Grant, Kind, SILENCE_NS};
use hami_limits::{Mode, Regime, VariableShare};
use hami_share::turns::{ACTIVE_NS, SILENT_NS};

use super::level::Level;

/// See the module.
pub(crate) struct Seat {
    level: &'static Level,
    row: usize,
    /// What the environment says of the innermost slice.
    environment: Option<VariableShare>,
}

impl Seat {
    pub(super) fn new(
        level: &'static Level,
        row: usize,
        environment: Option<VariableShare>,
    ) -> Self {
        Self { level, row, environment }
    }

    /// What its page says of its share, in percent below 100, and how it holds.
    pub(crate) fn share(&self) -> Option<(u32, Mode)> {
        let Regime { share, mode, .. } = self.level.regime(self.row);
        (1..100).contains(&share).then_some((share, mode))
    }

    /// What a variable says of it, which the coordinator does not see.
    pub(crate) fn said_share(&self) -> Option<(u32, Mode)> {
        self.environment.map(|said| (said.share, said.mode))
    }

    /// What the coordinator grants the slice here; `None` while none is to be heard.
    pub(crate) fn grant(&self, now: u64) -> Option<Grant> {
        let grants = self.level.grants()?;
        let pulse = grants.pulse();
        if pulse == 0 || now.saturating_sub(pulse) > SILENCE_NS {
            return None;
        }
        Some(grants.grant(self.row)).filter(|grant| grant.kind != Kind::Own)
    }

    /// Waits until the grant is no more the one with this number, or for this long.
    pub(crate) fn wait_for_grant(&self, seen: u32, timeout: Duration) {
        if let Some(grants) = self.level.grants() {
            grants.wait(self.row, seen, timeout);
        }
    }

    /// This process's number in the slice.
    pub(crate) fn slot(&self) -> Option<u16> {
        Some(self.level.member()?.slot())
    }

    /// What this process says of itself.
    pub(crate) fn words(&self) -> Option<&'static ComputeWords> {
        self.level.member()?.compute(self.row)
    }

    /// The debt that processes of the slice which are gone have left behind here.
    pub(crate) fn left_behind(&self, now: u64) -> Owed {
        self.level.left_behind(self.row, now)
    }

    /// Tells the coordinator that it has said something.
    pub(crate) fn ring(&self) {
        if let Some(member) = self.level.member() {
            member.ring();
        }
    }

    /// How many processes of the slice use this card, this one included.
    pub(crate) fn active(&self, now: u64) -> u32 {
        let own = self.slot();
        let others = self.level.computing(self.row).filter(|(slot, words)| {
            Some(*slot) != own && is_fresh(now, words.metered_at.load(Ordering::Relaxed), ACTIVE_NS)
        });
        1 + others.count() as u32
    }

    /// Whether the slice has work on another of its cards.
    pub(crate) fn runs_elsewhere(&self, now: u64) -> bool {
        (0..hami_account::CARDS).filter(|row| *row != self.row).any(|row| {
            self.level.computing(row).any(|(_, words)| {
                words.said().1 == ComputeState::Runs
                    && is_fresh(now, words.active_at.load(Ordering::Relaxed), SILENT_NS)
            })
        })
    }
}

fn is_fresh(now: u64, then: u64, age: u64) -> bool {
    then != 0 && now.saturating_sub(then) <= age
}
