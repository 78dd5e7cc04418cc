//! The metrics of nodes and cards, in Prometheus' text format.
//!
//! A cluster may have tens of thousands of cards. Their samples as Python objects would occupy the
//! interpreter for seconds, and no filter would be answered meanwhile.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>

use hami_allocator::{CardUsage, NodeUsage, PodUsage};
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
        help: "Memory of the node's cards. Like all sums of a node, without cards that the node no \
               longer publishes.",
        value: |sums| bytes(sums.memory_mib),
    },
    Gauge {
        name: "hami_scheduler_node_memory_allocated_bytes",
        help: "The part of this memory that is allocated to pods.",
        value: |sums| bytes(sums.memory_allocated_mib),
    },
    Gauge {
        name: "hami_scheduler_node_cores",
        help: "Time of the node's cards; 1 is the whole time of one card.",
        value: |sums| cores(sums.cores),
    },
    Gauge {
        name: "hami_scheduler_node_cores_allocated",
        help: "The part of this time that is allocated to pods.",
        value: |sums| cores(sums.cores_allocated),
    },
    Gauge {
        name: "hami_scheduler_node_slots",
        help: "Containers that the node's cards can take.",
        value: |sums| sums.slots as f64,
    },
    Gauge {
        name: "hami_scheduler_node_slots_allocated",
        help: "The part of these slots that is allocated.",
        value: |sums| sums.slots_allocated as f64,
    },
];

const CARD: [Gauge<CardUsage>; 4] = [
    Gauge {
        name: "hami_scheduler_card_memory_bytes",
        help: "The card's memory. Its label card is its index, empty if it is missing.",
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

/// The metrics by card under HAMi's names. A `_ratio` is 0 to 100, but for the one of memory.
const HAMI_CARD: [Gauge<CardUsage>; 6] = [
    Gauge {
        name: "hami_gpu_memory_limit_bytes",
        help: "The card's memory",
        value: |card| bytes(card.memory_mib),
    },
    Gauge {
        name: "hami_gpu_core_limit_ratio",
        help: "The percentage of its time that can be allocated",
        value: |card| card.cores.into(),
    },
    Gauge {
        name: "hami_gpu_memory_allocated_bytes",
        help: "Its allocated memory",
        value: |card| bytes(card.memory_allocated_mib),
    },
    Gauge {
        name: "hami_gpu_core_allocated_ratio",
        help: "The allocated percentage of its time",
        value: |card| card.cores_allocated.into(),
    },
    Gauge {
        name: "hami_gpu_shared_count",
        help: "Containers that share it",
        value: |card| card.slots_allocated.into(),
    },
    Gauge {
        name: "hami_node_gpu_memory_allocated_ratio",
        help: "The allocated part of its memory, 0 to 1",
        value: |card| card.memory_allocated_mib as f64 / card.memory_mib as f64,
    },
];

/// The same by pod and card.
const HAMI_POD: [Gauge<PodUsage>; 2] = [
    Gauge {
        name: "hami_vgpu_memory_allocated_bytes",
        help: "Memory of a card that is allocated to a pod",
        value: |pod| bytes(pod.memory_mib),
    },
    Gauge {
        name: "hami_vgpu_core_allocated_ratio",
        help: "Percentage of a card's time that is allocated to a pod",
        value: |pod| pod.cores.into(),
    },
];

/// The metrics by node. Missing cards are counted, but not part of the sums.
pub fn nodes(parts: impl Iterator<Item = Vec<NodeUsage>>) -> Vec<u8> {
    let mut families = NODE.map(|gauge| family(gauge.name, gauge.help)).to_vec();
    let mut counts = family(
        "hami_scheduler_node_cards",
        "The node's cards by state: schedulable, cordoned, unhealthy, or missing. Pods have a \
         missing card, but the node no longer publishes it.",
    );
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
        "1 for the card's current state; there is no series for another state.",
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

/// The metrics by card and pod under the names and labels of HAMi's scheduler (2.10). As there,
/// the containers of a pod are one, with the index 0. Missing cards are left out.
/// <https://github.com/Project-HAMi/HAMi/blob/master/cmd/scheduler/metrics.go>
pub fn hami(parts: impl Iterator<Item = Vec<NodeUsage>>) -> Vec<u8> {
    let mut of_cards = HAMI_CARD.map(|gauge| family(gauge.name, gauge.help)).to_vec();
    let mut of_pods = HAMI_POD.map(|gauge| family(gauge.name, gauge.help)).to_vec();
    for node in parts.flatten() {
        let of_node = format!("{},{}", label("zone", "vGPU"), label("node", &node.name));
        for card in &node.cards {
            let Some(index) = card.index else { continue };
            let uuid = label("device_uuid", &card.uuid);
            let labels = format!("{of_node},{uuid},{}", label("device_index", &index.to_string()));
            for (family, gauge) in of_cards.iter_mut().zip(&HAMI_CARD) {
                sample(family, gauge.name, &labels, (gauge.value)(card));
            }
            for pod in &card.pods {
                let names = [label("namespace", &pod.namespace), label("pod", &pod.name)].join(",");
                let labels = format!("{of_node},{names},{},{uuid}", label("container_index", "0"));
                for (family, gauge) in of_pods.iter_mut().zip(&HAMI_POD) {
                    sample(family, gauge.name, &labels, (gauge.value)(pod));
                }
            }
        }
    }
    of_cards.append(&mut of_pods);
    of_cards.concat()
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
