//! Graphs: built, listed, cloned, instantiated.

use super::{alone, fails, kernel, ok, start};
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

pub fn roots(graph: CUgraph) -> usize {
    let mut count = 0;
    ok!(cuGraphGetRootNodes(graph, null_mut(), &raw mut count));
    count
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
        assert_eq!(roots(graph), 1);
        let (mut from, mut to, mut count) = ([null_mut(); 6], [null_mut(); 6], 6);
        let (from_place, to_place) = (from.as_mut_ptr(), to.as_mut_ptr());
        ok!(cuGraphGetEdges(graph, from_place, to_place, &raw mut count));
        assert_eq!((count, from[..4].to_vec()), (4, vec![first, first, left, right]));
        assert_eq!(to, [left, right, last, last, null_mut(), null_mut()]);
        let mut found = [null_mut(); 2];
        let mut room = 2;
        ok!(cuGraphNodeGetDependentNodes(first, found.as_mut_ptr(), &raw mut room));
        assert_eq!(found, [left, right]);
        ok!(cuGraphRemoveDependencies(graph, &raw const left, &raw const last, 1));
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphRemoveDependencies(graph, &raw const left, &raw const last, 1)
        );
        ok!(cuGraphNodeGetDependencies(last, found.as_mut_ptr(), &raw mut room));
        assert_eq!((room, found), (1, [right, null_mut()]));
        ok!(cuGraphAddDependencies(graph, &raw const left, &raw const last, 1));
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddDependencies(graph, &raw const left, &raw const last, 1)
        );
        ok!(cuGraphDestroyNode(first));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(first));
        assert_eq!((nodes(graph).len(), roots(graph)), (3, 2));
        let mut kind = 99;
        ok!(cuGraphNodeGetType(last, &raw mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_EMPTY);
        ok!(cuGraphDestroy(graph));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(last, &raw mut kind));
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
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddKernelNode_v2(out, graph, nothing, 0, &raw const bad)
        );
        bad = good;
        bad.func = without_provenance_mut(64);
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddKernelNode_v2(out, graph, nothing, 0, &raw const bad)
        );
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddKernelNode_v2(out, graph, nothing, 1, &raw const good)
        );
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(out, graph, &raw const elsewhere, 1));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(out, graph, twice.as_ptr(), 2));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(null_mut(), graph, nothing, 0));
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddEmptyNode(out, without_provenance_mut(64), nothing, 0)
        );
        let copy = line(7, [1u8].as_ptr(), 1);
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphAddMemcpyNode(out, graph, nothing, 0, &raw const copy, null_mut())
        );
        assert_eq!(nodes(graph).len(), 1, "nothing of that was added");
    });
}

#[test]
fn a_circle_cannot_be_instantiated() {
    alone(&[], || {
        start();
        let graph = graph();
        let first = add_empty(graph, &[]);
        let second = add_empty(graph, &[first]);
        ok!(cuGraphAddDependencies(graph, &raw const second, &raw const first, 1));
        let (mut exec, mut fault, mut log) = (null_mut(), null_mut(), [1; 64]);
        let out = &raw mut exec;
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(out, graph, 0));
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphInstantiate_v2(out, graph, &raw mut fault, log.as_mut_ptr(), 64)
        );
        assert_eq!(fault, first);
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: 0,
            hUploadStream: null_mut(),
            hErrNode_out: null_mut(),
            result_out: 9,
        };
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(out, graph, &raw mut params));
        assert_eq!(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
        assert_eq!(params.hErrNode_out, first);
        ok!(cuGraphRemoveDependencies(graph, &raw const second, &raw const first, 1));
        params.flags = u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
        ok!(cuGraphInstantiateWithParams(out, graph, &raw mut params));
        assert_eq!(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
        let mut flags = 9;
        ok!(cuGraphExecGetFlags(exec, &raw mut flags));
        assert_eq!(flags, 0);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(out, graph, 1 << 20));
    });
}

#[test]
fn a_clone_is_a_graph_of_its_own() {
    alone(&[], || {
        start();
        let original = graph();
        let first = add_kernel(original, &[], kernel(c"k"));
        let second = add_empty(original, &[first]);
        let (mut clone, mut found, mut of) = (null_mut(), null_mut(), null_mut());
        ok!(cuGraphClone(&raw mut clone, original));
        ok!(cuGraphNodeFindInClone(&raw mut found, second, clone));
        assert!(found != second && nodes(clone).contains(&found));
        ok!(cuGraphNodeGetContainingGraph(found, &raw mut of));
        assert_eq!(of, clone);
        ok!(cuGraphDestroyNode(first));
        assert_eq!(nodes(clone).len(), 2);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&raw mut found, second, original));
        let mut child = null_mut();
        ok!(cuGraphAddChildGraphNode(&raw mut child, original, null(), 0, clone));
        let mut inner = null_mut();
        ok!(cuGraphChildGraphNodeGetGraph(child, &raw mut inner));
        assert_eq!(nodes(inner).len(), 2);
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
        ok!(cuGraphDestroy(clone));
        ok!(cuGraphDestroyNode(child));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(inner, null_mut(), &mut 0));
    });
}

