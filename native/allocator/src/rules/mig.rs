//! MIG instances: which profile, and at which placement on the card.
//!
//! The card decides: on one with profiles ([`crate::wire::Card::mig`]) every device ID is an
//! instance, whatever the mode of the node. The profile is the smallest one that is large enough, at
//! one of the placements that NVML lists for it. The placements alone decide whether there is room.
//! An instance belongs to a device ID. If an init container leaves the ID to an app
//! container, the instance stays as it is, so it is large enough for every container that may get
//! the ID. The memory of the instance is the limit of the container.

use crate::rules::card::{Allocated, Facts};
use crate::rules::card_reason::{CardReason, ProfileName};
use crate::rules::class::Class;
use crate::rules::demand::Demand;
use crate::rules::view::View;
use crate::wire::check::SLICES;
use crate::wire::{Mig, MigProfile, Mode};

/// A profile and the placement of an instance of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstancePlacement {
    /// The index of the profile in the card's list.
    pub profile: usize,
    /// The first memory slice.
    pub start: u32,
    /// What later instances lose by it.
    pub loss: Loss,
}

/// The free placements that an instance takes from later ones, in memory slices. A smaller loss is
/// better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// By how much the largest free placement becomes smaller.
    pub largest: u32,
    /// The sizes of all free placements that the instance overlaps, added up.
    pub sum: u32,
}

/// The memory slices of an instance, one bit each.
pub fn mask(start: u32, size: u32) -> u64 {
    ((1 << size) - 1) << start
}

/// The compute slices of a profile in percent of the card's, rounded down.
pub fn cores(mig: &Mig, profile: &MigProfile) -> u32 {
    profile.slices * 100 / all_slices(mig).max(1)
}

/// The compute slices of the card: the most that instances side by side can have. The largest
/// profile may have fewer, if the node does not publish all profiles.
fn all_slices(mig: &Mig) -> u32 {
    // By the number of memory slices from the start of the card.
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

/// The memory slices of the card: up to where the last instance can be.
fn memory_slices(mig: &Mig) -> u32 {
    let ends = mig
        .profiles
        .iter()
        .flat_map(|profile| profile.placements.iter().map(|start| start + profile.size));
    ends.max().unwrap_or(0)
}

/// The smallest profile that is large enough.
fn profile(mig: &Mig, demand: &Demand, card_mib: u64) -> Result<usize, CardReason> {
    let largest = mig.profiles.iter().map(|profile| profile.memory_mib).max().unwrap_or(0);
    // Instances have slightly less memory than their memory slices, and the largest slightly less
    // time than the card. They serve requests for that part of the card.
    let percent = u64::from(demand.percent);
    let share = (card_mib * percent / 100).min(largest);
    let requested = demand.mib.max(share);
    let all_memory = memory_slices(mig);
    let has_memory = |profile: &MigProfile| {
        let is_share = u64::from(profile.size) * 100 >= percent * u64::from(all_memory);
        profile.memory_mib >= if is_share { demand.mib } else { requested }
    };
    let slices = match demand.on(Mode::Mig).cores {
        0 => 0,
        cores => {
            let widest = mig.profiles.iter().map(|profile| profile.slices).max().unwrap_or(0);
            (cores * all_slices(mig)).div_ceil(100).min(widest)
        }
    };
    let all = mig.profiles.iter().enumerate();
    all.filter(|(_, profile)| has_memory(profile) && profile.slices >= slices)
        .min_by_key(|(_, profile)| {
            (profile.memory_mib, profile.slices, profile.size, &profile.name)
        })
        .map(|(at, _)| at)
        .ok_or(CardReason::MigTooSmall { requested, largest })
}

/// The reason why the card can never have an instance for an ID of the group, if there is one.
pub fn check_profile(
    class: &Class,
    mig: &Mig,
    facts: &Facts,
    group: usize,
) -> Result<(), CardReason> {
    profile(mig, &class.peaks[group], facts.memory_mib()).map(drop)
}

/// The reason why this card has no room for the first ID of the group, if it has none.
pub fn room(
    class: &Class,
    view: &View<'_>,
    card: usize,
    mig: &Mig,
    group: usize,
) -> Result<(), CardReason> {
    let allocated = &view.allocated[card];
    if class.idle_only && allocated.slots > 0 {
        return Err(CardReason::NotIdle);
    }
    // Pods that share the card without MIG are still on it.
    if allocated.plain_slots > 0 {
        return Err(CardReason::InUse);
    }
    free_placements(class, mig, &view.facts[card], allocated, group).map(drop)
}

/// The free placements for an ID of the group, the one with the smallest loss first.
pub fn free_placements(
    class: &Class,
    mig: &Mig,
    facts: &Facts,
    allocated: &Allocated,
    group: usize,
) -> Result<Vec<InstancePlacement>, CardReason> {
    if allocated.slots >= facts.slots() {
        return Err(CardReason::Slots { slots: facts.slots() });
    }
    let at = profile(mig, &class.peaks[group], facts.memory_mib())?;
    let profile = &mig.profiles[at];
    let others: u64 = mig.taken.iter().fold(0, |all, slice| all | 1 << slice);
    let taken = allocated.mig | others;
    let mut found: Vec<InstancePlacement> = Vec::new();
    for start in &profile.placements {
        let here = mask(*start, profile.size);
        if taken & here == 0 {
            let loss = loss(mig, taken, here);
            found.push(InstancePlacement { profile: at, start: *start, loss });
        }
    }
    if found.is_empty() {
        let profile = ProfileName::of(&profile.name);
        return Err(CardReason::MigPlacements {
            profile,
            instances: allocated.slots.try_into().unwrap_or(u16::MAX),
            others: others.count_ones() as u8,
        });
    }
    found.sort_unstable_by_key(|placement| (placement.loss, placement.start));
    found.dedup();
    Ok(found)
}

fn loss(mig: &Mig, taken: u64, here: u64) -> Loss {
    let (mut before, mut after, mut sum) = (0, 0, 0);
    for profile in &mig.profiles {
        for start in &profile.placements {
            let there = mask(*start, profile.size);
            if taken & there != 0 {
                continue;
            }
            before = before.max(profile.size);
            if here & there == 0 {
                after = after.max(profile.size);
            } else {
                sum += profile.size;
            }
        }
    }
    Loss { largest: before - after, sum }
}
