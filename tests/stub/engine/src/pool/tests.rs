//! Pools against a plain list of allocations, and against the ledger.

use super::*;
use crate::ledger::{Kind, Ledger};
use crate::profile;

const MIB: u64 = 1 << 20;
const FIRST: u64 = 1;
const SECOND: u64 = 2;

fn pool_of(chunks: u64) -> Pool {
    let mut pool = Pool::default();
    for chunk in 0..chunks {
        pool.grow(chunk * CHUNK, CHUNK);
    }
    pool
}

/// A mark that is done from an instant on.
fn at(instant: u64) -> Mark {
    Mark::from_bits(instant)
}

fn find_spot(pool: &Pool, bytes: u64, stream: u64, instant: u64) -> Option<Spot> {
    pool.find_room(bytes, stream, |mark| mark <= at(instant))
}

fn allocate(pool: &mut Pool, bytes: u64, stream: u64, instant: u64) -> Option<u64> {
    let spot = find_spot(pool, bytes, stream, instant)?;
    Some(pool.take(spot, bytes))
}

#[test]
fn small_requests_grow_a_pool_by_32_mib_and_large_ones_by_whole_2_mib() {
    assert_eq!(rooms(1), Some([32 * MIB, 2 * MIB]));
    assert_eq!(rooms(32 * MIB), Some([32 * MIB, 32 * MIB]));
    assert_eq!(rooms(32 * MIB + 1), Some([34 * MIB, 34 * MIB]));
    assert_eq!(rooms(u64::MAX), None);
}

#[test]
fn freed_room_is_the_streams_own_at_once_and_everyones_later() {
    let mut pool = pool_of(1);
    let offset = allocate(&mut pool, CHUNK, FIRST, 0).expect("an empty chunk");
    assert_eq!(pool.free(offset, FIRST, at(100)), Some(CHUNK));
    assert_eq!(find_spot(&pool, 1, SECOND, 99), None, "the first stream has not got there");
    assert!(find_spot(&pool, CHUNK, SECOND, 100).is_some());
    assert!(find_spot(&pool, CHUNK, FIRST, 0).is_some());
}

#[test]
fn a_stream_joins_its_own_room_with_what_is_everyones() {
    let mut pool = pool_of(1);
    let offset = allocate(&mut pool, 20 * MIB, FIRST, 0).expect("room");
    pool.free(offset, FIRST, at(100)).expect("live");
    assert_eq!(allocate(&mut pool, 30 * MIB, SECOND, 0), None);
    assert_eq!(allocate(&mut pool, 30 * MIB, FIRST, 0), Some(0));
    assert_eq!(allocate(&mut pool, 2 * MIB, SECOND, 0), Some(30 * MIB), "what was left over");
    assert_eq!(pool.find(30 * MIB - 1), Some(Live { base: 0, bytes: 30 * MIB }));
    assert_eq!(pool.free(1, FIRST, at(0)), None, "inner addresses cannot be freed");
}

#[test]
fn only_whole_chunks_are_released_and_only_after_every_stream() {
    let mut pool = pool_of(3);
    let all: Vec<_> =
        (0..3).map(|_| allocate(&mut pool, CHUNK, FIRST, 0).expect("a chunk each")).collect();
    pool.free(all[0], FIRST, at(50)).expect("live");
    pool.free(all[1], FIRST, at(0)).expect("live");
    let small = allocate(&mut pool, 1, SECOND, 0).expect("room");
    assert_eq!(small, all[1]);
    assert_eq!(pool.shrink(0), (vec![], 0), "one is pending, one is used a little");
    pool.share_done(|mark| mark <= at(50));
    pool.free(small, SECOND, at(0)).expect("live");
    assert_eq!(pool.shrink(2 * CHUNK), (vec![CHUNK], CHUNK), "at least as much is kept");
    assert_eq!(pool.shrink(0), (vec![0], CHUNK));
    assert_eq!((pool.reserved.now, pool.reserved.peak), (CHUNK, 3 * CHUNK));
}

