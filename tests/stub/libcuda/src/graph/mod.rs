//! CUDA graphs: work that is described once and launched often.
//!
//! A graph ([`model`]) is built node by node ([`nodes`], [`edges`]), or recorded by
//! [`crate::capture`]. Instantiation ([`exec`]) makes a list of steps, each after its dependencies.
//! A launch ([`run`]) submits them to the engine, with branches in parallel. [`task`] has the work
//! of a node; [`memory`] is about those that allocate and free. For an invalid graph, node or executable graph functions return
//! `CUDA_ERROR_INVALID_VALUE`, the only error that their documentation has for it.

pub mod change;
pub mod dot;
pub mod edges;
pub mod exec;
pub mod memory;
pub mod model;
pub mod nodes;
pub mod objects;
pub mod params;
pub mod run;
pub mod task;
pub mod update;

use crate::Answer;
use crate::boundary::Out;
use crate::process::{driver, handle, lock};
use driver_sys::cuda::*;
use model::Graphs;

/// Runs a function with the table of graphs.
pub fn with<T>(run: impl FnOnce(&mut Graphs) -> Answer<T>) -> Answer<T> {
    run(&mut lock(&driver()?.graphs))
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
    let due = with(|graphs| {
        let found = graphs.graph(graph as usize)?;
        if found.is_child || found.captures > 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(graphs.discard(graph as usize))
    })?;
    due.run();
    Ok(())
}

/// `cuGraphClone`
pub fn duplicate(clone: Out<CUgraph>, original: CUgraph) -> Answer {
    with(|graphs| {
        graphs.graph(original as usize)?;
        if clone.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        clone.put(handle(graphs.duplicate(original as usize)?))
    })
}

/// `cuGraphNodeFindInClone`
pub fn find_in_clone(node: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) -> Answer {
    with(|graphs| {
        let (graph, id) = graphs.locate(original as usize)?;
        let graph = graphs.graph(graph)?.id;
        let found = graphs.graph(clone as usize)?;
        if found.original != Some(graph) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        node.put(handle(found.node(id)?.handle))
    })
}

/// `cuGraphGetId`
pub fn get_id(graph: CUgraph, id: Out<u32>) -> Answer {
    with(|graphs| id.put(graphs.graph(graph as usize)?.id))
}

/// `cuGraphNodeGetContainingGraph`
pub fn containing(node: CUgraphNode, graph: Out<CUgraph>) -> Answer {
    with(|graphs| graph.put(handle(graphs.locate(node as usize)?.0)))
}

/// `cuGraphNodeGetLocalId`
pub fn local_id(node: CUgraphNode, id: Out<u32>) -> Answer {
    with(|graphs| id.put(graphs.locate(node as usize)?.1))
}

/// `cuGraphNodeGetToolsId`: the graph's id and the local one.
pub fn tools_id(node: CUgraphNode, id: Out<u64>) -> Answer {
    with(|graphs| {
        let (graph, local) = graphs.locate(node as usize)?;
        id.put(u64::from(graphs.graph(graph)?.id) << 32 | u64::from(local))
    })
}

/// `cuGraphNodeGetType`
pub fn node_type(node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Answer {
    with(|graphs| kind.put(graphs.node(node as usize)?.task.kind()))
}

/// `cuGraphDestroyNode`: not while a capture adds to its graph, nor in a graph that allocates.
pub fn destroy_node(node: CUgraphNode) -> Answer {
    let due = with(|graphs| {
        let (graph, _) = graphs.locate(node as usize)?;
        let graph = graphs.graph(graph)?;
        if graph.captures > 0 || graph.has_memory() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        graphs.remove(node as usize)
    })?;
    due.run();
    Ok(())
}
