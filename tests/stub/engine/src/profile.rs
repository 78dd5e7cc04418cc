//! GPU models are data: a profile is a TOML file, and no code depends on a model's name.
//!
//! The built-in profiles are the files of `tests/stub/profiles`. To add one, add a file there and
//! its name to [`BUILT_IN`]. A path to a file of the same form works wherever a name does. UUID,
//! PCI bus id and serial number of a card follow from its model and index, so they are the same in
//! every process and every run.

use crate::mig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// (name, text) of the profiles that come with the stub.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];
    };
}

built_in!(
    "t4",
    "a100",
    "a100-80",
    "a100-mig-1g",
    "a100-mig-3g",
    "h100",
    "h200",
    "h200-coarse",
    "b200",
    "l40s",
    "gb10"
);

/// Device attributes that all models share, by name.
const COMMON_ATTRIBUTES: &str = include_str!("../../profiles/attributes.toml");

/// One GPU model, as its profile describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Marketing name, as `cuDeviceGetName` returns it.
    pub name: String,
    /// NVML's brand enumerator.
    pub brand: u32,
    /// NVML's architecture enumerator.
    pub architecture: u32,
    /// Bytes on the board, as NVML counts them.
    pub memory: u64,
    /// Bytes that the driver reserves: they are not part of the total that programs see.
    pub reserved: u64,
    /// Bytes that the driver takes for each context.
    pub context_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// PCI device and vendor id, as NVML packs them.
    pub pci_device_id: u32,
    /// Board power limit in milliwatts.
    pub power_limit_mw: u32,
    /// Bandwidth of copies between host and card, in GB/s for each direction.
    #[serde(default = "default_copy_gb_per_s")]
    pub copy_gb_per_s: u64,
    /// A MIG slice: its UUID starts with `MIG-`.
    #[serde(default)]
    pub mig: bool,
    /// The multiprocessors of the whole card, of which a MIG device has [`Profile::sm_count`]; 0: it
    /// is a whole card.
    #[serde(default)]
    pub card_sm_count: u32,
    /// Its GPU instance profiles: the name of a table in `profiles/mig.toml`; empty: it cannot be
    /// partitioned.
    #[serde(default)]
    pub mig_profiles: String,
    /// Driver version, as NVML returns it.
    #[serde(default = "default_driver_version")]
    pub driver_version: String,
    /// CUDA version of the driver, such as 13050: newer symbols are not found. Default: the version
    /// of the library that the program loads.
    #[serde(default)]
    pub cuda_version: Option<i32>,
    /// An allocation of [`Profile::granule_from`] bytes or more takes a multiple of this; 0: every
    /// allocation takes the requested bytes. Memory pools do not use it.
    #[serde(default)]
    pub granule: u64,
    /// The smallest allocation that is rounded up.
    #[serde(default)]
    pub granule_from: u64,
    /// A module takes a multiple of this in each context in which it is loaded; 0: modules take no
    /// memory.
    #[serde(default)]
    pub module_granule: u64,
    /// The bytes in which a graph memory pool grows, and in multiples of which a graph has memory; a
    /// power of two.
    #[serde(default = "default_graph_unit")]
    pub graph_unit: u64,
    /// Whether stack, heap and printf buffer take memory where `cuCtxSetLimit` raises them above
    /// their defaults.
    #[serde(default)]
    pub limits_take_memory: bool,
    /// Whether NVML reports the card's memory. It does not for a GPU that uses the host's memory.
    #[serde(default = "yes")]
    pub nvml_memory: bool,
    /// The device attributes, by name, that differ from the common ones.
    #[serde(default)]
    pub attributes: BTreeMap<String, i32>,
}

fn default_driver_version() -> String {
    "610.43.02".into()
}

/// `PCIe` 4.0 with 16 lanes, less the overhead of its protocol.
fn default_copy_gb_per_s() -> u64 {
    25
}

fn yes() -> bool {
    true
}

/// Small, so that graphs can fill a limit exactly.
fn default_graph_unit() -> u64 {
    2 << 20
}

impl Profile {
    /// The profile called `name`, or the one in the file at that path.
    pub fn load(name: &str) -> Result<Self, String> {
        let text = match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(name).map_err(|error| {
                let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                format!(
                    "card profile {name:?} is neither a readable file ({error}) nor one of {}",
                    known.join(", ")
                )
            })?,
        };
        let mut profile: Self =
            toml::from_str(&text).map_err(|error| format!("card profile {name:?}: {error}"))?;
        mig::check(&profile.mig_profiles)
            .map_err(|error| format!("card profile {name:?}: {error}"))?;
        let common: BTreeMap<String, i32> = toml::from_str(COMMON_ATTRIBUTES)
            .map_err(|error| format!("common attributes: {error}"))?;
        for (attribute, value) in common {
            profile.attributes.entry(attribute).or_insert(value);
        }
        Ok(profile)
    }

    /// Bytes that programs can use: CUDA's total.
    pub fn usable(&self) -> u64 {
        self.memory.saturating_sub(self.reserved)
    }

    /// Bytes that an allocation takes beyond the requested ones.
    #[inline]
    pub fn rounding(&self, bytes: u64) -> u64 {
        if self.granule == 0 || bytes < self.granule_from {
            return 0;
        }
        bytes.checked_next_multiple_of(self.granule).unwrap_or(u64::MAX) - bytes
    }

    /// Bytes that a module takes whose image and variables have so many.
    pub fn module_bytes(&self, bytes: u64) -> u64 {
        if self.module_granule == 0 {
            return 0;
        }
        bytes.checked_next_multiple_of(self.module_granule).unwrap_or(u64::MAX)
    }
}

