//! Measures the processor time of filter, score, reserve and place in a large cluster, and the
//! memory of that cluster: `cargo run --release -p hami-allocator --example scale [NODES [PODS]]`.
//!
//! The default is 5,000 nodes of eight cards and 100,000 pods, on one core. It prints one row per
//! number. Processor time does not include what other programs take.

use hami_allocator::Allocator;
use hami_allocator::wire::{
    Card, CardRequest, ContainerRequest, Kind, Level, Memory, Mode, Node, Placement, Pod,
    PodRequest,
};
use std::collections::BTreeMap;
use std::time::Duration;

const CARDS: u32 = 8;
const HOLD_NS: u64 = 5_000_000_000;

fn main() {
    let mut arguments =
        std::env::args().skip(1).map(|argument| argument.parse::<usize>().expect("a number"));
    let nodes = arguments.next().unwrap_or(5_000);
    let pods = arguments.next().unwrap_or(100_000);
    let empty = resident_kib();
    let mut allocator = Allocator::new();
    for at in 0..nodes {
        allocator.set_node(node(at)).expect("a good node");
    }
    println!("memory after {nodes} nodes: {} MiB", (resident_kib() - empty) / 1024);
    let begin = processor_time();
    for at in 0..pods {
        let (round, number) = (at / nodes, at % nodes);
        // Twenty pods fit on a node, of all kinds.
        let request = request(at, (round + number) % KINDS.len());
        let assignment = allocator.reserve(&request, &node_name(number), 0).expect("there is room");
        allocator.place(&request, assignment, true).expect("a good assignment");
    }
    println!("placed {pods} pods: {:?}", processor_time().saturating_sub(begin));
    println!("memory with pods: {} MiB", (resident_kib() - empty) / 1024);
    restart(&mut allocator);

    let names: Vec<String> = (0..nodes).map(node_name).collect();
    cold(&mut allocator, &names);
    warm(&mut allocator, &names, pods);
    without_unbound(&mut allocator, &names);
    println!("memory at the end: {} MiB", (resident_kib() - empty) / 1024);
}

/// Restores the state from a snapshot.
fn restart(allocator: &mut Allocator) {
    let begin = processor_time();
    let snapshot = allocator.snapshot();
    println!(
        "snapshot of {} MiB: {:?}",
        snapshot.len() >> 20,
        processor_time().saturating_sub(begin)
    );
    let begin = processor_time();
    let mut restored = Allocator::restore(&snapshot).expect("our own snapshot");
    println!("restored: {:?}", processor_time().saturating_sub(begin));
    assert_eq!(restored.digest(), allocator.digest());
}

/// Requests of new classes, for which every node is evaluated.
fn cold(allocator: &mut Allocator, names: &[String]) {
    let [mut filters, mut both, mut full] = [const { Vec::new() }; 3];
    for at in 0..1_000 {
        let mut pod = request(at + 1_000_000, 0);
        pod.containers[0].memory = Memory::Mib(1000 + at as u64);
        let (filter, filtered) = timed(|| allocator.filter(&pod, names, 0).expect("good"));
        let there: Vec<&String> =
            filtered.feasible.iter().map(|node| &names[*node as usize]).collect();
        assert!(!there.is_empty());
        let (score, _) = timed(|| allocator.score(&pod, &there, 0, HOLD_NS).expect("good"));
        allocator.remove(&pod.pod.uid);
        filters.push(filter);
        both.push(filter + score);
        pod.containers[0].memory = Memory::Mib(70_000 + at as u64);
        pod.containers[0].cards = 8;
        full.push(timed(|| allocator.filter(&pod, names, 0).expect("good")).0);
    }
    report("filter, new class", &mut filters);
    report("filter and score, new class", &mut both);
    report("filter, new class, all nodes refused", &mut full);
}

