//! The layout of a graph's allocations, and who has which memory of the pool.

use super::layout::{Ancestors, Place, Request, place};
use super::{PAGE, Pool, Uses};
use crate::time::Mark;

fn chain(count: usize) -> Ancestors {
    let before = |step: usize| step.checked_sub(1).into_iter().collect();
    let places: Vec<_> = (0..count).map(|step| Place { after: before(step), branch: 0 }).collect();
    Ancestors::new(&places)
}

fn request(step: usize, free: Option<usize>, bytes: u64) -> Request {
    Request { step, free, bytes }
}

#[test]
fn allocations_share_bytes_if_one_is_freed_before_the_other() {
    let requests = [
        request(0, Some(2), 1000),
        request(1, None, 100),
        request(3, Some(5), 1024),
        request(4, None, 1),
    ];
    let (offsets, footprint) = place(&requests, &chain(6)).expect("small");
    assert_eq!((offsets, footprint), (vec![0, 1024, 0, 1536], PAGE));
    let too_large = [request(0, None, u64::MAX)];
    assert!(place(&too_large, &chain(1)).is_none());
}

#[test]
fn concurrent_branches_share_nothing_until_they_join() {
    // 0 before 1 and 3; 1 before 2; 3 before 4; 2 and 4 before 5.
    let places =
        [(vec![], 0), (vec![0], 0), (vec![1], 0), (vec![0], 1), (vec![3], 1), (vec![2, 4], 0)];
    let places = places.map(|(after, branch)| Place { after, branch });
    let ancestors = Ancestors::new(&places);
    assert!(ancestors.precedes(0, 4) && ancestors.precedes(3, 5));
    assert!(!ancestors.precedes(1, 3) && !ancestors.precedes(4, 4));
    let requests =
        [request(1, Some(2), PAGE), request(3, Some(4), PAGE), request(5, None, 2 * PAGE)];
    let (offsets, footprint) = place(&requests, &ancestors).expect("small");
    assert_eq!((offsets, footprint), (vec![0, PAGE, 0], 2 * PAGE));
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
    let mut pool = Pool::default();
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
    let mut pool = Pool::default();
    map(&mut pool, 1, 4, 10, &[]);
    pool.allocate(500, 1, PAGE - 1, 2);
    pool.allocate(600, 1, 3 * PAGE, 1);
    assert_eq!(map(&mut pool, 2, 1, 10, &[]), 1);
    pool.end(1);
    assert_eq!(levels(&pool), (5, 4), "three pages have live bytes");
    assert_eq!(pool.free(500, 10, Mark::NONE), Some(2));
    assert_eq!(pool.free(500, 10, Mark::NONE), None);
    assert_eq!(levels(&pool), (5, 2));
    assert_eq!(pool.trim(|_| true), 4 * PAGE, "all but the live one's page");
    assert_eq!((levels(&pool), pool.is_mapped(2)), ((1, 1), false));
    assert_eq!(pool.clear(), (1, 1));
    assert_eq!((levels(&pool), pool.reserved.peak), ((0, 0), 5 * PAGE));
}

#[test]
fn a_launch_in_progress_keeps_its_memory() {
    let mut pool = Pool::default();
    map(&mut pool, 1, 1, 10, &[]);
    pool.pin(1);
    assert_eq!(pool.trim(|_| true), 0);
    assert_eq!(map(&mut pool, 2, 1, 10, &[]), 1);
    pool.unpin(1, 10, Mark::NONE);
    assert_eq!(pool.trim(|_| true), 2 * PAGE);
}
