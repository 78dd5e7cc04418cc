//! Cards in MIG mode with the profiles of real GPUs, which the stub GPU has as data.

use hami_allocator::wire::{Card, Level, Mig, MigProfile};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Row {
    memory_mib: u64,
    slices: u32,
    starts: Vec<u32>,
    size: u32,
}

/// A card of a model of `tests/stub/profiles/mig.toml`.
pub fn mig_card(uuid: &str, model: &str) -> Card {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stub/profiles/mig.toml");
    let text = std::fs::read_to_string(path).expect("the profiles of the stub");
    let mut models: BTreeMap<String, BTreeMap<String, Row>> =
        toml::from_str(&text).expect("the profiles of the stub");
    let rows = models.remove(model).expect("a model with profiles");
    let memory_mib = match model {
        "a100" => 40_960,
        "h200" => 143_771,
        _ => 81_920,
    };
    let profile = |(name, row): (String, Row)| MigProfile {
        name,
        memory_mib: row.memory_mib,
        slices: row.slices,
        placements: row.starts,
        size: row.size,
    };
    let mig = Mig { profiles: rows.into_iter().map(profile).collect(), taken: Vec::new() };
    let model = format!("NVIDIA {}", model.to_uppercase());
    Card { model, mig: Some(mig), level: Level::Mig, ..crate::build::card(uuid, memory_mib) }
}