/// A fixed sequence of allocations and frees on three streams, from two pools on a small card.
#[test]
fn whatever_pools_do_the_ledger_holds_what_they_reserve() {
    let cards = profile::cards("t4").expect("cards");
    let mut ledger = Ledger::new(&cards);
    let client = ledger.attach(1, "");
    let capacity = cards[0].profile.usable();
    ledger.charge(client, 0, Kind::Context, capacity - 5 * CHUNK).expect("a small card");
    let mut pools = [Pool::default(), Pool::default()];
    let mut next_chunk = 0;
    let mut random: u64 = 1;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let (mut grown, mut again, mut refused) = (0, 0, 0);
    for now in 0..6_000 {
        let pool = &mut pools[next(2) as usize];
        if now % 100 == 0 {
            // So that there is something to grow again.
            for offset in pool.live() {
                let bytes = pool.free(offset, FIRST, at(0)).expect("live");
                ledger.release_pool(client, 0, bytes, 0).expect("charged");
            }
        }
        let stream = next(3);
        match next(8) {
            0..4 => {
                let power = 9 + next(17);
                let bytes = 1 + next(1 << power);
                let spot = find_spot(pool, bytes, stream, now);
                let wanted = if spot.is_some() { [0; 2] } else { rooms(bytes).expect("small") };
                match ledger.charge_pool(client, 0, wanted, bytes).expect("room was found") {
                    None => refused += 1,
                    Some(room) => {
                        let spot = spot.unwrap_or_else(|| {
                            next_chunk += 4 * CHUNK;
                            pool.grow(next_chunk, room)
                        });
                        let offset = pool.take(spot, bytes);
                        assert_eq!(pool.find(offset), Some(Live { base: offset, bytes }));
                        if room > 0 { grown += 1 } else { again += 1 }
                    }
                }
            }
            4..7 => {
                let live = pool.live();
                if let Some(&offset) = live.get(next(live.len().max(1) as u64) as usize) {
                    let bytes = pool.free(offset, stream, at(now + next(50))).expect("live");
                    ledger.release_pool(client, 0, bytes, 0).expect("charged");
                }
            }
            _ => {
                pool.share_done(|mark| mark <= at(now));
                let (_, bytes) = pool.shrink(next(4) * CHUNK);
                ledger.release_pool(client, 0, 0, bytes).expect("cached");
            }
        }
        check(&pools, &ledger);
    }
    assert!(grown > 50 && again > 1000 && refused > 20, "{grown} {again} {refused}");
    ledger.detach(client);
    ledger.free_all(client);
    let left = &ledger.cards[0].all;
    assert_eq!((left.bytes(), left.held.now, left.cached.now, left.allocations), (0, 0, 0, 0));
}

fn check(pools: &[Pool], ledger: &Ledger) {
    let sum = |of: fn(&Pool) -> u64| pools.iter().map(of).sum::<u64>();
    let (reserved, used) = (sum(|pool| pool.reserved.now), sum(|pool| pool.used.now));
    let all = &ledger.cards[0].all;
    assert_eq!(
        (all.held.now, all.requested.now, all.cached.now),
        (reserved, used, reserved - used)
    );
    assert_eq!(all.allocations, sum(|pool| pool.live.len() as u64));
    for pool in pools {
        for (&offset, chunk) in &pool.chunks {
            // Live and free ranges lie side by side and fill the chunk.
            let live = pool.live.range(offset..offset + chunk.size);
            let live = live.map(|(start, bytes)| (*start, bytes.next_multiple_of(ALIGNMENT)));
            let free = chunk.free.iter().map(|(start, free)| (*start, free.size));
            let mut ranges: Vec<_> = live.chain(free).collect();
            ranges.sort_unstable();
            let mut end = offset;
            for (start, size) in ranges {
                assert_eq!(start, end);
                end += size;
            }
            assert_eq!(end, offset + chunk.size);
        }
    }
}
