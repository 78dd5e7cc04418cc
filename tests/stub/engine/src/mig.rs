//! MIG: a card's mode, and the GPU and compute instances that it is divided into.
//!
//! A *GPU instance* has memory slices and engines of the card. A *compute instance* has some or all
//! of a GPU instance's compute slices, and shares its memory with the others in it. Programs use
//! compute instances: each is a *MIG device* with a UUID of its own.
//!
//! This is the state of one card and what NVML does with it, without I/O. Its owner says who uses
//! what. The errors are NVML's.

use crate::profile::{Card, Profile, uuid_of};
use driver_sys::nvml::{
    NVML_ERROR_IN_USE, NVML_ERROR_INSUFFICIENT_RESOURCES, NVML_ERROR_INVALID_ARGUMENT,
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN, nvmlReturn_t,
};
pub use driver_sys::nvml::{NVML_ERROR_NO_PERMISSION as NOT_ROOT, NVML_ERROR_NOT_FOUND as GONE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

/// The most MIG devices of a card.
pub const DEVICES_MAX: usize = 7;

/// The memory slices of a card.
const MEMORY_SLICES: u32 = 8;

/// The GPU instances of a card that can have a capability, and the compute instances of each.
const CAPABILITIES: (u32, u32) = (15, 8);

/// The capability that lets a process see all instances.
pub const MONITOR: u32 = 2;

/// `NVML_DEVICE_ARCH_HOPPER`, a macro in the header.
const HOPPER: u32 = 9;

/// A GPU instance profile: a row of `profiles/mig.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceProfile {
    /// `NVML_GPU_INSTANCE_PROFILE_*`
    pub index: u32,
    /// The ID by which instances are created.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// The most instances of this profile.
    pub instances: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// What a context takes in an instance of this profile, in MiB; by default an estimate.
    pub context_mib: Option<u64>,
    /// Multiprocessors.
    pub sms: u32,
    /// Copy engines, decoders, encoders, JPEG and OFA engines.
    pub engines: [u32; 5],
    /// The first memory slice of each placement.
    pub starts: Vec<u32>,
    /// Memory slices.
    pub size: u32,
}

/// Profiles by name, in the order of the names.
pub type Profiles = BTreeMap<String, InstanceProfile>;

fn tables() -> &'static Result<BTreeMap<String, Profiles>, String> {
    static TABLES: OnceLock<Result<BTreeMap<String, Profiles>, String>> = OnceLock::new();
    TABLES.get_or_init(|| {
        toml::from_str(include_str!("../../profiles/mig.toml"))
            .map_err(|error| format!("profiles/mig.toml: {error}"))
    })
}

/// Whether there is a table of this name; the empty name is none.
pub fn check(table: &str) -> Result<(), String> {
    let tables = tables().as_ref()?;
    if table.is_empty() || tables.contains_key(table) {
        return Ok(());
    }
    let known: Vec<_> = tables.keys().map(String::as_str).collect();
    Err(format!("mig_profiles {table:?} is none of {}", known.join(", ")))
}

/// The GPU instance profiles of a model; none if it cannot be partitioned.
pub fn profiles(profile: &Profile) -> &'static Profiles {
    static NONE: Profiles = Profiles::new();
    let tables = tables().as_ref().ok();
    tables.and_then(|tables| tables.get(&profile.mig_profiles)).unwrap_or(&NONE)
}

impl InstanceProfile {
    /// The placements of a compute instance with so many slices: their first slices. None when
    /// there is no such profile.
    pub fn compute_starts(&self, slices: u32) -> Vec<u32> {
        let exists = match slices {
            1 | 2 | 4 | 7 => slices <= self.slices,
            3 => self.slices == 3 || self.slices == 7,
            _ => false,
        };
        // Three slices start where four would.
        let step = if slices == 3 { 4 } else { slices.max(1) };
        let fits = |start: &u32| exists && start + slices <= self.slices;
        (0..self.slices).step_by(step as usize).filter(fits).collect()
    }

