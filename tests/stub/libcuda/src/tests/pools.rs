//! Memory pools: stream order, growth and release, and the ledger.

use super::{allocate, alone, fails, free_bytes, invalid, kernel, launch, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::null_mut;

const MIB: usize = 1 << 20;
/// One kernel takes a second of a clock that moves only when the program waits.
const SLOW: &[(&str, &str)] =
    &[("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "*=1000000"), PROFILE];
const PROFILE: (&str, &str) = ("STUB_GPU_PROFILE", "t4");

fn default_pool() -> CUmemoryPool {
    let mut pool = null_mut();
    ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    pool
}

fn new_pool() -> CUmemoryPool {
    // SAFETY: a structure of numbers and pointers.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    let mut pool = null_mut();
    ok!(cuMemPoolCreate(&raw mut pool, &raw const properties));
    pool
}

fn get(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> u64 {
    let mut value = 0u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

fn set(pool: CUmemoryPool, attribute: CUmemPool_attribute, mut value: u64) {
    ok!(cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()));
}

/// A pool's reserved and allocated MiB.
fn sizes(pool: CUmemoryPool) -> (u64, u64) {
    let of = |attribute| get(pool, attribute) / MIB as u64;
    (of(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), of(CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
}

fn from_pool(bytes: usize, on: CUstream) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(cuMemAllocAsync(&raw mut pointer, bytes, on));
    pointer
}

fn stream() -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING));
    stream
}

/// Requested, cached and held bytes of the whole card, in MiB, and live allocations.
fn recorded() -> (u64, u64, u64, u64) {
    let report = super::report().expect("in process");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let card = &report["cards"][0];
    let now = |what: &str| card[what]["now"].as_u64().expect("a number");
    let mib = |what: &str| now(what) >> 20;
    assert_eq!(card["used"], now("held") - now("managed") + now("context"));
    let allocations = card["allocations"].as_u64().expect("a number");
    (mib("requested"), mib("cached"), mib("held"), allocations)
}

#[test]
fn a_pool_grows_in_chunks_and_releases_them_when_the_program_waits() {
    alone(&[PROFILE], || {
        start();
        let (pool, free) = (default_pool(), free_bytes());
        let small = from_pool(MIB, null_mut());
        assert_eq!((sizes(pool), recorded()), ((32, 1), (1, 31, 32, 1)));
        let large = from_pool(33 * MIB, null_mut());
        assert_eq!((sizes(pool), recorded()), ((66, 34), (34, 32, 66, 2)));
        assert_eq!(free - free_bytes(), 66 * MIB);
        ok!(cuMemFreeAsync(large, null_mut()));
        assert_eq!((sizes(pool), recorded()), ((66, 1), (1, 65, 66, 1)), "not before it waits");
        ok!(cuStreamSynchronize(null_mut()));
        assert_eq!((sizes(pool), recorded()), ((32, 1), (1, 31, 32, 1)));
        ok!(cuMemFree_v2(small));
        invalid!(cuMemFreeAsync(small, null_mut()));
        ok!(cuCtxSynchronize());
        assert_eq!((sizes(pool), recorded()), ((0, 0), (0, 0, 0, 0)));
        assert_eq!(free_bytes(), free);
        assert_eq!(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 66 * MIB as u64);
        assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 34 * MIB as u64);
        set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
        assert_eq!(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    });
}

#[test]
fn only_successful_waits_release_memory() {
    alone(&[PROFILE], || {
        start();
        let pool = default_pool();
        let mut event = null_mut();
        ok!(cuEventCreate(&raw mut event, 0));
        let waits: [fn(CUevent) -> CUresult; 5] = [
            // SAFETY: valid arguments, here and below.
            |_| unsafe { cuStreamQuery(null_mut()) },
            // SAFETY: as above.
            |_| unsafe { cuStreamSynchronize(null_mut()) },
            // SAFETY: as above.
            |event| unsafe { cuEventQuery(event) },
            // SAFETY: as above.
            |event| unsafe { cuEventSynchronize(event) },
            // SAFETY: as above.
            |_| unsafe { cuCtxSynchronize() },
        ];
        for wait in waits {
            ok!(cuMemFreeAsync(from_pool(1, null_mut()), null_mut()));
            ok!(cuEventRecord(event, null_mut()));
            ok!(cuMemcpyHtoD_v2(allocate(1), [1u8].as_ptr().cast(), 1));
            assert_eq!(sizes(pool).0, 32);
            assert_eq!(wait(event), CUDA_SUCCESS);
            assert_eq!(sizes(pool).0, 0);
        }
    });
}

#[test]
fn a_stream_behind_the_free_can_use_the_room() {
    alone(SLOW, || {
        start();
        let (pool, first, second) = (default_pool(), stream(), stream());
        let pointer = from_pool(32 * MIB, first);
        launch(kernel(c"slow"), first);
        ok!(cuMemFreeAsync(pointer, first));
        let mut event = null_mut();
        ok!(cuEventCreate(&raw mut event, 0));
        ok!(cuEventRecord(event, first));
        ok!(cuStreamWaitEvent(second, event, 0));
        assert_eq!((from_pool(32 * MIB, second), sizes(pool)), (pointer, (32, 32)));
    });
}

#[test]
fn a_threshold_keeps_room_and_a_trim_does_not_ask() {
    alone(&[PROFILE], || {
        start();
        let pool = default_pool();
        set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
        let all: Vec<_> = (0..3).map(|_| from_pool(32 * MIB, null_mut())).collect();
        for pointer in all {
            ok!(cuMemFreeAsync(pointer, null_mut()));
        }
        ok!(cuCtxSynchronize());
        assert_eq!((sizes(pool), recorded()), ((96, 0), (0, 96, 96, 0)));
        set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 33 * MIB as u64);
        ok!(cuCtxSynchronize());
        assert_eq!(sizes(pool).0, 64, "one less would be less than the threshold");
        ok!(cuMemPoolTrimTo(pool, 1));
        assert_eq!(sizes(pool).0, 32);
        ok!(cuMemPoolTrimTo(pool, 0));
        assert_eq!((sizes(pool), recorded()), ((0, 0), (0, 0, 0, 0)));
    });
}

#[test]
fn on_a_full_card_a_pool_grows_by_what_it_needs() {
    alone(&[PROFILE], || {
        start();
        allocate(free_bytes() - 5 * MIB);
        let pool = default_pool();
        let pointer = from_pool(3 * MIB, null_mut());
        assert_eq!(sizes(pool), (4, 3));
        let mut none = 0;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&raw mut none, 2 * MIB, null_mut()));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&raw mut none, usize::MAX, null_mut()));
        ok!(cuMemFreeAsync(pointer, null_mut()));
        from_pool(4 * MIB, null_mut());
        assert_eq!((sizes(pool), free_bytes()), ((4, 4), MIB));
    });
}

