//! The ledger as JSON: what tests read.

use crate::counters::Activity;
use crate::ledger::{Holding, Ledger, Level, State};
use crate::profile::Card;
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
        "allocations": holding.allocations,
    })
}

fn with_work(mut value: Value, (kernels, busy_ns): (u64, u64)) -> Value {
    value["kernels"] = kernels.into();
    value["busy_ns"] = busy_ns.into();
    value
}

/// Everything the ledger and the clients' counters say. `activities` are by client id.
pub fn ledger(cards: &[Card], ledger: &Ledger, activities: &[Activity]) -> Value {
    let card_row = |card: &Card| {
        let book = &ledger.cards[card.index];
        let work = activities.iter().map(|activity| activity.cards[card.index]);
        let total = work.fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        let mut row = with_work(holding(&book.all), total);
        row["index"] = card.index.into();
        row["uuid"] = card.uuid().into();
        row["name"] = card.profile.name.clone().into();
        row["total"] = card.profile.usable().into();
        row["reserved"] = card.profile.reserved.into();
        row["used"] = book.all.bytes().into();
        row["refused"] = book.refused.into();
        row["groups"] = ledger
            .groups
            .iter()
            .map(|group| (group.name.clone(), holding(&group.holdings[card.index])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        row
    };
    let process_row = |(client, activity): (&crate::ledger::ClientBook, &Activity)| {
        let cards = client.holdings.iter().zip(activity.cards);
        json!({
            "pid": client.pid,
            "library": activity.library.name(),
            "group": ledger.groups[client.group].name,
            "state": match client.state {
                State::Alive => "alive",
                State::Freeing => "freeing",
                State::Gone => "gone",
            },
            "cards": cards.map(|(held, work)| with_work(holding(held), work)).collect::<Vec<_>>(),
            "calls": activity.calls,
        })
    };
    json!({
        "cards": cards.iter().map(card_row).collect::<Vec<_>>(),
        "processes": ledger.clients.iter().zip(activities).map(process_row).collect::<Vec<_>>(),
    })
}