    /// The multiprocessors of a compute instance: all, or those of so many of the card's slices.
    pub fn compute_sms(&self, card: &Profile, slices: u32) -> u32 {
        if slices >= self.slices {
            return self.sms;
        }
        let one = profiles(card).values().find(|profile| profile.slices == 1);
        one.map_or(0, |one| one.sms * slices)
    }
}

/// `NVML_COMPUTE_INSTANCE_PROFILE_*` of a compute instance with so many slices, which is also the ID.
pub fn compute_profile(slices: u32) -> u32 {
    if slices == 7 { 4 } else { slices.saturating_sub(1) }
}

/// The compute slices of that profile; `None` if there is none.
pub fn compute_slices(profile: u32) -> Option<u32> {
    [1, 2, 3, 4, 7].get(profile as usize).copied()
}

/// A card's MIG mode and instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The current mode.
    pub is_on: bool,
    /// The mode after the next reset.
    pub is_pending: bool,
    /// A process that no list shows has the card open.
    pub is_held: bool,
    /// Its GPU instances, in the order of their creation.
    pub instances: Vec<Instance>,
    /// Compute instances that were ever created: each has another UUID.
    created: u64,
    /// How many of the next creations of a compute instance fail.
    planned_failures: u32,
}

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its ID on the card.
    pub id: u32,
    /// The name of its profile.
    pub profile: String,
    /// Its first memory slice.
    pub start: u32,
    /// A process that no list shows has it open.
    pub is_held: bool,
    /// Its compute instances.
    pub computes: Vec<Compute>,
}

/// A compute instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compute {
    /// Its ID in the GPU instance.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// The first of them, in the GPU instance.
    pub start: u32,
    /// The index of its MIG device on the card.
    pub device: usize,
    /// The 16 bytes behind its UUID.
    pub uuid_bytes: [u8; 16],
}

/// What a process asks of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// The state.
    Read,
    /// Use this MIG device of the card from now on. A process can use one.
    Open {
        /// The 16 bytes behind its UUID.
        uuid_bytes: [u8; 16],
    },
    /// Set the mode.
    SetMode {
        /// Whether the card is divided.
        is_on: bool,
    },
    /// Create a GPU instance.
    CreateInstance {
        /// The ID of its profile.
        profile: u32,
        /// Its first memory slice; `None`: that of the first free placement.
        start: Option<u32>,
    },
    /// Destroy a GPU instance.
    DestroyInstance {
        /// Its ID.
        instance: u32,
    },
    /// Create a compute instance at the first free placement.
    CreateCompute {
        /// The ID of the GPU instance.
        instance: u32,
        /// Compute slices; `None`: all of the GPU instance's.
        slices: Option<u32>,
    },
    /// Destroy a compute instance.
    DestroyCompute {
        /// The ID of the GPU instance.
        instance: u32,
        /// Its ID there.
        compute: u32,
    },
}

/// The result of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// NVML's code; of [`Call::SetMode`] that of the activation.
    pub code: nvmlReturn_t,
    /// The ID of what was created.
    pub id: u32,
    /// Whether the process may change the card.
    pub is_privileged: bool,
    /// The card's state after it.
    pub state: State,
}

type Answer<T = ()> = Result<T, nvmlReturn_t>;

/// Whether slices from `start` on overlap others.
fn overlaps((start, size): (u32, u32), (other, its_size): (u32, u32)) -> bool {
    start < other + its_size && other < start + size
}