/// One card of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Its model.
    pub profile: Profile,
    /// Its index among the engine's cards, in PCI order.
    pub index: usize,
    /// The 16 bytes behind its UUID.
    pub uuid_bytes: [u8; 16],
    /// Its MIG mode and instances when the server sent it.
    pub mig: mig::State,
    /// Whether it is a MIG device of the card with this index.
    pub is_mig_device: bool,
}

impl Card {
    /// Card number `index` of this model.
    pub fn new(profile: Profile, index: usize) -> Self {
        let uuid_bytes = uuid_of(&[profile.name.as_bytes(), &index.to_le_bytes()].concat());
        Self { profile, index, uuid_bytes, mig: mig::State::default(), is_mig_device: false }
    }

    /// `GPU-…` or `MIG-…`, as `CUDA_VISIBLE_DEVICES` and NVML spell it.
    pub fn uuid(&self) -> String {
        let mut text = String::from(if self.profile.mig { "MIG-" } else { "GPU-" });
        for (index, byte) in self.uuid_bytes.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// PCI bus number; domain and function are 0, and so is the device.
    pub fn pci_bus(&self) -> u32 {
        // Bus 0 is the host bridge's, and boards have gaps between them, as on real machines.
        0x07 + 0x08 * self.index as u32
    }

    /// `0000:07:00.0`, as `cuDeviceGetPCIBusId` spells it.
    pub fn pci_bus_id(&self) -> String {
        format!("0000:{:02X}:00.0", self.pci_bus())
    }

    /// Serial number.
    pub fn serial(&self) -> String {
        format!("16500{:08}", self.index + 1)
    }
}

/// The UUID that follows from some bytes.
pub(crate) fn uuid_of(bytes: &[u8]) -> [u8; 16] {
    // Two FNV-1a hashes: spread well enough to look like a UUID.
    let hash = |seed: u64| {
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        bytes.iter().fold(seed, next).to_be_bytes()
    };
    let mut uuid_bytes = [0; 16];
    uuid_bytes[..8].copy_from_slice(&hash(0xcbf2_9ce4_8422_2325));
    uuid_bytes[8..].copy_from_slice(&hash(0x9e37_79b9_7f4a_7c15));
    // Version 4, variant 1: tools that parse UUIDs accept nothing else.
    uuid_bytes[6] = uuid_bytes[6] & 0x0f | 0x40;
    uuid_bytes[8] = uuid_bytes[8] & 0x3f | 0x80;
    uuid_bytes
}

/// The profile of `name` or `name@cuda_version`, such as `a100@12020` for a driver of CUDA 12.2.
fn load_with_version(entry: &str) -> Result<Profile, String> {
    let Some((name, version)) = entry.rsplit_once('@') else { return Profile::load(entry) };
    let cuda_version = version.parse().map_err(|_| {
        format!("card {entry:?}: {version:?} is no CUDA version; write one such as 12020")
    })?;
    Ok(Profile { cuda_version: Some(cuda_version), ..Profile::load(name)? })
}

/// The cards of a comma-separated list of profiles.
pub fn cards(list: &str) -> Result<Vec<Card>, String> {
    let names: Vec<_> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() || names.len() > crate::MAX_CARDS {
        return Err(format!(
            "card list {list:?} names {} cards; it must name 1 to {}",
            names.len(),
            crate::MAX_CARDS
        ));
    }
    names
        .into_iter()
        .enumerate()
        .map(|(index, name)| Ok(Card::new(load_with_version(name)?, index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn every_built_in_profile_loads_and_fits_its_card() {
        for (name, _) in BUILT_IN {
            let profile = Profile::load(name).expect(name);
            assert!(profile.usable() > 10 * profile.context_bytes, "{name}");
            assert!(profile.attributes.contains_key("warp_size"), "{name}");
        }
    }

    #[test]
    fn identities_differ_by_index_and_are_the_same_every_time() {
        let cards = cards("a100, a100,a100-mig-3g").expect("list");
        assert_ne!(cards[0].uuid(), cards[1].uuid());
        assert!(cards[0].uuid().starts_with("GPU-") && cards[0].uuid().len() == 40);
        assert!(cards[2].uuid().starts_with("MIG-"));
        assert_eq!(cards[1].pci_bus_id(), "0000:0F:00.0");
        assert_eq!(cards[0], Card::new(Profile::load("a100").expect("profile"), 0));
    }

    #[test]
    fn an_unknown_profile_is_named_with_what_there_is() {
        let error = Profile::load("b9000").expect_err("no such card");
        assert!(error.contains("b9000") && error.contains("h200"), "{error}");
        assert!(super::cards(" , ").is_err());
        assert!(super::cards("t4@new").expect_err("no version").contains("new"));
        assert_eq!(super::cards("t4@12020").expect("old")[0].profile.cuda_version, Some(12020));
    }

    #[test]
    fn only_large_allocations_of_a_coarse_card_are_rounded_up() {
        let (exact, coarse) = (Profile::load("h200"), Profile::load("h200-coarse"));
        let (exact, coarse) = (exact.expect("profile"), coarse.expect("profile"));
        for (bytes, more) in [(1, 0), (MIB, 0), (MIB + 1, MIB - 1), (2 * MIB, 0), (3 * MIB, MIB)] {
            assert_eq!((exact.rounding(bytes), coarse.rounding(bytes)), (0, more), "{bytes}");
        }
        assert_eq!(coarse.rounding(u64::MAX), 0, "no card has so many");
        assert_eq!((exact.module_bytes(5), coarse.module_bytes(5)), (0, 2 * MIB));
    }
}
