//! Allocation and free nodes: addresses, rules, and captures.

use super::graphs::{add_empty, graph, instantiate, line};
use super::{allocate, alone, fails, free_bytes, invalid, kernel, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null, null_mut};

pub const MIB: usize = 1 << 20;
pub const PROFILE: (&str, &str) = ("STUB_GPU_PROFILE", "t4");
/// The parameters of an allocation node on device 0.
pub fn params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: numbers and addresses: zero is valid.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    params
}

pub fn add_allocation(
    graph: CUgraph,
    after: &[CUgraphNode],
    bytes: usize,
) -> (CUgraphNode, CUdeviceptr) {
    let (mut node, mut params) = (null_mut(), params(bytes));
    let (count, after) = (after.len(), after.as_ptr());
    ok!(cuGraphAddMemAllocNode(&raw mut node, graph, after, count, &raw mut params));
    (node, params.dptr)
}

pub fn add_free(graph: CUgraph, after: &[CUgraphNode], address: CUdeviceptr) -> CUgraphNode {
    let mut node = null_mut();
    ok!(cuGraphAddMemFreeNode(&raw mut node, graph, after.as_ptr(), after.len(), address));
    node
}

pub fn stream() -> CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING));
    stream
}

pub fn attribute(attribute: CUgraphMem_attribute) -> u64 {
    let mut value = 0u64;
    ok!(cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast()));
    value
}

/// The pool's reserved and used MiB.
pub fn pool() -> (u64, u64) {
    let mib = |kind| attribute(kind) >> 20;
    (mib(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), mib(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT))
}

/// The whole card in the ledger.
pub fn card() -> serde_json::Value {
    let report = super::report().expect("in process");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["cards"][0].clone()
}

/// Requested, cached, held and graph pools' MiB of the whole card, and live allocations.
pub fn recorded() -> [u64; 5] {
    let card = card();
    let now = |what: &str| card[what]["now"].as_u64().expect("a number");
    assert_eq!(card["used"], now("held") + now("context"));
    let allocations = card["allocations"].as_u64().expect("a number");
    let mib = |what| now(what) >> 20;
    [mib("requested"), mib("cached"), mib("held"), mib("graphs"), allocations]
}

#[test]
fn a_node_has_its_address_and_its_bytes_before_any_launch() {
    alone(&[PROFILE], || {
        start();
        let (graph, free) = (graph(), free_bytes());
        let (node, address) = add_allocation(graph, &[], 3 * MIB);
        let (mut base, mut size) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address + 5));
        assert_eq!((base, size), (address, 3 * MIB));
        let mut kind = 0u32;
        let kind_place = (&raw mut kind).cast();
        ok!(cuPointerGetAttribute(kind_place, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        assert_eq!(kind, CU_MEMORYTYPE_DEVICE);
        let from = [7u8; 64];
        let copy = line(address, from.as_ptr(), 64);
        let mut copied = null_mut();
        ok!(cuGraphAddMemcpyNode(
            &raw mut copied,
            graph,
            &raw const node,
            1,
            &raw const copy,
            null_mut()
        ));
        let exec = instantiate(graph);
        assert_eq!((free_bytes(), recorded()), (free, [0; 5]), "nothing is taken yet");
        ok!(cuGraphLaunch(exec, null_mut()));
        assert_eq!((recorded(), pool()), ([3, 1, 4, 4, 1], (4, 4)));
        assert_eq!(free - free_bytes(), 4 * MIB);
        let mut back = [0u8; 64];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, 64));
        assert_eq!(back, from);
        let mut read = params(0);
        ok!(cuGraphMemAllocNodeGetParams(node, &raw mut read));
        assert_eq!((read.dptr, read.bytesize, read.accessDescCount), (address, 3 * MIB, 0));
        invalid!(cuGraphMemAllocNodeGetParams(copied, &raw mut read));
        let freed = add_free(graph, &[copied], address);
        let mut read = 0;
        ok!(cuGraphMemFreeNodeGetParams(freed, &raw mut read));
        assert_eq!(read, address);
    });
}

