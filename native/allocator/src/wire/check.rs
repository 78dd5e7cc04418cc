//! Rejects values that JSON can express but no cluster can mean.
//!
//! The bounds also keep all sums far below 64 bits, so that no other code has to check for
//! overflow.

use crate::wire::{Assignment, Card, Kind, Memory, Mig, MigProfile, Node, PodRequest, Quota};
use hami_limits::InvalidValue;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// The most cards of a node and the most containers of a pod: sets of either are 64-bit masks.
pub const MOST: usize = 64;
/// More memory slices than any card has: sets of them are 64-bit masks.
pub const SLICES: usize = 64;
/// Fewer MiB than any card has. One percent of it is not 0, which would not be a limit.
const LEAST_MIB: u64 = 100;
/// More MiB than any card has; products of it stay below 64 bits.
const MOST_MIB: u64 = u32::MAX as u64;

fn refuse<T>(
    field: String,
    value: impl Display,
    fix: impl Into<String>,
) -> Result<T, InvalidValue> {
    Err(InvalidValue { field, value: value.to_string(), fix: fix.into() })
}

fn within(field: String, value: u64, allowed: RangeInclusive<u64>) -> Result<(), InvalidValue> {
    if allowed.contains(&value) {
        return Ok(());
    }
    refuse(field, value, format!("write {} to {}", allowed.start(), allowed.end()))
}

fn named(field: String, name: &str) -> Result<(), InvalidValue> {
    if name.is_empty() { refuse(field, name, "write a name") } else { Ok(()) }
}

/// Rejects a node with invalid or repeated cards.
pub fn node(node: &Node) -> Result<(), InvalidValue> {
    named("node.name".into(), &node.name)?;
    if node.cards.len() > MOST {
        return refuse("node.cards".into(), node.cards.len(), format!("write at most {MOST}"));
    }
    let mut seen = BTreeSet::new();
    for (at, one) in node.cards.iter().enumerate() {
        card(&format!("node.cards[{at}]"), one)?;
        if !seen.insert(&one.uuid) {
            return refuse(format!("node.cards[{at}].uuid"), &one.uuid, "write each card once");
        }
    }
    Ok(())
}

fn card(path: &str, card: &Card) -> Result<(), InvalidValue> {
    named(format!("{path}.uuid"), &card.uuid)?;
    within(format!("{path}.memory_mib"), card.memory_mib, LEAST_MIB..=MOST_MIB)?;
    within(format!("{path}.cores"), card.cores.into(), 1..=10_000)?;
    within(format!("{path}.slots"), card.slots.into(), 1..=10_000)?;
    within(format!("{path}.foreign_mib"), card.foreign_mib, 0..=MOST_MIB)?;
    for (peer, score) in &card.links {
        within(format!("{path}.links.{peer}"), (*score).into(), 0..=1_000_000)?;
    }
    card.mig.as_ref().map_or(Ok(()), |there| mig(&format!("{path}.mig"), there))
}

fn mig(path: &str, mig: &Mig) -> Result<(), InvalidValue> {
    for (at, one) in mig.profiles.iter().enumerate() {
        profile(&format!("{path}.profiles[{at}]"), one)?;
    }
    if mig.taken.len() > SLICES {
        let fix = format!("write at most {SLICES}");
        return refuse(format!("{path}.taken"), mig.taken.len(), fix);
    }
    for slice in &mig.taken {
        within(format!("{path}.taken"), (*slice).into(), 0..=SLICES as u64 - 1)?;
    }
    Ok(())
}

fn profile(path: &str, profile: &MigProfile) -> Result<(), InvalidValue> {
    named(format!("{path}.name"), &profile.name)?;
    within(format!("{path}.memory_mib"), profile.memory_mib, 1..=MOST_MIB)?;
    within(format!("{path}.slices"), profile.slices.into(), 1..=64)?;
    within(format!("{path}.size"), profile.size.into(), 1..=32)?;
    for start in &profile.placements {
        within(format!("{path}.placements"), (*start).into(), 0..=31)?;
    }
    Ok(())
}