/// The loop of the scheduler: filter, score with a hold, reserve, place; and pods end.
fn warm(allocator: &mut Allocator, names: &[String], pods: usize) {
    let [mut filters, mut scores, mut reserves, mut places, mut both] = [const { Vec::new() }; 5];
    for at in 0..5_000 {
        let pod = request(pods + at, at % KINDS.len());
        let now = at as u64 * 10_000_000;
        let (filter, filtered) =
            timed(|| allocator.filter(&pod, names, now).expect("a good request"));
        let there: Vec<&String> =
            filtered.feasible.iter().map(|node| &names[*node as usize]).collect();
        let (score, rated) = timed(|| allocator.score(&pod, &there, now, HOLD_NS).expect("good"));
        let best = (0..there.len()).max_by_key(|at| rated[*at]);
        // The first pods of each kind fill the cache.
        if at >= KINDS.len() * 4 {
            filters.push(filter);
            scores.push(score);
            both.push(filter + score);
        }
        let Some(best) = best else { continue };
        let (took, assignment) = timed(|| allocator.reserve(&pod, there[best], now));
        reserves.push(took);
        let Ok(assignment) = assignment else { continue };
        places.push(timed(|| allocator.place(&pod, assignment, true).expect("good")).0);
        allocator.remove(&format!("pod-{at:08}"));
    }
    report("filter", &mut filters);
    report("score and hold", &mut scores);
    report("filter and score", &mut both);
    report("reserve", &mut reserves);
    report("place", &mut places);
}

/// Requests that fit nowhere while two thousand pods hold cards: would they fit without these?
fn without_unbound(allocator: &mut Allocator, names: &[String]) {
    let now = HOLD_NS * 100;
    allocator.expire(now);
    let mut pods = (2_000_000..2_100_000).map(|at| request(at, 0)).enumerate();
    for _ in 0..2_000 {
        // Hold cards on the next node with room.
        pods.by_ref().find(|(at, pod)| {
            let there = [&names[at % names.len()]];
            let filtered = allocator.filter(pod, &there, now).expect("good");
            allocator.score(pod, &there, now, HOLD_NS).expect("good");
            !filtered.feasible.is_empty()
        });
    }
    let usage = serde_json::to_string(&allocator.usage()).expect("plain values");
    assert_eq!(usage.matches(r#""state":"held""#).count(), 2_000);
    let mut times = Vec::new();
    for at in 0..200 {
        let mut pod = request(at + 3_000_000, 0);
        pod.containers[0].memory = Memory::Mib(81_920);
        pod.containers[0].cards = 8;
        let (took, fits) = timed(|| {
            allocator.fits_without_unbound(&pod, names, now, now + HOLD_NS).expect("good")
        });
        assert!(!fits);
        times.push(took);
    }
    report("without unbound, 2,000 held", &mut times);
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = processor_time();
    let done = work();
    (processor_time().saturating_sub(begin), done)
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `time` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `python -m bench scheduler` reads these lines.
fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_nanos() as f64 / 1e6;
    let (p50, p99, most) = (at(50), at(99), at(100));
    println!("{what}: p50 {p50:.4} ms, p99 {p99:.4} ms, max {most:.4} ms (n = {})", times.len());
}

fn node_name(at: usize) -> String {
    format!("gpu-node-{at:05}")
}

fn node(at: usize) -> Node {
    let card = |index: u32| Card {
        uuid: format!("GPU-{at:05}-{index}-4b1f-9d0e-6f1d2c3b4a59"),
        index,
        model: if at.is_multiple_of(3) { "NVIDIA H100 80GB HBM3" } else { "NVIDIA A100-SXM4-80GB" }
            .into(),
        memory_mib: 81_920,
        cores: 100,
        slots: 32,
        numa: Some(index / 4),
        healthy: true,
        cordoned: false,
        foreign_mib: 0,
        links: BTreeMap::new(),
        mig: None,
        level: Level::Preload,
    };
    Node {
        name: node_name(at),
        mode: Mode::Full,
        placement: None,
        cards: (0..CARDS).map(card).collect(),
    }
}

/// Memory, cores and cards of common pods.
const KINDS: [(u64, u32, u32); 8] = [
    (3_000, 10, 1),
    (8_000, 20, 1),
    (16_000, 30, 1),
    (10_000, 0, 1),
    (24_000, 40, 1),
    (4_000, 5, 2),
    (30_000, 30, 1),
    (2_000, 10, 1),
];

fn request(at: usize, kind: usize) -> PodRequest {
    let (mib, cores, cards) = KINDS[kind];
    let container = ContainerRequest {
        name: "main".into(),
        kind: Kind::App,
        cards,
        memory: Memory::Mib(mib),
        cores,
    };
    let node_order = if kind.is_multiple_of(2) { Placement::Binpack } else { Placement::Spread };
    PodRequest {
        pod: Pod {
            uid: format!("pod-{at:08}"),
            namespace: format!("team-{}", at % 50),
            name: format!("job-{at}"),
        },
        priority: 0,
        containers: vec![container],
        card_request: CardRequest { node_order: Some(node_order), ..CardRequest::default() },
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