#[test]
fn bad_parameters_and_addresses_are_refused() {
    alone(&[PROFILE], || {
        start();
        let (graph, mut node) = (graph(), null_mut());
        let out = &raw mut node;
        let changes: [fn(&mut CUDA_MEM_ALLOC_NODE_PARAMS); 5] = [
            |params| params.bytesize = 0,
            |params| params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID,
            |params| params.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            |params| params.accessDescCount = 1,
            |params| params.poolProps.location.r#type = CU_MEM_LOCATION_TYPE_INVALID,
        ];
        for change in changes {
            let mut bad = params(64);
            change(&mut bad);
            invalid!(cuGraphAddMemAllocNode(out, graph, null(), 0, &raw mut bad));
        }
        for address in [0, 64, allocate(64)] {
            invalid!(cuGraphAddMemFreeNode(out, graph, null(), 0, address));
        }
        let mut count = 9;
        ok!(cuGraphGetNodes(graph, null_mut(), &raw mut count));
        assert_eq!(count, 0);
        fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(7));
        let mut value = 1u64;
        let place = (&raw mut value).cast();
        invalid!(cuDeviceGetGraphMemAttribute(0, 4, place));
        let (high, now) = (CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
        invalid!(cuDeviceSetGraphMemAttribute(0, high, place));
        invalid!(cuDeviceSetGraphMemAttribute(0, now, place));
    });
}

#[test]
fn a_graph_with_memory_nodes_frees_once_and_is_instantiated_once() {
    alone(&[PROFILE], || {
        start();
        let (graph, other) = (graph(), graph());
        let (node, address) = add_allocation(graph, &[], 64);
        add_free(graph, &[node], address);
        let mut made = null_mut();
        for (graph, after) in [(graph, &[node][..]), (other, &[])] {
            invalid!(cuGraphAddMemFreeNode(
                &raw mut made,
                graph,
                after.as_ptr(),
                after.len(),
                address
            ));
        }
        let (first, mut second) = (instantiate(graph), null_mut());
        invalid!(cuGraphInstantiateWithFlags(&raw mut second, graph, 0));
        ok!(cuGraphExecDestroy(first));
        let (exec, on) = (instantiate(graph), stream());
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(exec, on));
    });
}

#[test]
fn a_free_node_comes_after_its_allocation_node() {
    alone(&[PROFILE], || {
        start();
        let graph = graph();
        let (_, address) = add_allocation(graph, &[], 64);
        let freed = add_free(graph, &[add_empty(graph, &[])], address);
        let (mut exec, mut fault) = (null_mut(), null_mut());
        invalid!(cuGraphInstantiate_v2(&raw mut exec, graph, &raw mut fault, null_mut(), 0));
        assert_eq!(fault, freed);
    });
}