impl State {
    /// The profile of a GPU instance.
    pub fn profile_of(card: &Profile, instance: &Instance) -> Answer<&'static InstanceProfile> {
        profiles(card).get(&instance.profile).ok_or(GONE)
    }

    /// The name and the row of a profile ID.
    pub fn find_profile(
        card: &Profile,
        id: u32,
    ) -> Answer<(&'static String, &'static InstanceProfile)> {
        profiles(card).iter().find(|(_, row)| row.id == id).ok_or(NVML_ERROR_NOT_SUPPORTED)
    }

    /// A GPU instance.
    pub fn instance(&self, id: u32) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.id == id)
    }

    fn instance_mut(&mut self, id: u32) -> Answer<&mut Instance> {
        let found = self.instances.iter_mut().find(|instance| instance.id == id);
        found.ok_or(NVML_ERROR_INVALID_ARGUMENT)
    }

    /// All compute instances, each with its GPU instance.
    pub fn devices(&self) -> impl Iterator<Item = (&Instance, &Compute)> {
        self.instances
            .iter()
            .flat_map(|instance| instance.computes.iter().map(move |compute| (instance, compute)))
    }

    /// The free placements of a profile.
    fn free_starts(&self, card: &Profile, row: &InstanceProfile) -> Vec<u32> {
        let is_free = |start: &u32| {
            self.instances.iter().all(|other| {
                let size = profiles(card).get(&other.profile).map_or(0, |row| row.size);
                !overlaps((*start, row.size), (other.start, size))
            })
        };
        row.starts.iter().copied().filter(is_free).collect()
    }

    /// How many more GPU instances of a profile there can be.
    pub fn remaining(&self, card: &Profile, name: &str, row: &InstanceProfile) -> u32 {
        let existing = self.instances.iter().filter(|instance| instance.profile == name).count();
        let free = self.free_starts(card, row).len();
        // The placements of one profile do not overlap each other.
        (free as u32).min(row.instances.saturating_sub(existing as u32))
    }

    /// Does a call that changes something. `is_used`: whether a program uses the MIG device of this
    /// index; `None`: the card itself. Returns the ID of what was created.
    pub fn change(
        &mut self,
        card: &Card,
        call: &Call,
        is_used: impl Fn(Option<usize>) -> bool,
    ) -> Answer<u32> {
        if profiles(&card.profile).is_empty() {
            return Err(NVML_ERROR_NOT_SUPPORTED);
        }
        if let Call::SetMode { is_on } = call {
            self.is_pending = *is_on;
            let is_busy = self.is_held || is_used(None) || !self.instances.is_empty();
            if self.is_on != *is_on && is_busy {
                return Err(NVML_ERROR_IN_USE);
            }
            self.is_on = *is_on;
            return Ok(0);
        }
        if !self.is_on {
            return Err(NVML_ERROR_NOT_SUPPORTED);
        }
        match *call {
            Call::CreateInstance { profile, start } => self.create(&card.profile, profile, start),
            Call::DestroyInstance { instance } => {
                let found = self.instance(instance).ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
                if self.is_held || found.is_held || !found.computes.is_empty() {
                    return Err(NVML_ERROR_IN_USE);
                }
                self.instances.retain(|other| other.id != instance);
                Ok(0)
            }
            Call::CreateCompute { instance, slices } => self.create_compute(card, instance, slices),
            Call::DestroyCompute { instance, compute } => {
                let is_held = self.is_held;
                let found = self.instance_mut(instance)?;
                let device = found.computes.iter().find(|other| other.id == compute);
                let device = device.ok_or(NVML_ERROR_INVALID_ARGUMENT)?.device;
                if is_held || found.is_held || is_used(Some(device)) {
                    return Err(NVML_ERROR_IN_USE);
                }
                found.computes.retain(|other| other.id != compute);
                Ok(0)
            }
            Call::Read | Call::Open { .. } | Call::SetMode { .. } => Ok(0),
        }
    }

    fn create(&mut self, card: &Profile, profile: u32, start: Option<u32>) -> Answer<u32> {
        let (name, row) = Self::find_profile(card, profile)?;
        if start.is_some_and(|start| !row.starts.contains(&start)) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        let free = self.free_starts(card, row);
        let start = match start {
            Some(start) => free.contains(&start).then_some(start),
            None => free.first().copied(),
        };
        let start = start.filter(|_| self.remaining(card, name, row) > 0);
        let start = start.ok_or(NVML_ERROR_INSUFFICIENT_RESOURCES)?;
        // Two instances cannot have the same slices, so this ID is free.
        let id = MEMORY_SLICES / row.size - 1 + start / row.size;
        let (profile, computes) = (name.clone(), Vec::new());
        self.instances.push(Instance { id, profile, start, is_held: false, computes });
        Ok(id)
    }

    fn create_compute(&mut self, card: &Card, instance: u32, slices: Option<u32>) -> Answer<u32> {
        if self.planned_failures > 0 {
            self.planned_failures -= 1;
            return Err(NVML_ERROR_UNKNOWN);
        }
        let used: Vec<usize> = self.devices().map(|(_, compute)| compute.device).collect();
        let free = (0..DEVICES_MAX).find(|device| !used.contains(device));
        let created = self.created + 1;
        let found = self.instance_mut(instance)?;
        let row = Self::profile_of(&card.profile, found)?;
        let slices = slices.unwrap_or(row.slices);
        let starts = row.compute_starts(slices);
        if starts.is_empty() {
            return Err(NVML_ERROR_NOT_SUPPORTED);
        }
        let is_free = |start: &u32| {
            let mut others = found.computes.iter();
            others.all(|other| !overlaps((*start, slices), (other.start, other.slices)))
        };
        let start = starts.into_iter().find(is_free).ok_or(NVML_ERROR_INSUFFICIENT_RESOURCES)?;
        let device = free.ok_or(NVML_ERROR_INSUFFICIENT_RESOURCES)?;
        let is_id = |id: &u32| found.computes.iter().all(|other| other.id != *id);
        let id = (0..CAPABILITIES.1).find(is_id).ok_or(NVML_ERROR_INSUFFICIENT_RESOURCES)?;
        let uuid_bytes = uuid_of(&[&card.uuid_bytes[..], &created.to_le_bytes()].concat());
        found.computes.push(Compute { id, slices, start, device, uuid_bytes });
        self.created = created;
        Ok(id)
    }

    /// Lets a process that no list shows hold the card or a GPU instance, or hold it no more.
    pub fn hold(&mut self, instance: Option<u32>, is_held: bool) -> Result<(), String> {
        let Some(id) = instance else {
            self.is_held = is_held;
            return Ok(());
        };
        let found = self.instance_mut(id).map_err(|_| format!("instance {id} does not exist"))?;
        found.is_held = is_held;
        Ok(())
    }

    /// Lets the next creation of a compute instance fail.
    pub fn plan_failure(&mut self) {
        self.planned_failures += 1;
    }

    /// Resets the card: no instance survives, and only Ampere cards keep the mode.
    pub fn reset(&mut self, profile: &Profile) {
        let is_on = self.is_pending && profile.architecture < HOPPER;
        *self = Self { is_on, is_pending: is_on, created: self.created, ..Self::default() };
    }
}

