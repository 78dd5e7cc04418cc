//! Instances of cards that are cut: which profile, and where on the card.
//!
//! The smallest profile that is large enough, at one of the places that NVML allows for it. An instance
//! belongs to a device ID: one that an init container leaves to an app stays as it is (nothing is torn down between
//! them), so it is large enough for all who may get that ID. The instance's memory is the
//! container's limit; the overhead is inside, as in a card of that size.

use crate::rules::card::Use;
use crate::rules::card_reason::CardReason;
use crate::rules::class::Class;
use crate::rules::demand::Demand;
use crate::rules::view::View;
use crate::wire::{Mig, MigProfile, Mode};

/// More memory slices than a card has ([`crate::wire::check`]).
const SLICES: usize = 64;

/// A profile and where an instance of it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which of the card's profiles.
    pub profile: usize,
    /// Its first memory slice.
    pub start: u32,
}

/// The memory slices under an instance.
pub fn mask(start: u32, size: u32) -> u64 {
    ((1 << size) - 1) << start
}

/// Percent of the card's compute slices that a profile has, rounded down.
pub fn cores(mig: &Mig, profile: &MigProfile) -> u32 {
    profile.slices * 100 / all_slices(mig).max(1)
}

/// Compute slices of the card: the most that instances side by side have. That may be more than the largest profile
/// has, where the node does not offer all of them.
fn all_slices(mig: &Mig) -> u32 {
    // Up to each memory slice.
    let mut most = [0; SLICES + 1];
    for start in 0..SLICES {
        most[start + 1] = most[start + 1].max(most[start]);
        for profile in &mig.profiles {
            if profile.placements.contains(&(start as u32)) {
                let end = start + profile.size as usize;
                most[end] = most[end].max(most[start] + profile.slices);
            }
        }
    }
    most[SLICES]
}

/// The smallest profile that is large enough.
fn profile(mig: &Mig, demand: &Demand, card_mib: u64) -> Result<usize, CardReason> {
    let largest = mig.profiles.iter().map(|profile| profile.memory_mib).max().unwrap_or(0);
    // The whole of a card is its largest instance, which is a little less, in time as in memory.
    let share = (card_mib * u64::from(demand.percent) / 100).min(largest);
    let asked = demand.mib.max(share);
    let slices = match demand.on(Mode::Mig).cores {
        0 => 0,
        cores => {
            let widest = mig.profiles.iter().map(|profile| profile.slices).max().unwrap_or(0);
            (cores * all_slices(mig)).div_ceil(100).min(widest)
        }
    };
    let all = mig.profiles.iter().enumerate();
    all.filter(|(_, profile)| profile.memory_mib >= asked && profile.slices >= slices)
        .min_by_key(|(_, profile)| {
            (profile.memory_mib, profile.slices, profile.size, &profile.name)
        })
        .map(|(at, _)| at)
        .ok_or(CardReason::MigTooSmall { asked, largest })
}

/// Whether there is a free place for an ID of the group, before the pod's other IDs.
pub fn room(class: &Class, view: &View<'_>, card: usize, group: usize) -> Result<(), CardReason> {
    let (facts, used) = (&view.facts[card], &view.used[card]);
    if used.slots >= facts.slots() {
        return Err(CardReason::Slots { slots: facts.slots() });
    }
    if class.idle_only && used.slots > 0 {
        return Err(CardReason::NotIdle);
    }
    // A card that is used whole cannot be cut just now.
    if used.plain_slots > 0 {
        return Err(CardReason::InUse);
    }
    places(class, view, card, used, group).map(drop)
}

/// Free places for an ID of the group, the one that spoils least first.
///
/// What is spoiled are the places of all profiles that would no longer be free, each weighed by its size.
pub fn places(
    class: &Class,
    view: &View<'_>,
    card: usize,
    used: &Use,
    group: usize,
) -> Result<Vec<Place>, CardReason> {
    let mig = view.cards[card].mig.as_ref().ok_or(CardReason::NoMig)?;
    let facts = &view.facts[card];
    let at = profile(mig, &class.peaks[group], facts.memory_mib())?;
    let profile = &mig.profiles[at];
    let free = facts.free_memory(used);
    if free < profile.memory_mib {
        return Err(CardReason::Memory { asked: profile.memory_mib, free });
    }
    let mut starts: Vec<(u32, u32)> = Vec::new();
    for start in &profile.placements {
        let here = mask(*start, profile.size);
        if used.mig & here == 0 {
            starts.push((spoiled(mig, used.mig, here), *start));
        }
    }
    starts.sort_unstable();
    starts.dedup();
    if starts.is_empty() {
        return Err(CardReason::MigPlaces);
    }
    Ok(starts.into_iter().map(|(_, start)| Place { profile: at, start }).collect())
}

fn spoiled(mig: &Mig, used: u64, here: u64) -> u32 {
    let places = mig.profiles.iter().flat_map(|profile| {
        profile.placements.iter().map(|start| (profile.size, mask(*start, profile.size)))
    });
    places.filter(|(_, place)| used & place == 0 && here & place != 0).map(|(size, _)| size).sum()
}