#[test]
fn parameters_are_returned_as_they_were_set() {
    alone(&[], || {
        start();
        let (graph, function, other) = (graph(), kernel(c"k"), kernel(c"other"));
        let node = add_kernel(graph, &[], function);
        // SAFETY: numbers and addresses: zero is valid.
        let (mut read, mut first, mut any): (
            CUDA_KERNEL_NODE_PARAMS,
            CUDA_KERNEL_NODE_PARAMS_v1,
            CUgraphNodeParams,
        ) = unsafe { std::mem::zeroed() };
        ok!(cuGraphKernelNodeGetParams_v2(node, &raw mut read));
        assert_eq!((read.func, read.gridDimX, read.blockDimX), (function, 1, 32));
        assert!(!read.ctx.is_null(), "its module's context");
        read.func = other;
        read.gridDimX = 7;
        ok!(cuGraphKernelNodeSetParams_v2(node, &raw const read));
        ok!(cuGraphKernelNodeGetParams(node, &raw mut first));
        assert_eq!((first.func, first.gridDimX), (other, 7));
        ok!(cuGraphNodeGetParams(node, &raw mut any));
        assert_eq!(any.r#type, CU_GRAPH_NODE_TYPE_KERNEL);
        // SAFETY: the tag says so.
        assert_eq!(unsafe { any.unnamed2.kernel.gridDimX }, 7);
        let mut again = null_mut();
        ok!(cuGraphAddNode_v2(&raw mut again, graph, &raw const node, null(), 1, &raw mut any));
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.priority = -3;
        ok!(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value));
        ok!(cuGraphKernelNodeCopyAttributes(again, node));
        value.priority = 0;
        ok!(cuGraphKernelNodeGetAttribute(again, CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw mut value));
        // SAFETY: as it was set.
        assert_eq!(unsafe { value.priority }, -3);
        any.r#type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
        fails!(
            CUDA_ERROR_NOT_SUPPORTED,
            cuGraphAddNode_v2(&raw mut again, graph, null(), null(), 0, &raw mut any)
        );
        any.r#type = CU_GRAPH_NODE_TYPE_EMPTY;
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetParams(node, &raw mut any));
    });
}

#[test]
fn an_edge_may_say_that_a_kernel_need_not_be_done() {
    alone(&[], || {
        start();
        let graph = graph();
        let (first, second) =
            (add_kernel(graph, &[], kernel(c"k")), add_kernel(graph, &[], kernel(c"k")));
        let early = CUgraphEdgeData {
            from_port: 1,
            to_port: 0,
            r#type: CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
            reserved: [0; 5],
        };
        ok!(cuGraphAddDependencies_v2(
            graph,
            &raw const first,
            &raw const second,
            &raw const early,
            1
        ));
        let (mut found, mut count) = (null_mut(), 1);
        fails!(
            CUDA_ERROR_LOSSY_QUERY,
            cuGraphNodeGetDependencies(second, &raw mut found, &raw mut count)
        );
        let mut edge = CUgraphEdgeData { from_port: 9, to_port: 9, r#type: 9, reserved: [9; 5] };
        ok!(cuGraphNodeGetDependencies_v2(second, &raw mut found, &raw mut edge, &raw mut count));
        assert_eq!((found, edge.from_port, edge.r#type), (first, 1, 1));
        ok!(cuGraphRemoveDependencies_v2(
            graph,
            &raw const first,
            &raw const second,
            &raw const early,
            1
        ));
    });
}

pub unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: every test hands over a counter that outlives the graph.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn user_objects_live_as_long_as_a_graph_keeps_them() {
    alone(&[], || {
        start();
        let ended = AtomicU32::new(0);
        let pointer = (&raw const ended).cast_mut().cast();
        let (mut object, mut clone) = (null_mut(), null_mut());
        let flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
        ok!(cuUserObjectCreate(&raw mut object, pointer, Some(count), 1, flags));
        let graph = graph();
        ok!(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
        ok!(cuGraphClone(&raw mut clone, graph));
        let exec = instantiate(clone);
        ok!(cuGraphDestroy(graph));
        ok!(cuGraphDestroy(clone));
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        ok!(cuGraphExecDestroy(exec));
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRetain(object, 1));
    });
}

#[test]
fn a_graph_can_be_written_down() {
    alone(&[], || {
        start();
        let graph = graph();
        add_empty(graph, &[add_kernel(graph, &[], kernel(c"gemm"))]);
        let path = std::env::temp_dir().join(format!("hami-graph-{}.dot", std::process::id()));
        let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no NUL");
        ok!(cuGraphDebugDotPrint(graph, name.as_ptr(), 0));
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(&path).expect("ours");
        assert!(text.contains("KERNEL gemm <<<(1,1,1),(32,1,1)>>>"), "{text}");
        assert!(text.contains("_node_0\" -> \"graph_1_node_1\""), "{text}");
        fails!(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph, c"/no/dir/g".as_ptr(), 0));
    });
}
