//! The functions that list a graph's nodes and edges, and add and remove edges.

use super::model::{Edge, Graph};
use super::with;
use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{driver, handle};
use driver_sys::cuda::*;

/// The outputs for a list of edges: nodes, the nodes at the other end if both are listed, and edge
/// data.
struct Outputs {
    nodes: Out<CUgraphNode>,
    others: Option<Out<CUgraphNode>>,
    edges: Out<CUgraphEdgeData>,
    count: Out<usize>,
    /// Whether the function has an output for edge data.
    has_edges: bool,
}

impl Outputs {
    /// Writes the list as the driver does: without an array of nodes only their number; with one,
    /// as many as fit, and NULL beyond the last.
    fn put(self, found: &[(usize, usize, Edge)]) -> Answer {
        if self.nodes.is_null() {
            return self.count.put(found.len());
        }
        let is_lossy = !self.has_edges || self.edges.is_null();
        if is_lossy && found.iter().any(|(_, _, edge)| !edge.is_plain()) {
            return Err(CUDA_ERROR_LOSSY_QUERY);
        }
        let room = self.count.read()?;
        for index in 0..room {
            let (node, other, edge) = found.get(index).copied().unwrap_or_default();
            self.nodes.put_at(index, handle(node));
            if let Some(others) = self.others {
                others.put_at(index, handle(other));
            }
            if !is_lossy {
                self.edges.put_at(index, edge.to_c());
            }
        }
        self.count.put(found.len().min(room))
    }
}

fn put_nodes(found: &[usize], nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let found: Vec<_> = found.iter().map(|node| (*node, 0, Edge::default())).collect();
    let edges = Out::of(core::ptr::null_mut());
    Outputs { nodes, others: None, edges, count, has_edges: false }.put(&found)
}

/// `cuGraphGetNodes`
pub fn nodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    with(|graphs| {
        let found: Vec<_> =
            graphs.graph(graph as usize)?.nodes.values().map(|node| node.handle).collect();
        put_nodes(&found, nodes, count)
    })
}

/// `cuGraphGetRootNodes`
pub fn roots(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    with(|graphs| {
        let all = graphs.graph(graph as usize)?.nodes.values();
        let found: Vec<_> =
            all.filter(|node| node.after.is_empty()).map(|node| node.handle).collect();
        put_nodes(&found, nodes, count)
    })
}

fn list(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: Out<usize>,
    has_edges: bool,
) -> Answer {
    with(|graphs| {
        let found = graphs.graph(graph as usize)?;
        if from.is_null() != to.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let listed: Answer<Vec<_>> = found
            .edges()
            .map(|(from, to, edge)| Ok((found.node(from)?.handle, found.node(to)?.handle, edge)))
            .collect();
        Outputs { nodes: from, others: Some(to), edges, count, has_edges }.put(&listed?)
    })
}

/// `cuGraphGetEdges`
pub fn edges(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    list(graph, from, to, Out::of(core::ptr::null_mut()), count, false)
}

/// `cuGraphGetEdges_v2`
pub fn edges_v2(
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    list(graph, from, to, edges, count, true)
}

/// The nodes that a node depends on, or that depend on it.
fn neighbours(
    node: CUgraphNode,
    outputs: Outputs,
    pick: impl FnOnce(&Graph, u32) -> Answer<Vec<(u32, Edge)>>,
) -> Answer {
    with(|graphs| {
        let (graph, id) = graphs.locate(node as usize)?;
        let graph = graphs.graph(graph)?;
        let found: Answer<Vec<_>> = pick(graph, id)?
            .into_iter()
            .map(|(id, edge)| Ok((graph.node(id)?.handle, 0, edge)))
            .collect();
        outputs.put(&found?)
    })
}

fn before(graph: &Graph, id: u32) -> Answer<Vec<(u32, Edge)>> {
    Ok(graph.node(id)?.after.iter().map(|link| (link.node, link.edge)).collect())
}

fn behind(graph: &Graph, id: u32) -> Answer<Vec<(u32, Edge)>> {
    let dependents = graph.node(id)?.dependents.iter();
    dependents
        .map(|dependent| {
            let links = &graph.node(*dependent)?.after;
            let link = links.iter().find(|link| link.node == id);
            Ok((*dependent, link.map(|link| link.edge).unwrap_or_default()))
        })
        .collect()
}

/// `cuGraphNodeGetDependencies`
pub fn dependencies(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let edges = Out::of(core::ptr::null_mut());
    neighbours(node, Outputs { nodes, others: None, edges, count, has_edges: false }, before)
}

/// `cuGraphNodeGetDependencies_v2`
pub fn dependencies_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    neighbours(node, Outputs { nodes, others: None, edges, count, has_edges: true }, before)
}

/// `cuGraphNodeGetDependentNodes`
pub fn dependents(node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Answer {
    let edges = Out::of(core::ptr::null_mut());
    neighbours(node, Outputs { nodes, others: None, edges, count, has_edges: false }, behind)
}

/// `cuGraphNodeGetDependentNodes_v2`
pub fn dependents_v2(
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    edges: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    neighbours(node, Outputs { nodes, others: None, edges, count, has_edges: true }, behind)
}

/// Pairs of nodes, and the data of the edge between them.
fn pairs(
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Answer<Vec<(usize, usize, Edge)>> {
    (0..count)
        .map(|index| {
            let edge = edges.get_at(index).map_or_else(|_| Ok(Edge::default()), Edge::from_c)?;
            Ok((from.get_at(index)? as usize, to.get_at(index)? as usize, edge))
        })
        .collect()
}

/// `cuGraphAddDependencies_v2`: all of them, or none.
pub fn add_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    driver()?;
    let graph = graph as usize;
    with(|graphs| {
        graphs.graph(graph)?;
        let pairs = pairs(from, to, edges, count)?;
        for (done, (from, to, edge)) in pairs.iter().enumerate() {
            if let Err(error) = graphs.connect(graph, *from, *to, *edge) {
                for (from, to, edge) in &pairs[..done] {
                    graphs.disconnect(graph, *from, *to, *edge)?;
                }
                return Err(error);
            }
        }
        Ok(())
    })
}

/// `cuGraphAddDependencies`
pub fn add(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    add_v2(graph, from, to, In::of(core::ptr::null()), count)
}

/// `cuGraphRemoveDependencies_v2`: not in a graph that allocates.
pub fn remove_v2(
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    driver()?;
    with(|graphs| {
        if graphs.graph(graph as usize)?.has_memory() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (from, to, edge) in pairs(from, to, edges, count)? {
            graphs.disconnect(graph as usize, from, to, edge)?;
        }
        Ok(())
    })
}

/// `cuGraphRemoveDependencies`
pub fn remove(graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize) -> Answer {
    remove_v2(graph, from, to, In::of(core::ptr::null()), count)
}