/// Rejects a request that no cluster could satisfy.
pub fn request(request: &PodRequest) -> Result<(), InvalidValue> {
    named("request.pod.uid".into(), &request.pod.uid)?;
    named("request.pod.namespace".into(), &request.pod.namespace)?;
    let containers = &request.containers;
    if containers.is_empty() || containers.len() > MOST {
        let fix = format!("name 1 to {MOST} containers that request cards");
        return refuse("request.containers".into(), containers.len(), fix);
    }
    let mut names = BTreeSet::new();
    let mut apps = false;
    for (at, container) in containers.iter().enumerate() {
        let path = format!("request.containers[{at}]");
        named(format!("{path}.container"), &container.name)?;
        if !names.insert(&container.name) {
            return refuse(format!("{path}.container"), &container.name, "name it once");
        }
        apps |= container.kind == Kind::App;
        if apps && container.kind != Kind::App {
            return refuse(format!("{path}.kind"), "init", "put init containers first");
        }
        within(format!("{path}.cards"), container.cards.into(), 1..=MOST as u64)?;
        within(format!("{path}.cores"), container.cores.into(), 0..=100)?;
        match container.memory {
            Memory::Mib(mib) => within(format!("{path}.memory.mib"), mib, 1..=MOST_MIB)?,
            Memory::Percent(of) => within(format!("{path}.memory.percent"), of.into(), 1..=100)?,
            Memory::Whole => {}
        }
    }
    card_request(request)
}

fn card_request(request: &PodRequest) -> Result<(), InvalidValue> {
    if request.card_request.order.len() > 8 {
        return refuse(
            "request.card_request.order".into(),
            request.card_request.order.len(),
            "write at most 8",
        );
    }
    if let Some(weights) = request.card_request.weights {
        let all = [("slot", weights.slot), ("core", weights.core), ("memory", weights.memory)];
        for (name, weight) in all {
            within(format!("request.card_request.weights.{name}"), weight.into(), 0..=1000)?;
        }
        if all.iter().all(|(_, weight)| *weight == 0) {
            return refuse("request.card_request.weights".into(), "all 0", "let one of them count");
        }
    }
    Ok(())
}

/// Rejects an assignment that is not one of this request. The amounts in it are not compared with
/// the request: they are already bound, and are recorded as they are.
pub fn assignment(assignment: &Assignment, request: &PodRequest) -> Result<(), InvalidValue> {
    if assignment.version != Assignment::VERSION {
        let fix = format!("write {}", Assignment::VERSION);
        return refuse("assignment.version".into(), assignment.version, fix);
    }
    if assignment.pod != request.pod.uid {
        let fix = format!("write the request's, {:?}", request.pod.uid);
        return refuse("assignment.pod".into(), &assignment.pod, fix);
    }
    named("assignment.node".into(), &assignment.node)?;
    for (container, container_cards) in &assignment.containers {
        let path = format!("assignment.containers.{container}");
        if !request.containers.iter().any(|one| one.name == *container) {
            return refuse(path, container, "name containers of the request");
        }
        if container_cards.len() > MOST {
            return refuse(path, container_cards.len(), format!("write at most {MOST}"));
        }
        for (at, card) in container_cards.iter().enumerate() {
            named(format!("{path}[{at}].card"), &card.card)?;
            within(format!("{path}[{at}].memory_mib"), card.memory_mib, 0..=MOST_MIB)?;
            within(format!("{path}[{at}].cores"), card.cores.into(), 0..=10_000)?;
            if let Some(instance) = &card.mig {
                within(format!("{path}[{at}].mig.start"), instance.start.into(), 0..=31)?;
                within(format!("{path}[{at}].mig.size"), instance.size.into(), 1..=32)?;
            }
        }
    }
    Ok(())
}

/// Rejects a quota without a name.
pub fn quota(quota: &Quota) -> Result<(), InvalidValue> {
    named("quota.namespace".into(), &quota.namespace)?;
    named("quota.name".into(), &quota.name)
}
