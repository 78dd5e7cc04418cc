//! Launches of graphs that allocate, and the graph memory pool.

use super::graph_memory::*;
use super::graphs::{add_kernel, graph, instantiate, line};
use super::{allocate, alone, fails, free_bytes, invalid, kernel, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null, null_mut};

/// One kernel takes a second of a clock that moves only when the program waits.
const SLOW: &[(&str, &str)] =
    &[("STUB_GPU_CLOCK", "virtual"), ("STUB_GPU_KERNELS", "*=1000000"), PROFILE];
const AUTO_FREE: u64 = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH as u64;

/// A graph that allocates, runs a kernel of a second, and frees.
fn add_and_free(bytes: usize) -> CUgraph {
    let graph = graph();
    let (node, address) = add_allocation(graph, &[], bytes);
    add_free(graph, &[add_kernel(graph, &[node], kernel(c"slow"))], address);
    graph
}

#[test]
fn a_graph_cannot_be_launched_again_before_its_memory_is_free() {
    alone(&[PROFILE], || {
        start();
        let (maker, freer) = (graph(), graph());
        let (node, address) = add_allocation(maker, &[], MIB);
        let exec = instantiate(maker);
        invalid!(cuMemFree_v2(address));
        ok!(cuGraphLaunch(exec, null_mut()));
        invalid!(cuGraphLaunch(exec, null_mut()));
        ok!(cuMemFree_v2(address));
        invalid!(cuMemFree_v2(address));
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuMemFreeAsync(address, null_mut()));
        ok!(cuGraphLaunch(exec, null_mut()));
        add_free(freer, &[], address);
        let mut own = null_mut();
        invalid!(cuGraphAddMemFreeNode(&raw mut own, maker, &raw const node, 1, address));
        let freer = instantiate(freer);
        ok!(cuGraphLaunch(freer, null_mut()));
        invalid!(cuGraphLaunch(freer, null_mut()));
        ok!(cuGraphLaunch(exec, null_mut()));
        assert_eq!((recorded(), pool()), ([1, 1, 2, 2, 1], (2, 2)));
        ok!(cuGraphExecDestroy(exec));
        let mut exec = null_mut();
        ok!(cuGraphInstantiateWithFlags(&raw mut exec, maker, AUTO_FREE));
        for _ in 0..3 {
            ok!(cuGraphLaunch(exec, null_mut()));
        }
        assert_eq!(recorded()[4], 1);
        assert_eq!(card()["requested"]["peak"], MIB, "it was freed first");
    });
}

#[test]
fn a_graph_can_read_what_it_frees_for_another() {
    alone(&[PROFILE], || {
        start();
        let (maker, reader) = (graph(), graph());
        let (_, address) = add_allocation(maker, &[], 64);
        let maker_exec = instantiate(maker);
        ok!(cuGraphLaunch(maker_exec, null_mut()));
        ok!(cuMemsetD8_v2(address, 5, 64));
        // Only the live allocation and the free node need the address now.
        ok!(cuGraphExecDestroy(maker_exec));
        ok!(cuGraphDestroy(maker));
        let target = allocate(64);
        let mut copy = line(target, null(), 64);
        (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, address);
        let mut copied = null_mut();
        let (out, copy) = (&raw mut copied, &raw const copy);
        ok!(cuGraphAddMemcpyNode(out, reader, null(), 0, copy, null_mut()));
        add_free(reader, &[copied], address);
        ok!(cuGraphLaunch(instantiate(reader), null_mut()));
        let mut back = [0u8; 64];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), target, 64));
        assert_eq!((back, recorded()[4], pool()), ([5; 64], 1, (2, 2)));
    });
}

#[test]
fn concurrent_branches_have_memory_of_their_own() {
    alone(&[PROFILE], || {
        start();
        let graph = graph();
        let mut ends = Vec::new();
        for _ in 0..3 {
            let (node, address) = add_allocation(graph, &[], 4 * MIB);
            ends.push(add_free(graph, &[node], address));
        }
        let (node, address) = add_allocation(graph, &ends, 10 * MIB);
        add_free(graph, &[node], address);
        ok!(cuGraphLaunch(instantiate(graph), null_mut()));
        assert_eq!((pool(), recorded()[4]), ((12, 12), 0));
    });
}

#[test]
fn graphs_on_one_stream_share_memory_and_on_two_streams_do_not() {
    alone(SLOW, || {
        start();
        let (one, two) = (stream(), stream());
        let [first, second, third] = [32, 24, 8].map(|mib| instantiate(add_and_free(mib * MIB)));
        ok!(cuGraphLaunch(first, one));
        ok!(cuGraphLaunch(second, one));
        assert_eq!(pool(), (32, 24), "the second one has taken over");
        ok!(cuGraphLaunch(third, two));
        assert_eq!(pool(), (40, 32), "the first two still run");
        ok!(cuGraphLaunch(first, one));
        assert_eq!(pool(), (40, 40), "mapped again, behind the second one");
        ok!(cuStreamSynchronize(one));
        ok!(cuGraphLaunch(second, two));
        assert_eq!(pool(), (40, 24), "it has taken over from both, as the first one is done");
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 40 << 20);
        let mut zero = 0u64;
        let high = CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
        ok!(cuDeviceSetGraphMemAttribute(0, high, (&raw mut zero).cast()));
        assert_eq!(attribute(high), 24 << 20);
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(pool(), (24, 24), "it still runs");
        ok!(cuCtxSynchronize());
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!((pool(), recorded()), ((0, 0), [0; 5]));
        ok!(cuGraphLaunch(first, one));
        assert_eq!(pool(), (32, 32), "trimmed graphs can be launched");
        assert_eq!(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 40 << 20);
    });
}

