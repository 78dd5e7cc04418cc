//! The metrics of nodes and cards, in Prometheus' text format.
//!
//! A cluster may have tens of thousands of cards. Their samples as Python objects would occupy the
//! interpreter for seconds, and no filter would be answered meanwhile.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>

use hami_allocator::{CardUsage, NodeUsage};
use std::io::Write;

/// A gauge: its name, its help text, and how to compute its value for one node or card.
struct Gauge<T> {
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
}

/// The sums over the cards of a node.
#[derive(Default)]
struct Sums {
    memory_mib: u64,
    memory_allocated_mib: u64,
    cores: u64,
    cores_allocated: u64,
    slots: u64,
    slots_allocated: u64,
}

/// The states of a card, the values of the label `state`.
const STATES: [&str; 4] = ["schedulable", "cordoned", "unhealthy", "missing"];

const NODE: [Gauge<Sums>; 6] = [
    Gauge {
        name: "hami_scheduler_node_memory_bytes",
        help: "Memory of the node's cards.",
        value: |sums| bytes(sums.memory_mib),
    },
    Gauge {
        name: "hami_scheduler_node_memory_allocated_bytes",
        help: "Memory of these cards that is allocated to pods.",
        value: |sums| bytes(sums.memory_allocated_mib),
    },
    Gauge {
        name: "hami_scheduler_node_cores",
        help: "Time of the node's cards; 1 is the whole time of one card.",
        value: |sums| cores(sums.cores),
    },
    Gauge {
        name: "hami_scheduler_node_cores_allocated",
        help: "Time of these cards that is allocated to pods; 1 is the whole time of one card.",
        value: |sums| cores(sums.cores_allocated),
    },
    Gauge {
        name: "hami_scheduler_node_slots",
        help: "Containers that the node's cards can take.",
        value: |sums| sums.slots as f64,
    },
    Gauge {
        name: "hami_scheduler_node_slots_allocated",
        help: "Containers that have part of these cards.",
        value: |sums| sums.slots_allocated as f64,
    },
];

const CARD: [Gauge<CardUsage>; 4] = [
    Gauge {
        name: "hami_scheduler_card_memory_bytes",
        help: "The card's memory.",
        value: |card| bytes(card.memory_mib),
    },
    Gauge {
        name: "hami_scheduler_card_memory_allocated_bytes",
        help: "Memory of the card that is allocated to pods.",
        value: |card| bytes(card.memory_allocated_mib),
    },
    Gauge {
        name: "hami_scheduler_card_cores_allocated",
        help: "Time of the card that is allocated to pods; 1 is all of it.",
        value: |card| cores(card.cores_allocated.into()),
    },
    Gauge {
        name: "hami_scheduler_card_slots_allocated",
        help: "Containers that have part of the card.",
        value: |card| card.slots_allocated.into(),
    },
];

/// The metrics by node. Missing cards are counted, but not part of the sums.
pub fn nodes(parts: impl Iterator<Item = Vec<NodeUsage>>) -> Vec<u8> {
    let mut families = NODE.map(|gauge| family(gauge.name, gauge.help)).to_vec();
    let mut counts = family("hami_scheduler_node_cards", "The node's cards, by state.");
    for node in parts.flatten() {
        let labels = label("node", &node.name);
        let sums = sums(&node);
        for (family, gauge) in families.iter_mut().zip(&NODE) {
            sample(family, gauge.name, &labels, (gauge.value)(&sums));
        }
        for state in STATES {
            let count = node.cards.iter().filter(|card| card.state == state).count();
            if count > 0 {
                let labels = format!("{labels},{}", label("state", state));
                sample(&mut counts, "hami_scheduler_node_cards", &labels, count as f64);
            }
        }
    }
    families.push(counts);
    families.concat()
}

/// The metrics by card.
pub fn cards(parts: impl Iterator<Item = Vec<NodeUsage>>) -> Vec<u8> {
    let mut families = CARD.map(|gauge| family(gauge.name, gauge.help)).to_vec();
    let mut states = family(
        "hami_scheduler_card_state",
        "1 for the card's state: whether it takes new pods, or why not.",
    );
    for node in parts.flatten() {
        let of_node = label("node", &node.name);
        for card in &node.cards {
            let index = card.index.map(|index| index.to_string()).unwrap_or_default();
            let labels =
                format!("{of_node},{},{}", label("card", &index), label("uuid", &card.uuid));
            for (family, gauge) in families.iter_mut().zip(&CARD) {
                sample(family, gauge.name, &labels, (gauge.value)(card));
            }
            let labels = format!("{labels},{}", label("state", card.state));
            sample(&mut states, "hami_scheduler_card_state", &labels, 1.0);
        }
    }
    families.push(states);
    families.concat()
}

fn sums(node: &NodeUsage) -> Sums {
    let mut sums = Sums::default();
    for card in node.cards.iter().filter(|card| card.state != "missing") {
        sums.memory_mib += card.memory_mib;
        sums.memory_allocated_mib += card.memory_allocated_mib;
        sums.cores += u64::from(card.cores);
        sums.cores_allocated += u64::from(card.cores_allocated);
        sums.slots += u64::from(card.slots);
        sums.slots_allocated += u64::from(card.slots_allocated);
    }
    sums
}

fn bytes(mib: u64) -> f64 {
    (mib << 20) as f64
}

fn cores(percent: u64) -> f64 {
    percent as f64 / 100.0
}

fn family(name: &str, help: &str) -> Vec<u8> {
    format!("# HELP {name} {help}\n# TYPE {name} gauge\n").into_bytes()
}

fn label(name: &str, value: &str) -> String {
    let mut written = format!("{name}=\"");
    // Names of cards come from an annotation: from anybody who may write one.
    for letter in value.chars() {
        match letter {
            '\\' => written.push_str(r"\\"),
            '"' => written.push_str(r#"\""#),
            '\n' => written.push_str(r"\n"),
            other => written.push(other),
        }
    }
    written.push('"');
    written
}

fn sample(family: &mut Vec<u8>, name: &str, labels: &str, value: f64) {
    writeln!(family, "{name}{{{labels}}} {value}").expect("memory takes all");
}