#[test]
fn a_destroyed_pool_lives_as_long_as_its_allocations() {
    alone(&[PROFILE], || {
        start();
        let (pool, mut current) = (new_pool(), null_mut());
        ok!(cuDeviceSetMemPool(0, pool));
        let pointer = from_pool(MIB, null_mut());
        assert_eq!((sizes(pool).0, sizes(default_pool()).0), (32, 0));
        ok!(cuMemPoolDestroy(pool));
        invalid!(cuMemPoolDestroy(pool));
        invalid!(cuMemPoolTrimTo(pool, 0));
        ok!(cuDeviceGetMemPool(&raw mut current, 0));
        assert_eq!(current, default_pool());
        ok!(cuMemcpyHtoD_v2(pointer, [7u8; 9].as_ptr().cast(), 9));
        assert_eq!(recorded(), (1, 31, 32, 1));
        ok!(cuMemFreeAsync(pointer, null_mut()));
        assert_eq!(recorded(), (0, 0, 0, 0));
        invalid!(cuMemPoolDestroy(default_pool()));
    });
}

#[test]
fn pools_outlive_contexts_and_the_default_one_ends_with_the_primary_contexts_reset() {
    alone(&[PROFILE], || {
        let context = start();
        let other = new_pool();
        let pointer = from_pool(MIB, null_mut());
        let mut second = 0;
        ok!(cuMemAllocFromPoolAsync(&raw mut second, MIB, other, null_mut()));
        allocate(MIB);
        ok!(cuCtxDestroy_v2(context));
        assert_eq!(recorded(), (2, 62, 64, 2), "the linear allocation is freed");
        let mut primary = null_mut();
        ok!(cuDevicePrimaryCtxRetain(&raw mut primary, 0));
        ok!(cuCtxSetCurrent(primary));
        ok!(cuMemcpyHtoD_v2(pointer, [1u8].as_ptr().cast(), 1));
        ok!(cuDevicePrimaryCtxReset_v2(0));
        assert_eq!((sizes(default_pool()), sizes(other)), ((0, 0), (32, 1)));
        assert_eq!(recorded(), (1, 31, 32, 1));
    });
}

