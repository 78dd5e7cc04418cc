//! Values that JSON can say and a cluster cannot mean.
//!
//! The bounds also keep all sums far inside 64 bits, so nothing behind this gate has to look again.

use crate::wire::{Assignment, Card, Kind, Memory, MigProfile, Node, Quota, Request};
use hami_limits::InvalidValue;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Cards of a node, containers of a pod: sets of either are 64-bit masks.
pub const MOST: usize = 64;
/// More than any card has, and harmless when multiplied.
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

/// A node that can be.
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
    within(format!("{path}.memory_mib"), card.memory_mib, 1..=MOST_MIB)?;
    within(format!("{path}.cores"), card.cores.into(), 1..=10_000)?;
    within(format!("{path}.slots"), card.slots.into(), 1..=10_000)?;
    within(format!("{path}.foreign_mib"), card.foreign_mib, 0..=MOST_MIB)?;
    within(format!("{path}.overhead_mib"), card.overhead_mib, 0..=MOST_MIB)?;
    for (peer, score) in &card.links {
        within(format!("{path}.links.{peer}"), (*score).into(), 0..=1_000_000)?;
    }
    let profiles = card.mig.iter().flat_map(|mig| &mig.profiles).enumerate();
    for (at, one) in profiles {
        profile(&format!("{path}.mig.profiles[{at}]"), one)?;
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

/// A request that some cluster could grant.
pub fn request(request: &Request) -> Result<(), InvalidValue> {
    named("request.pod.uid".into(), &request.pod.uid)?;
    named("request.pod.namespace".into(), &request.pod.namespace)?;
    let asks = &request.asks;
    if asks.is_empty() || asks.len() > MOST {
        let mend = format!("name 1 to {MOST} containers that ask for cards");
        return refuse("request.asks".into(), asks.len(), mend);
    }
    let mut names = BTreeSet::new();
    let mut apps = false;
    for (at, ask) in asks.iter().enumerate() {
        let path = format!("request.asks[{at}]");
        named(format!("{path}.container"), &ask.container)?;
        if !names.insert(&ask.container) {
            return refuse(format!("{path}.container"), &ask.container, "name it once");
        }
        apps |= ask.kind == Kind::App;
        if apps && ask.kind != Kind::App {
            return refuse(format!("{path}.kind"), "init", "put init containers first");
        }
        within(format!("{path}.cards"), ask.cards.into(), 1..=MOST as u64)?;
        within(format!("{path}.cores"), ask.cores.into(), 0..=100)?;
        match ask.memory {
            Memory::Mib(mib) => within(format!("{path}.memory.mib"), mib, 1..=MOST_MIB)?,
            Memory::Percent(of) => within(format!("{path}.memory.percent"), of.into(), 1..=100)?,
            Memory::Whole => {}
        }
    }
    wish(request)
}

fn wish(request: &Request) -> Result<(), InvalidValue> {
    if request.wish.order.len() > 8 {
        return refuse("request.wish.order".into(), request.wish.order.len(), "write at most 8");
    }
    if let Some(weights) = request.wish.weights {
        let all = [("slot", weights.slot), ("core", weights.core), ("memory", weights.memory)];
        for (name, weight) in all {
            within(format!("request.wish.weights.{name}"), weight.into(), 0..=1000)?;
        }
        if all.iter().all(|(_, weight)| *weight == 0) {
            return refuse("request.wish.weights".into(), "all 0", "let one of them count");
        }
    }
    Ok(())
}

/// An assignment of this request, by its form: what it grants is history and is taken as it is.
pub fn assignment(assignment: &Assignment, request: &Request) -> Result<(), InvalidValue> {
    if assignment.version != Assignment::VERSION {
        let mend = format!("write {}", Assignment::VERSION);
        return refuse("assignment.version".into(), assignment.version, mend);
    }
    if assignment.pod != request.pod.uid {
        let mend = format!("write the request's, {:?}", request.pod.uid);
        return refuse("assignment.pod".into(), &assignment.pod, mend);
    }
    named("assignment.node".into(), &assignment.node)?;
    for (container, grants) in &assignment.containers {
        let path = format!("assignment.containers.{container}");
        if !request.asks.iter().any(|ask| ask.container == *container) {
            return refuse(path, container, "name containers of the request");
        }
        if grants.len() > MOST {
            return refuse(path, grants.len(), format!("write at most {MOST}"));
        }
        for (at, grant) in grants.iter().enumerate() {
            named(format!("{path}[{at}].card"), &grant.card)?;
            within(format!("{path}[{at}].memory_mib"), grant.memory_mib, 0..=MOST_MIB)?;
            within(format!("{path}[{at}].cores"), grant.cores.into(), 0..=10_000)?;
            if let Some(instance) = &grant.mig {
                within(format!("{path}[{at}].mig.start"), instance.start.into(), 0..=31)?;
                within(format!("{path}[{at}].mig.size"), instance.size.into(), 1..=32)?;
            }
        }
    }
    Ok(())
}

/// A quota with a name.
pub fn quota(quota: &Quota) -> Result<(), InvalidValue> {
    named("quota.namespace".into(), &quota.namespace)?;
    named("quota.name".into(), &quota.name)
}