/// The capabilities of a GPU instance and of a compute instance in it: the numbers of the device
/// nodes `nvidia-caps/nvidia-cap<n>`, as the driver numbers them.
pub fn capabilities(card: usize, instance: u32, compute: u32) -> [u32; 2] {
    let (instances, computes) = CAPABILITIES;
    // 0 belongs to NVLink, 1 and 2 are those of the configuration and of monitors.
    let access = 3 + (card as u32 * instances + instance) * (computes + 1);
    [access, access + 1 + compute]
}

/// The text of `/proc/driver/nvidia-caps/mig-minors` on a machine with so many cards.
pub fn minors(cards: usize) -> String {
    let mut text = String::from("config 1\nmonitor 2\n");
    // Writing to a String cannot fail.
    for (card, instance) in
        (0..cards).flat_map(|card| (0..CAPABILITIES.0).map(move |gi| (card, gi)))
    {
        let [access, _] = capabilities(card, instance, 0);
        let _ = writeln!(text, "gpu{card}/gi{instance}/access {access}");
        for compute in 0..CAPABILITIES.1 {
            let [_, access] = capabilities(card, instance, compute);
            let _ = writeln!(text, "gpu{card}/gi{instance}/ci{compute}/access {access}");
        }
    }
    text
}

impl Card {
    /// The MIG device of a compute instance of this card, as a card of its own.
    pub fn mig_device(&self, instance: &Instance, compute: &Compute) -> Option<Self> {
        let whole = &self.profile;
        let row = profiles(whole).get(&instance.profile)?;
        let sm_count = row.compute_sms(whole, compute.slices);
        let name = compute_name(instance, row, compute.slices);
        // Part of a context's memory is for its multiprocessors.
        let (sms, all) = (u64::from(sm_count), u64::from(whole.sm_count.max(1)));
        let estimate = whole.context_bytes * (6 * sms + all) / (7 * all);
        let context_bytes = row.context_mib.map_or(estimate, |mib| mib << 20);
        let profile = Profile {
            name: format!("{} MIG {name}", whole.name),
            memory: row.memory_mib << 20,
            // 13 MiB for each slice, as measured on an A100's smallest instance.
            reserved: u64::from(row.slices) * (13 << 20),
            context_bytes,
            sm_count,
            card_sm_count: whole.sm_count,
            mig: true,
            ..whole.clone()
        };
        let (uuid_bytes, mig) = (compute.uuid_bytes, State::default());
        Some(Self { profile, index: self.index, uuid_bytes, mig, is_mig_device: true })
    }
}