#[test]
fn copies_stay_inside_an_allocation_of_a_pool() {
    alone(&[PROFILE], || {
        start();
        let (first, second) = (from_pool(1000, null_mut()), from_pool(1000, null_mut()));
        let data: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        let mut back = vec![0u8; 1000];
        ok!(cuMemcpyHtoDAsync_v2(first, data.as_ptr().cast(), 1000, null_mut()));
        ok!(cuMemcpyDtoD_v2(second, first, 1000));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), second, 1000));
        assert_eq!(back, data);
        invalid!(cuMemsetD8_v2(first, 0, 1001));
        let (mut base, mut size) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, second + 999));
        assert_eq!((base, size), (second, 1000));
        ok!(cuMemFreeAsync(first, null_mut()));
        invalid!(cuMemsetD8_v2(first, 0, 1));
        invalid!(cuMemFreeAsync(second + 512, null_mut()));
    });
}

#[test]
fn either_free_takes_either_kind() {
    alone(&[PROFILE], || {
        start();
        ok!(cuMemFreeAsync(allocate(MIB), null_mut()));
        ok!(cuMemFree_v2(from_pool(MIB, null_mut())));
        assert_eq!(recorded(), (0, 32, 32, 0));
        invalid!(cuMemAllocAsync(&mut 0, 0, null_mut()));
        invalid!(cuMemFreeAsync(0x1234, null_mut()));
    });
}

#[test]
fn threads_on_streams_of_their_own_never_share_room_and_leave_nothing() {
    alone(&[PROFILE], || {
        let context = start() as usize;
        let work = |seed: u64| {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(context)));
            let (mark, stream) = (seed as u8, stream());
            let mut random = seed;
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let mut live: Vec<(CUdeviceptr, usize)> = Vec::new();
            for _ in 0..1500 {
                if live.len() < 8 && next(2) == 0 {
                    let bytes = 1 + next(200_000) as usize;
                    let pointer = from_pool(bytes, stream);
                    ok!(cuMemsetD8Async(pointer, mark, bytes, stream));
                    live.push((pointer, bytes));
                } else if !live.is_empty() {
                    let (pointer, bytes) = live.swap_remove(next(live.len() as u64) as usize);
                    let mut back = vec![0u8; bytes];
                    ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), pointer, bytes, stream));
                    assert!(back.iter().all(|byte| *byte == mark), "another stream wrote here");
                    ok!(cuMemFreeAsync(pointer, stream));
                }
                if next(10) == 0 {
                    ok!(cuStreamSynchronize(stream));
                }
            }
            for (pointer, _) in live {
                ok!(cuMemFreeAsync(pointer, stream));
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..5 {
                scope.spawn(move || work(seed));
            }
        });
        ok!(cuCtxSynchronize());
        assert_eq!(recorded(), (0, 0, 0, 0));
    });
}

fn at_device(id: i32) -> CUmemLocation {
    CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        unnamed1: CUmemLocation_st_unnamed1 { id },
    }
}

#[test]
fn a_pool_reaches_its_own_card_only() {
    alone(&[("STUB_GPU_PROFILE", "t4,t4")], || {
        start();
        let (pool, mut flags) = (new_pool(), 9);
        invalid!(cuDeviceSetMemPool(1, pool));
        for (device, expected) in [(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), (1, 0)] {
            let mut location = at_device(device);
            ok!(cuMemPoolGetAccess(&raw mut flags, pool, &raw mut location));
            assert_eq!(flags, expected);
        }
        let access = |id, flags| CUmemAccessDesc { location: at_device(id), flags };
        let both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        ok!(cuMemPoolSetAccess(pool, &access(0, both), 1));
        fails!(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(pool, &access(1, both), 1));
        invalid!(cuMemPoolSetAccess(pool, &access(0, 0), 1));
        let mut none = 0u64;
        let current = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
        invalid!(cuMemPoolSetAttribute(pool, current, (&raw mut none).cast()));
    });
}

#[test]
fn a_pool_with_a_largest_size_stays_below_it() {
    alone(&[PROFILE], || {
        start();
        // SAFETY: a structure of numbers and pointers.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = at_device(0);
        properties.maxSize = 40 * MIB;
        let mut pool = null_mut();
        ok!(cuMemPoolCreate(&raw mut pool, &raw const properties));
        let mut pointer = 0;
        let mut alloc = |bytes| {
            // SAFETY: every argument is valid.
            unsafe { cuMemAllocFromPoolAsync(&raw mut pointer, bytes, pool, null_mut()) }
        };
        assert_eq!(alloc(32 * MIB), CUDA_SUCCESS);
        assert_eq!(alloc(7 * MIB), CUDA_SUCCESS, "by 8 MiB, where 32 would be too many");
        assert_eq!(alloc(2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(sizes(pool), (40, 39));
        properties.location.r#type = CU_MEM_LOCATION_TYPE_HOST;
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&raw mut pool, &raw const properties));
    });
}
