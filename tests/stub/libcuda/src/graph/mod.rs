//! CUDA graphs: work that is described once and launched often.
//!
//! A graph ([`model`]) is built node by node ([`nodes`]), or recorded by [`crate::capture`].
//! Instantiation ([`exec`]) makes a list of steps, each after its dependencies. A launch ([`run`])
//! submits them to the engine, with branches in parallel. [`task`] has the work of a node;
//! [`memory`] is about those that allocate and free. For an invalid graph, node or executable graph
//! functions return `CUDA_ERROR_INVALID_VALUE`, the only error that their documentation has for it.

pub mod change;
pub mod edges;
pub mod exec;
pub mod memory;
pub mod model;
pub mod nodes;
pub mod objects;
pub mod run;
pub mod task;

use crate::Answer;
use crate::boundary::Out;
use crate::process::{driver, handle, lock};
use driver_sys::cuda::*;
use model::Graphs;

/// Runs a function with the table of graphs. What ends is dropped when the table is unlocked.
pub fn with<T>(run: impl FnOnce(&mut Graphs) -> Answer<T>) -> Answer<T> {
    let mut graphs = lock(&driver()?.graphs);
    let answer = run(&mut graphs);
    let ended = std::mem::take(&mut graphs.ended);
    drop(graphs);
    drop(ended);
    answer
}

/// `cuGraphCreate`
pub fn create(graph: Out<CUgraph>, flags: u32) -> Answer {
    driver()?;
    if graph.is_null() || flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with(|graphs| graph.put(handle(graphs.create())))
}

/// `cuGraphDestroy`: not for a child graph, which belongs to its node, and not while a capture adds
/// to it.
pub fn destroy(graph: CUgraph) -> Answer {
    with(|graphs| {
        let found = graphs.graph(graph as usize)?;
        if found.is_child || found.captures > 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graphs.discard(graph as usize);
        Ok(())
    })
}

/// `cuGraphNodeGetType`
pub fn node_type(node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Answer {
    with(|graphs| kind.put(graphs.node(node as usize)?.task.kind()))
}