#[test]
fn an_allocation_outlives_its_graph() {
    alone(&[PROFILE], || {
        start();
        let graph = graph();
        let (node, address) = add_allocation(graph, &[], MIB);
        let (temporary, other) = add_allocation(graph, &[node], 7 * MIB);
        add_free(graph, &[temporary], other);
        let exec = instantiate(graph);
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuMemsetD8_v2(address, 9, MIB));
        assert_eq!(pool(), (8, 8));
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphDestroy(graph));
        assert_eq!((pool(), recorded()), ((8, 8), [1, 7, 8, 8, 1]), "it stays mapped");
        invalid!(cuMemsetD8_v2(other, 9, 1));
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!((pool(), recorded()), ((2, 2), [1, 1, 2, 2, 1]));
        let mut byte = 0u8;
        ok!(cuMemcpyDtoH_v2((&raw mut byte).cast(), address + 5, 1));
        assert_eq!(byte, 9);
        ok!(cuMemFreeAsync(address, null_mut()));
        invalid!(cuMemsetD8_v2(address, 9, 1));
        assert_eq!(pool(), (2, 2));
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!((pool(), recorded()), ((0, 0), [0; 5]));
    });
}

#[test]
fn a_launch_without_room_does_nothing() {
    alone(&[PROFILE], || {
        start();
        let graph = graph();
        let (node, address) = add_allocation(graph, &[], 64 * MIB);
        let target = allocate(4);
        let copy = line(target, [1u8, 2, 3, 4].as_ptr(), 4);
        let mut copied = null_mut();
        let (out, copy) = (&raw mut copied, &raw const copy);
        ok!(cuGraphAddMemcpyNode(out, graph, &raw const node, 1, copy, null_mut()));
        let mut exec = null_mut();
        let rest = allocate(free_bytes() - 63 * MIB);
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
            hUploadStream: null_mut(),
            hErrNode_out: null_mut(),
            result_out: 9,
        };
        let out = &raw mut exec;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiateWithParams(out, graph, &raw mut params));
        assert_eq!(params.result_out, CUDA_GRAPH_INSTANTIATE_ERROR);
        let exec = instantiate(graph);
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload(exec, null_mut()));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, null_mut()));
        let mut back = [9u8; 4];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), target, 4));
        assert_eq!((back, pool(), free_bytes()), ([0; 4], (0, 0), 63 * MIB));
        invalid!(cuMemFree_v2(address));
        ok!(cuMemFree_v2(rest));
        ok!(cuGraphUpload(exec, null_mut()));
        assert_eq!((pool(), recorded()[4]), ((64, 64), 1), "mapped, not allocated");
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), target, 4));
        assert_eq!((back, recorded()[4]), ([1, 2, 3, 4], 2));
    });
}

#[test]
fn each_device_has_its_own_pool() {
    alone(&[("STUB_GPU_PROFILE", "t4,t4")], || {
        start();
        let graph = graph();
        let (first, _) = add_allocation(graph, &[], MIB);
        let (mut second, mut described) = (null_mut(), params(3 * MIB));
        described.poolProps.location.unnamed1.id = 1;
        let access = CUmemAccessDesc {
            location: described.poolProps.location,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        (described.accessDescs, described.accessDescCount) = (&raw const access, 1);
        ok!(cuGraphAddMemAllocNode(
            &raw mut second,
            graph,
            &raw const first,
            1,
            &raw mut described
        ));
        ok!(cuGraphLaunch(instantiate(graph), null_mut()));
        let mut device = 0i32;
        let place = (&raw mut device).cast();
        ok!(cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, described.dptr));
        let mut reserved = 0u64;
        let attribute = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        ok!(cuDeviceGetGraphMemAttribute(1, attribute, (&raw mut reserved).cast()));
        assert_eq!((pool(), reserved, device), ((2, 2), 4 << 20, 1));
        ok!(cuMemFree_v2(described.dptr));
        ok!(cuDeviceGraphMemTrim(1));
        ok!(cuDeviceGetGraphMemAttribute(1, attribute, (&raw mut reserved).cast()));
        assert_eq!((pool(), reserved), ((2, 2), 0));
    });
}

#[test]
fn threads_launch_free_and_trim_at_once() {
    alone(&[PROFILE], || {
        let context = start() as usize;
        let work = |mib: usize| {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(context)));
            let on = stream();
            for _ in 0..50 {
                let graph = graph();
                let (node, kept) = add_allocation(graph, &[], mib * MIB);
                let (other, temporary) = add_allocation(graph, &[node], MIB);
                add_free(graph, &[other], temporary);
                let exec = instantiate(graph);
                for _ in 0..3 {
                    ok!(cuGraphLaunch(exec, on));
                    ok!(cuMemFreeAsync(kept, on));
                    ok!(cuDeviceGraphMemTrim(0));
                }
                ok!(cuGraphExecDestroy(exec));
                ok!(cuGraphDestroy(graph));
            }
        };
        std::thread::scope(|scope| {
            for mib in [1, 5, 9] {
                scope.spawn(move || work(mib));
            }
        });
        ok!(cuCtxSynchronize());
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!((pool(), recorded()), ((0, 0), [0; 5]));
    });
}
