//! Graphs: built, listed, instantiated, changed, launched.

use super::{allocate, alone, invalid, kernel, ok, start};
use crate::table::*;
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};

pub fn graph() -> CUgraph {
    let mut graph = null_mut();
    ok!(cuGraphCreate(&raw mut graph, 0));
    graph
}

/// The parameters of a launch of one block.
pub fn call(function: CUfunction) -> CUDA_KERNEL_NODE_PARAMS {
    // SAFETY: numbers and addresses: zero is valid.
    let mut call: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    call.func = function;
    (call.gridDimX, call.gridDimY, call.gridDimZ) = (1, 1, 1);
    (call.blockDimX, call.blockDimY, call.blockDimZ) = (32, 1, 1);
    call
}

pub fn add_kernel(graph: CUgraph, after: &[CUgraphNode], function: CUfunction) -> CUgraphNode {
    let mut node = null_mut();
    let call = call(function);
    let (count, after) = (after.len(), after.as_ptr());
    ok!(cuGraphAddKernelNode_v2(&raw mut node, graph, after, count, &raw const call));
    node
}

pub fn add_empty(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = null_mut();
    ok!(cuGraphAddEmptyNode(&raw mut node, graph, after.as_ptr(), after.len()));
    node
}

pub fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = null_mut();
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    exec
}

pub fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, null_mut(), &raw mut count));
    let mut nodes = vec![null_mut(); count];
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    nodes
}

/// A line of bytes between device memory and the host.
pub fn line(to: u64, from: *const u8, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: as above.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, from.cast());
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, to);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    copy
}

#[test]
fn nodes_and_edges_are_returned_as_they_were_added() {
    alone(&[], || {
        start();
        let graph = graph();
        let first = add_kernel(graph, &[], kernel(c"first"));
        let (left, right) = (add_empty(graph, &[first]), add_empty(graph, &[first]));
        let last = add_empty(graph, &[left, right]);
        assert_eq!(nodes(graph), [first, left, right, last]);
        let (mut from, mut to, mut count) = ([null_mut(); 6], [null_mut(); 6], 6);
        let (from_place, to_place) = (from.as_mut_ptr(), to.as_mut_ptr());
        ok!(cuGraphGetEdges(graph, from_place, to_place, &raw mut count));
        assert_eq!((count, from[..4].to_vec()), (4, vec![first, first, left, right]));
        assert_eq!(to, [left, right, last, last, null_mut(), null_mut()]);
        let mut kind = 99;
        ok!(cuGraphNodeGetType(last, &raw mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_EMPTY);
        ok!(cuGraphDestroy(graph));
        invalid!(cuGraphDestroy(graph));
        invalid!(cuGraphNodeGetType(last, &raw mut kind));
    });
}

#[test]
fn errors_of_a_node_are_returned_when_it_is_added() {
    alone(&[], || {
        start();
        let (graph, other) = (graph(), graph());
        let function = kernel(c"k");
        let elsewhere = add_empty(other, &[]);
        let mut node = null_mut();
        let out = &raw mut node;
        let good = call(function);
        let mut bad = good;
        bad.blockDimX = 2048;
        let twice = [add_empty(graph, &[]); 2];
        let nothing = null();
        invalid!(cuGraphAddKernelNode_v2(out, graph, nothing, 0, &raw const bad));
        bad = good;
        bad.func = without_provenance_mut(64);
        invalid!(cuGraphAddKernelNode_v2(out, graph, nothing, 0, &raw const bad));
        invalid!(cuGraphAddKernelNode_v2(out, graph, nothing, 1, &raw const good));
        invalid!(cuGraphAddEmptyNode(out, graph, &raw const elsewhere, 1));
        invalid!(cuGraphAddEmptyNode(out, graph, twice.as_ptr(), 2));
        invalid!(cuGraphAddEmptyNode(null_mut(), graph, nothing, 0));
        invalid!(cuGraphAddEmptyNode(out, without_provenance_mut(64), nothing, 0));
        let copy = line(7, [1u8].as_ptr(), 1);
        invalid!(cuGraphAddMemcpyNode(out, graph, nothing, 0, &raw const copy, null_mut()));
        assert_eq!(nodes(graph).len(), 1, "nothing of that was added");
    });
}

#[test]
fn a_volume_is_copied_slice_by_slice() {
    alone(&[], || {
        start();
        let (graph, memory) = (graph(), allocate(4096));
        let from: Vec<u8> = (0..48).collect();
        let mut copy = line(memory, from.as_ptr(), 4);
        (copy.srcPitch, copy.srcHeight) = (8, 3);
        (copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight) = (2, 1, 1, 16, 4);
        (copy.Height, copy.Depth) = (3, 2);
        let mut node = null_mut();
        ok!(cuGraphAddMemcpyNode(&raw mut node, graph, null(), 0, &raw const copy, null_mut()));
        ok!(cuGraphLaunch(instantiate(graph), null_mut()));
        let mut back = [0u8; 4096];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), memory, 4096));
        for (z, y, x) in [(0, 0, 0), (0, 2, 3), (1, 1, 2)] {
            assert_eq!(back[(z + 1) * 64 + (y + 1) * 16 + x + 2], from[z * 24 + y * 8 + x]);
        }
        assert_eq!(back.iter().filter(|byte| **byte != 0).count(), 23, "and nothing else");
    });
}

#[test]
fn a_step_takes_over_only_work_of_its_kind() {
    alone(&[], || {
        start();
        let (graph, memory, bytes) = (graph(), allocate(64), [7u8; 64]);
        let node = add_kernel(graph, &[], kernel(c"first"));
        let mut copied = null_mut();
        let copy = line(memory, bytes.as_ptr(), 64);
        ok!(cuGraphAddMemcpyNode(&raw mut copied, graph, null(), 0, &raw const copy, null_mut()));
        let exec = instantiate(graph);
        let mut call = call(kernel(c"second"));
        ok!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const call));
        invalid!(cuGraphExecKernelNodeSetParams_v2(exec, copied, &raw const call));
        call.gridDimX = 0;
        invalid!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const call));
        let mut shorter = line(memory, bytes.as_ptr(), 8);
        ok!(cuGraphExecMemcpyNodeSetParams(exec, copied, &raw const shorter, null_mut()));
        shorter.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        shorter.srcDevice = memory;
        invalid!(cuGraphExecMemcpyNodeSetParams(exec, copied, &raw const shorter, null_mut()));
        ok!(cuGraphLaunch(exec, null_mut()));
        let mut back = [0u8; 9];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), memory, 9));
        assert_eq!(back, [7, 7, 7, 7, 7, 7, 7, 7, 0]);
        ok!(cuGraphExecDestroy(exec));
        invalid!(cuGraphLaunch(exec, null_mut()));
    });
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the test's counter outlives the graph.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn user_objects_live_as_long_as_a_graph_keeps_them() {
    alone(&[], || {
        start();
        let ended = AtomicU32::new(0);
        let pointer = (&raw const ended).cast_mut().cast();
        let create = || {
            let (mut object, flags) = (null_mut(), CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
            ok!(cuUserObjectCreate(&raw mut object, pointer, Some(count), 1, flags));
            object
        };
        let (graph, first, second) = (graph(), create(), create());
        for object in [first, second] {
            ok!(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
        }
        invalid!(cuGraphRetainUserObject(graph, first, 1, 0));
        ok!(cuGraphReleaseUserObject(graph, first, 1));
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        let exec = instantiate(graph);
        ok!(cuGraphDestroy(graph));
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    });
}
