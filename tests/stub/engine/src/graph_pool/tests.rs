//! The layout of a graph's allocations, and who has which memory of the pool.

use super::layout::{Ancestors, Layout, footprint};
use super::{Pool, Uses};
use crate::time::Mark;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;

/// The nodes of a graph that allocate or free on one device.
#[derive(Default)]
struct Graph {
    ancestors: Ancestors,
    nodes: usize,
}

impl Graph {
    fn add(&mut self, after: &[usize]) -> usize {
        self.ancestors.push(after);
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds a node that allocates.
    fn allocate(&mut self, layout: &mut Layout, after: &[usize], bytes: u64) -> (usize, u64) {
        let node = self.add(after);
        (node, layout.place(bytes, node, &self.ancestors).expect("it fits"))
    }

    /// Adds a node that frees.
    fn free(&mut self, layout: &mut Layout, after: &[usize], offset: u64) -> usize {
        let node = self.add(after);
        layout.free(offset, node);
        node
    }
}

/// The offsets in MiB of allocations that are made and freed one after the other.
fn sequence(sizes: &[u64]) -> Vec<u64> {
    let (mut graph, mut layout) = (Graph::default(), Layout::new(1 << 30));
    let mut last = graph.add(&[]);
    let mut place = |size: &u64| {
        let (node, offset) = graph.allocate(&mut layout, &[last], size * MIB);
        last = graph.free(&mut layout, &[node], offset);
        offset / MIB
    };
    sizes.iter().map(&mut place).collect()
}

/// As an H200 with driver 580 does it, here and in the next two tests.
#[test]
fn an_allocation_gets_the_first_hole_that_fits_and_none_is_extended() {
    assert_eq!(sequence(&[64, 64]), [0, 0]);
    assert_eq!(sequence(&[64, 96, 32]), [0, 64, 0]);
    assert_eq!(sequence(&[48; 4]), [0; 4]);
    let (mut graph, mut layout) = (Graph::default(), Layout::new(1 << 30));
    let (first, a) = graph.allocate(&mut layout, &[], 22 * MIB);
    let (second, b) = graph.allocate(&mut layout, &[first], 45 * MIB);
    let (third, c) = graph.allocate(&mut layout, &[second], 22 * MIB);
    let freed = graph.free(&mut layout, &[third], a);
    let freed = graph.free(&mut layout, &[freed], c);
    let (_, d) = graph.allocate(&mut layout, &[freed], 44 * MIB);
    assert_eq!([a, b, c, d].map(|offset| offset / MIB), [0, 22, 67, 89]);
    let ranges = [(a, 22), (b, 45), (c, 22), (d, 44)].map(|(start, size)| (start, size * MIB));
    assert_eq!(footprint(ranges, 32 * MIB), 160 * MIB);
}

#[test]
fn small_allocations_are_packed() {
    let (mut graph, mut layout) = (Graph::default(), Layout::new(1 << 30));
    let sizes = [512, 4096, 65536, MIB, 2 * MIB + 1];
    let place = |size| graph.allocate(&mut layout, &[], size).1;
    assert_eq!(sizes.map(place), [0, 512, 4608, 70144, 70144 + MIB]);
    assert!(layout.place(u64::MAX, 0, &graph.ancestors).is_none());
    assert!(layout.place(1 << 30, 0, &graph.ancestors).is_none());
}

#[test]
fn concurrent_branches_share_nothing_until_they_join() {
    let (mut graph, mut layout) = (Graph::default(), Layout::new(1 << 30));
    let (one, first) = graph.allocate(&mut layout, &[], PAGE);
    let (two, second) = graph.allocate(&mut layout, &[], PAGE);
    let ends = [graph.free(&mut layout, &[one], first), graph.free(&mut layout, &[two], second)];
    let (joined, third) = graph.allocate(&mut layout, &ends, 2 * PAGE);
    assert_eq!((first, second, third), (0, PAGE, 0));
    let (_, behind) = graph.allocate(&mut layout, &[ends[1]], 1);
    assert_eq!(behind, 2 * PAGE, "the joined one may have all bytes at the same time");
    assert!(graph.ancestors.precedes(one, joined) && graph.ancestors.precedes(two, joined));
    assert!(!graph.ancestors.precedes(one, two) && !graph.ancestors.precedes(one, one));
}

#[test]
fn a_footprint_has_each_unit_once() {
    assert_eq!(footprint([], PAGE), 0);
    assert_eq!(footprint([(5, 1), (0, 4), (PAGE - 1, 2)], PAGE), 2 * PAGE);
    assert_eq!(footprint([(8 * PAGE, 1), (0, 3 * PAGE), (PAGE, 5)], PAGE), 4 * PAGE);
}

/// Maps for an owner on a stream where the given marks are done; returns by how much the pool grew.
fn map(pool: &mut Pool, owner: u64, pages: u64, stream: u64, done: &[Mark]) -> u64 {
    let is_over =
        |uses: &Uses| uses.each().all(|(other, mark)| other == stream || done.contains(&mark));
    let plan = pool.plan(pages * PAGE, is_over);
    pool.map(owner, pages * PAGE, &plan);
    plan.missing / PAGE
}

fn levels(pool: &Pool) -> (u64, u64) {
    (pool.reserved.now / PAGE, pool.used.now / PAGE)
}

#[test]
fn the_next_graph_takes_over_what_is_idle() {
    let mut pool = Pool::new(PAGE);
    let (first, second) = (Mark::new(1, 1), Mark::new(2, 1));
    assert_eq!(map(&mut pool, 1, 4, 10, &[]), 4);
    pool.unpin(1, 10, first);
    assert_eq!(map(&mut pool, 2, 3, 20, &[]), 3, "the first one runs on another stream");
    pool.unpin(2, 20, second);
    assert_eq!(map(&mut pool, 3, 2, 10, &[]), 0, "behind it on its stream");
    pool.unpin(3, 10, Mark::new(1, 2));
    assert!(!pool.is_mapped(1));
    assert_eq!(levels(&pool), (7, 5));
    assert_eq!(map(&mut pool, 4, 2, 30, &[]), 2, "the rest is still in use by the first one");
    assert_eq!(map(&mut pool, 1, 4, 10, &[second]), 0, "the rest, and what the second one had");
    assert!(!pool.is_mapped(2));
    assert_eq!(levels(&pool), (9, 8));
}

#[test]
fn live_allocations_keep_memory_even_without_their_graph() {
    let mut pool = Pool::new(PAGE);
    map(&mut pool, 1, 4, 10, &[]);
    pool.allocate(500, 1, PAGE - 1, 2);
    pool.allocate(600, 1, 3 * PAGE, 1);
    assert_eq!(map(&mut pool, 2, 1, 10, &[]), 1);
    pool.end(1);
    assert_eq!(pool.free(500, 10, Mark::NONE), Some(2));
    assert_eq!(pool.free(500, 10, Mark::NONE), None);
    assert_eq!(levels(&pool), (5, 5), "it stays mapped");
    assert_eq!(map(&mut pool, 3, 1, 10, &[]), 0, "one of the three pages without live bytes");
    assert_eq!(levels(&pool), (5, 5));
    assert_eq!(pool.trim(|_| true), 4 * PAGE, "all but the live one's page");
    assert_eq!((levels(&pool), pool.is_mapped(2)), ((1, 1), false));
    assert_eq!(pool.clear(), (1, 1));
    assert_eq!((levels(&pool), pool.reserved.peak), ((0, 0), 5 * PAGE));
}

#[test]
fn a_launch_in_progress_keeps_its_memory() {
    let mut pool = Pool::new(PAGE);
    map(&mut pool, 1, 1, 10, &[]);
    pool.pin(1);
    assert_eq!(pool.trim(|_| true), 0);
    assert_eq!(map(&mut pool, 2, 1, 10, &[]), 1);
    pool.unpin(1, 10, Mark::NONE);
    assert_eq!(pool.trim(|_| true), 2 * PAGE);
}
