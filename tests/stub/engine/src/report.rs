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

/// Everything in the ledger, the clients' counters and the machine. `activities` are by client id,
/// which is also the machine's number.
pub fn ledger(
    cards: &[Card],
    ledger: &Ledger,
    activities: &[Activity],
    machine: &Machine,
) -> Value {
    let card_row = |card: &Card| {
        let (index, record) = (card.index, &ledger.cards[card.index]);
        let kernels = activities.iter().map(|activity| activity.kernels[index]).sum();
        let busy_ns = (0..activities.len()).map(|client| machine.busy_ns(client, index)).sum();
        let mut row = with_work(holding(&record.all), kernels, busy_ns);
        row["index"] = index.into();
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
    let process_row = |(id, (client, activity)): (usize, (&ClientRecord, &Activity))| {
        let card = |(card, held): (usize, &Holding)| {
            let busy_ns = machine.busy_ns(id, card);
            let mut row = with_work(holding(held), activity.kernels[card], busy_ns);
            let used = machine.by_kernel(id, card).map(|(name, used)| {
                (name.to_owned(), json!({"launched": used.launched, "busy_ns": used.busy_ns}))
            });
            row["by_kernel"] = used.collect::<serde_json::Map<_, _>>().into();
            row
        };
        json!({
            "pid": client.pid,
            "library": activity.library.name(),
            "group": ledger.groups[client.group].name,
            "state": match client.state {
                State::Alive => "alive",
                State::Freeing => "freeing",
                State::Freed => "freed",
            },
            "cards": client.holdings.iter().enumerate().map(card).collect::<Vec<_>>(),
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
        "cards": cards.iter().map(card_row).collect::<Vec<_>>(),
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
