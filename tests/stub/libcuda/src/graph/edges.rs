//! The functions that list a graph's nodes and edges.

use super::with;
use crate::Answer;
use crate::boundary::Out;
use crate::process::handle;
use driver_sys::cuda::*;

/// Writes a list as the driver does: without an array only its length; with one, as many as fit,
/// and NULL beyond the last.
fn put(found: &[usize], out: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    if out.is_null() {
        return count.put(found.len());
    }
    let room = count.read()?;
    for index in 0..room {
        out.put_at(index, handle(found.get(index).copied().unwrap_or(0)));
    }
    count.put(found.len().min(room))
}

/// `cuGraphGetNodes`
pub fn nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    with(|graphs| {
        let nodes_of_graph = graphs.graph(graph as usize)?.nodes.values();
        put(&nodes_of_graph.map(|node| node.handle).collect::<Vec<_>>(), nodes, count)
    })
}

/// `cuGraphGetEdges`
pub fn edges(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    with(|graphs| {
        let found = graphs.graph(graph as usize)?;
        if from.is_null() != to.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for node in found.nodes.values() {
            for before in &node.after {
                starts.push(found.nodes[before].handle);
                ends.push(node.handle);
            }
        }
        let room = count.read().unwrap_or(0);
        put(&starts, from, count)?;
        if to.is_null() {
            return Ok(());
        }
        count.put(room)?;
        put(&ends, to, count)
    })
}
