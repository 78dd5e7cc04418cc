//! Launches of graphs without time: copies, fills, host functions, and updates.

use super::graphs::*;
use super::{allocate, alone, fails, kernel, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_launch_copies_fills_and_calls_in_order() {
    alone(&[], || {
        start();
        let (graph, memory) = (graph(), allocate(64));
        let from: Vec<u8> = (0..64).collect();
        let mut back = [0u8; 64];
        let calls = AtomicU32::new(0);
        let (mut copied, mut filled, mut read, mut called) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        let copy = line(memory, from.as_ptr(), 64);
        ok!(cuGraphAddMemcpyNode(&raw mut copied, graph, null(), 0, &raw const copy, null_mut()));
        let rows = CUDA_MEMSET_NODE_PARAMS {
            dst: memory,
            pitch: 16,
            value: 0xabcd,
            elementSize: 2,
            width: 2,
            height: 4,
        };
        ok!(cuGraphAddMemsetNode(
            &raw mut filled,
            graph,
            &raw const copied,
            1,
            &raw const rows,
            null_mut()
        ));
        let mut out = copy;
        (out.srcMemoryType, out.srcDevice) = (CU_MEMORYTYPE_DEVICE, memory);
        (out.dstMemoryType, out.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
        ok!(cuGraphAddMemcpyNode(
            &raw mut read,
            graph,
            &raw const filled,
            1,
            &raw const out,
            null_mut()
        ));
        let host = CUDA_HOST_NODE_PARAMS {
            r#fn: Some(count),
            userData: (&raw const calls).cast_mut().cast(),
        };
        ok!(cuGraphAddHostNode(&raw mut called, graph, &raw const read, 1, &raw const host));
        let exec = instantiate(graph);
        ok!(cuGraphDestroy(graph));
        assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing happens before the launch");
        ok!(cuGraphLaunch(exec, null_mut()));
        ok!(cuGraphUpload(exec, null_mut()));
        ok!(cuStreamSynchronize(null_mut()));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let mut wanted = from;
        for row in 0..4 {
            wanted[row * 16..][..4].copy_from_slice(&[0xcd, 0xab, 0xcd, 0xab]);
        }
        assert_eq!(back[..], wanted);
        ok!(cuGraphExecDestroy(exec));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, null_mut()));
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
fn an_executable_graph_takes_over_what_has_the_same_shape() {
    alone(&[], || {
        start();
        let (first, second) = (kernel(c"first"), kernel(c"second"));
        let (one, same, longer, swapped) = (graph(), graph(), graph(), graph());
        let node = add_kernel(one, &[], first);
        add_empty(one, &[node]);
        add_empty(same, &[add_kernel(same, &[], second)]);
        add_empty(longer, &[add_empty(longer, &[add_kernel(longer, &[], second)])]);
        let fault = add_kernel(swapped, &[add_empty(swapped, &[])], second);
        let exec = instantiate(one);
        // SAFETY: numbers and addresses: zero is valid.
        let mut info: CUgraphExecUpdateResultInfo = unsafe { std::mem::zeroed() };
        ok!(cuGraphExecUpdate_v2(exec, same, &raw mut info));
        assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
        fails!(
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            cuGraphExecUpdate_v2(exec, longer, &raw mut info)
        );
        assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        let (mut at, mut result) = (null_mut(), 9);
        fails!(
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            cuGraphExecUpdate(exec, swapped, &raw mut at, &raw mut result)
        );
        assert_eq!(result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        assert!(!at.is_null() && at != node && fault != node);
        let mut call = call(first);
        call.gridDimX = 3;
        ok!(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const call));
        call.gridDimX = 0;
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const call)
        );
        fails!(
            CUDA_ERROR_INVALID_VALUE,
            cuGraphExecKernelNodeSetParams_v2(exec, fault, &raw const call)
        );
        let mut is_enabled = 9;
        ok!(cuGraphNodeSetEnabled(exec, node, 0));
        ok!(cuGraphNodeGetEnabled(exec, node, &raw mut is_enabled));
        assert_eq!(is_enabled, 0);
    });
}