/// `3g.20gb`, or `1c.3g.20gb` for a part of its compute slices.
pub fn compute_name(instance: &Instance, row: &InstanceProfile, slices: u32) -> String {
    if slices == row.slices {
        instance.profile.clone()
    } else {
        format!("{slices}c.{}", instance.profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pseudo-random number below `limit`; the same ones in every run.
    fn below(seed: &mut u64, limit: usize) -> usize {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 33) as usize % limit
    }

    fn check(card: &Card, state: &State) {
        let slices = |instance: &Instance| {
            let row = State::profile_of(&card.profile, instance).expect("a profile");
            instance.start..instance.start + row.size
        };
        for (at, one) in state.instances.iter().enumerate() {
            for other in &state.instances[..at] {
                assert!(slices(one).all(|slice| !slices(other).contains(&slice)), "{state:?}");
                assert_ne!(one.id, other.id);
            }
            let row = State::profile_of(&card.profile, one).expect("a profile");
            assert!(one.computes.iter().map(|compute| compute.slices).sum::<u32>() <= row.slices);
        }
        let devices: Vec<_> = state.devices().map(|(_, compute)| compute.device).collect();
        assert!(devices.iter().all(|one| devices.iter().filter(|it| *it == one).count() == 1));
    }

    #[test]
    fn random_rounds_never_give_a_slice_or_a_number_twice() {
        for name in ["a100", "h200", "b200"] {
            let card = Card::new(Profile::load(name).expect(name), 0);
            let rows: Vec<_> = profiles(&card.profile).iter().collect();
            let (mut state, mut seed, mut refused) = (State::default(), 7, 0);
            let unused = |_: Option<usize>| false;
            state.change(&card, &Call::SetMode { is_on: true }, unused).expect("mode");
            for _ in 0..5_000 {
                let (name, row) = rows[below(&mut seed, rows.len())];
                let fits = state.remaining(&card.profile, name, row) > 0;
                let create = Call::CreateInstance { profile: row.id, start: None };
                match state.change(&card, &create, unused) {
                    Ok(instance) => {
                        assert!(fits);
                        let slices = Some(below(&mut seed, row.slices as usize) as u32 + 1);
                        let parts = Call::CreateCompute { instance, slices };
                        while state.change(&card, &parts, unused).is_ok() {}
                    }
                    Err(code) => {
                        assert!(!fits && code == NVML_ERROR_INSUFFICIENT_RESOURCES);
                        refused += 1;
                        let at = below(&mut seed, state.instances.len());
                        let Instance { id: instance, computes, .. } = state.instances[at].clone();
                        let destroy = Call::DestroyInstance { instance };
                        let is_empty = computes.is_empty();
                        assert_eq!(state.change(&card, &destroy, unused).is_ok(), is_empty);
                        for compute in computes.iter().map(|compute| compute.id) {
                            let part = Call::DestroyCompute { instance, compute };
                            state.change(&card, &part, unused).expect("unused");
                        }
                        if !is_empty {
                            state.change(&card, &destroy, unused).expect("empty");
                        }
                    }
                }
                check(&card, &state);
            }
            assert!(refused > 1_000, "the card was full often enough");
        }
    }

    #[test]
    fn a_table_that_does_not_exist_is_named_with_those_that_do() {
        let error = super::check("b9000").expect_err("no table");
        assert!(error.contains("b9000") && error.contains("h200"), "{error}");
    }
}