/// Captures as `PyTorch` does with `cudaMallocAsync`: temporaries come and go on one stream.
#[test]
fn captured_allocations_share_addresses() {
    alone(&[PROFILE], || {
        start();
        let (on, function, mut graph) = (stream(), kernel(c"k"), null_mut());
        ok!(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        let allocate = || {
            let mut pointer = 0;
            ok!(cuMemAllocAsync(&raw mut pointer, 4 * MIB, on));
            pointer
        };
        let mut addresses = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let (input, output) = (allocate(), allocate());
            super::launch(function, on);
            ok!(cuMemsetD8Async(output, 1, 4 * MIB, on));
            ok!(cuMemFreeAsync(input, on));
            ok!(cuMemFreeAsync(output, on));
            addresses.extend([input, output]);
        }
        ok!(cuStreamEndCapture(on, &raw mut graph));
        assert_eq!((addresses.len(), recorded()), (2, [0; 5]));
        let exec = instantiate(graph);
        for _ in 0..100 {
            ok!(cuGraphLaunch(exec, on));
        }
        ok!(cuStreamSynchronize(on));
        assert_eq!((recorded(), pool()), ([0, 8, 8, 8, 0], (8, 8)));
        let peaks = card();
        assert_eq!(
            (&peaks["requested"]["peak"], &peaks["held"]["peak"]),
            (&(8 * MIB).into(), &(8 * MIB).into())
        );
        let (mut nodes, mut kind) = (super::graphs::nodes(graph), 0);
        ok!(cuGraphNodeGetType(nodes.remove(0), &raw mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    });
}

/// As an H200 with driver 580 does it.
#[test]
fn a_node_gets_its_address_by_its_dependencies() {
    alone(&[("STUB_GPU_PROFILE", "h200-coarse")], || {
        start();
        let sequential = graph();
        let (node, first) = add_allocation(sequential, &[], 64 * MIB);
        let freed = add_free(sequential, &[node], first);
        let (node, second) = add_allocation(sequential, &[freed], 96 * MIB);
        let freed = add_free(sequential, &[node], second);
        let (node, third) = add_allocation(sequential, &[freed], 32 * MIB);
        add_free(sequential, &[node], third);
        assert_eq!((second - first, third), (64 << 20, first));
        let exec = instantiate(sequential);
        ok!(cuGraphUpload(exec, null_mut()));
        assert_eq!(pool(), (160, 160));
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(pool(), (160, 160), "it stays mapped");
        ok!(cuDeviceGraphMemTrim(0));
        assert_eq!(pool(), (0, 0));

        let late = graph();
        let (node, first) = add_allocation(late, &[], 45 * MIB);
        add_free(late, &[node], first);
        let (node, second) = add_allocation(late, &[], 3 * MIB);
        add_free(late, &[node], second);
        assert_eq!(second - first, 45 << 20);
        ok!(cuGraphLaunch(instantiate(late), null_mut()));
        assert_eq!((pool(), recorded()), ((64, 64), [0, 64, 64, 64, 0]), "units of 32 MiB");
    });
}

#[test]
fn allocations_at_one_address_are_found_by_their_own_size() {
    alone(&[PROFILE], || {
        start();
        let graph = graph();
        let (node, address) = add_allocation(graph, &[], 8 * MIB);
        let freed = add_free(graph, &[node], address);
        let (second, again) = add_allocation(graph, &[freed], 2 * MIB);
        assert_eq!(again, address);
        let range = || {
            let (mut base, mut size) = (0, 0);
            ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address + 5));
            (base, size)
        };
        assert_eq!(range(), (address, 2 * MIB), "the latest");
        // The first one still has its last byte.
        ok!(cuMemsetD8_v2(address, 1, 8 * MIB));
        invalid!(cuMemsetD8_v2(address, 1, 8 * MIB + 1));
        let freed = add_free(graph, &[second], again);
        let mut node = null_mut();
        invalid!(cuGraphAddMemFreeNode(&raw mut node, graph, &raw const freed, 1, address));
        let (_, kept) = add_allocation(graph, &[freed], MIB);
        assert_eq!(kept, address);
        ok!(cuGraphLaunch(instantiate(graph), null_mut()));
        assert_eq!((recorded(), pool()), ([1, 7, 8, 8, 1], (8, 8)));
        ok!(cuGraphDestroy(graph));
        ok!(cuMemFree_v2(address));
        invalid!(cuMemFree_v2(address));
        assert_eq!(recorded()[4], 0);
    });
}

#[test]
fn a_capture_frees_only_memory_of_graphs() {
    alone(&[PROFILE], || {
        start();
        let (on, mut pointer, mut graph) = (stream(), 0, null_mut());
        ok!(cuMemAllocAsync(&raw mut pointer, 64, on));
        ok!(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
        invalid!(cuMemFreeAsync(pointer, on));
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(on, &raw mut graph));
        ok!(cuMemFreeAsync(pointer, on));
        let mut pool = null_mut();
        ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
        ok!(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ok!(cuMemAllocFromPoolAsync_ptsz(&raw mut pointer, 64, pool, on));
        ok!(cuStreamEndCapture(on, &raw mut graph));
        let exec = instantiate(graph);
        ok!(cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch(exec, on));
        fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(on, &raw mut graph));
        ok!(cuGraphLaunch(exec, on));
        ok!(cuMemFreeAsync_ptsz(pointer, on));
        assert_eq!(recorded()[4], 0);
    });
}
