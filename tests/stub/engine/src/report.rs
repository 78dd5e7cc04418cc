//! The ledger and the cards' time as JSON, which tests read.

use crate::counters::Activity;
use crate::ledger::{ClientRecord, Holding, Ledger, Level, SharedRecord, State};
use crate::profile::Card;
use crate::time::{BUCKET_NS, Machine};
use serde_json::{Value, json};

fn level(level: Level) -> Value {
    json!({"now": level.now, "peak": level.peak})
}

fn holding(holding: &Holding) -> Value {
    json!({
        "requested": level(holding.requested),
        "cached": level(holding.cached),
        "held": level(holding.held),
        "managed": {"now": holding.managed},
        "context": level(holding.context),
        "modules": level(holding.modules),
        "local": level(holding.local),
        "rounding": level(holding.rounding),
        "occupied": level(holding.occupied),
        "graphs": level(holding.graphs),
        "allocations": holding.allocations,
    })
}

fn with_work(mut value: Value, kernels: u64, busy_ns: u64) -> Value {
    value["kernels"] = kernels.into();
    value["busy_ns"] = busy_ns.into();
    value
}

/// A MIG device.
pub struct Device {
    /// Its index in the ledger and in the machine.
    pub index: usize,
    /// As a card of its own, with the index of the card that it belongs to.
    pub card: Card,
    /// Its GPU instance.
    pub instance: u32,
    /// Its compute instance there.
    pub compute: u32,
}

/// The MIG device that a client has used.
pub struct Opened {
    /// The card.
    pub card: usize,
    /// The device's index in the ledger and in the machine.
    pub index: usize,
    /// The device's UUID. Another one can have the same index later.
    pub uuid: String,
}

/// Everything in the ledger, the clients' counters and the machine. `activities` are by client id,
/// which is also the machine's number, and so is `opened`.
pub fn ledger(
    cards: &[Card],
    devices: &[Device],
    ledger: &Ledger,
    activities: &[Activity],
    opened: &[Option<Opened>],
    machine: &Machine,
) -> Value {
    let opened = |client: usize| opened.get(client).and_then(Option::as_ref);
    // The clients that have a card, or a MIG device of it, and its number for them is the card's.
    let row_of = |card: &Card, index: usize| {
        let record = &ledger.cards[index];
        let is_its = |client: &usize| match opened(*client) {
            Some(opened) if opened.card == card.index => opened.uuid == card.uuid(),
            _ => !card.is_mig_device,
        };
        let clients: Vec<usize> = (0..activities.len()).filter(is_its).collect();
        let kernels = clients.iter().map(|client| activities[*client].kernels[card.index]).sum();
        let busy_ns = clients.iter().map(|client| machine.busy_ns(*client, index)).sum();
        let mut row = with_work(holding(&record.all), kernels, busy_ns);
        row["index"] = card.index.into();
        row["uuid"] = card.uuid().into();
        row["name"] = card.profile.name.clone().into();
        row["total"] = card.profile.usable().into();
        row["reserved"] = card.profile.reserved.into();
        row["used"] = record.all.bytes().into();
        row["refused"] = record.refused.into();
        row["groups"] = ledger
            .groups
            .iter()
            .map(|group| (group.name.clone(), holding(&group.holdings[index])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        row
    };
    let device_row = |device: &Device| {
        let mut row = row_of(&device.card, device.index);
        row["instance"] = device.instance.into();
        row["compute"] = device.compute.into();
        row
    };
    let process_row = |(id, (client, activity)): (usize, (&ClientRecord, &Activity))| {
        // At an index of the ledger, with the client's launches on a card.
        let use_of = |index: usize, kernels: u64| {
            let held = &client.holdings[index];
            let mut row = with_work(holding(held), kernels, machine.busy_ns(id, index));
            let used = machine.by_kernel(id, index).map(|(name, used)| {
                (name.to_owned(), json!({"launched": used.launched, "busy_ns": used.busy_ns}))
            });
            row["by_kernel"] = used.collect::<serde_json::Map<_, _>>().into();
            row
        };
        let card = |card: usize| {
            let has_device = opened(id).is_some_and(|opened| opened.card == card);
            use_of(card, if has_device { 0 } else { activity.kernels[card] })
        };
        let device = opened(id).map(|opened| {
            let mut row = use_of(opened.index, activity.kernels[opened.card]);
            row["uuid"] = opened.uuid.clone().into();
            row
        });
        json!({
            "pid": client.pid,
            "library": activity.library.name(),
            "group": ledger.groups[client.group].name,
            "state": match client.state {
                State::Alive => "alive",
                State::Freeing => "freeing",
                State::Freed => "freed",
            },
            "cards": (0..cards.len()).map(card).collect::<Vec<_>>(),
            "mig_device": device,
            "calls": activity.calls,
        })
    };
    let processes = ledger.clients.iter().zip(activities).enumerate();
    let shared_row = |record: &SharedRecord| {
        let pids = record.holders.iter().map(|holder| ledger.clients[holder.0].pid);
        json!({"card": record.card, "bytes": record.bytes, "holders": pids.collect::<Vec<_>>()})
    };
    json!({
        "now_ns": machine.now(),
        "shared": ledger.shared.values().map(shared_row).collect::<Vec<_>>(),
        "cards": cards.iter().map(|card| row_of(card, card.index)).collect::<Vec<_>>(),
        "memory_limits": ledger.limits.report(),
        "mig_devices": devices.iter().map(device_row).collect::<Vec<_>>(),
        "processes": processes.map(process_row).collect::<Vec<_>>(),
    })
}

/// When each process had the compute engine of which card.
pub fn history(ledger: &Ledger, machine: &Machine) -> Value {
    let process_row = |(id, client): (usize, &ClientRecord)| {
        let card = |card| {
            let buckets = machine.history(id, card).map(|(start, ns)| json!([start, ns]));
            json!({"buckets": buckets.collect::<Vec<_>>()})
        };
        json!({
            "pid": client.pid,
            "group": ledger.groups[client.group].name,
            "cards": (0..client.holdings.len()).map(card).collect::<Vec<_>>(),
        })
    };
    json!({
        "now_ns": machine.now(),
        "bucket_ns": BUCKET_NS,
        "processes": ledger.clients.iter().enumerate().map(process_row).collect::<Vec<_>>(),
    })
}
