//! The model of graphs: nodes in the order of their creation, and their dependencies.
//!
//! One table has all graphs of the process, because a node's handle leads to its graph, and child
//! graphs belong to nodes of other graphs. Handles are numbers that are never reused, so the handle
//! of something that was destroyed is recognised. A node has the same local id in a clone as in the
//! original. Graph id and local id together identify a node for ever.

use super::exec::Exec;
use super::memory::Layouts;
use super::objects::{Destructors, Objects};
use super::task::Task;
use crate::Answer;
use driver_sys::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUgraphEdgeData};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first handle: not an address of any allocator, and not a small number.
const FIRST_HANDLE: usize = 0x6772_6100_0000;

/// The data of an edge: ports and type, as in the header's structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
}

impl Edge {
    pub fn is_plain(self) -> bool {
        self == Self::default()
    }

    /// As the header's structure.
    pub fn to_c(self) -> CUgraphEdgeData {
        CUgraphEdgeData {
            from_port: self.from_port,
            to_port: self.to_port,
            r#type: self.kind,
            reserved: [0; 5],
        }
    }

    /// From the header's structure; reserved bytes must be 0.
    pub fn from_c(data: CUgraphEdgeData) -> Answer<Self> {
        if data.reserved != [0; 5] || data.r#type > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self { from_port: data.from_port, to_port: data.to_port, kind: data.r#type })
    }
}

/// A dependency of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub node: u32,
    pub edge: Edge,
}

/// A dependency that a function's caller names by the node's handle.
pub type Behind = (usize, Edge);

/// A node.
pub struct Node {
    pub handle: usize,
    pub task: Task,
    /// Its dependencies, in the order in which they were added.
    pub after: Vec<Link>,
    /// The nodes that depend on it.
    pub dependents: Vec<u32>,
}

/// A graph.
pub struct Graph {
    /// A number that no other graph ever has.
    pub id: u32,
    /// By local id: in order of creation.
    pub nodes: BTreeMap<u32, Node>,
    next: u32,
    /// The id of the graph that it was cloned from.
    pub original: Option<u32>,
    /// Whether it belongs to a node of another graph.
    pub is_child: bool,
    /// Where its allocations are; `None` without nodes that allocate or free.
    pub memory: Option<Layouts>,
    /// The handle of its last executable graph, which may be destroyed.
    pub executable: usize,
    /// The number of captures that add to it now.
    pub captures: u32,
    /// User objects, and the number of references to each that it holds.
    pub objects: BTreeMap<usize, u32>,
}

/// All graphs of the process, their executable graphs, and the user objects that they keep alive.
#[derive(Default)]
pub struct Graphs {
    all: BTreeMap<usize, Graph>,
    /// A node's graph and local id.
    nodes_by_handle: BTreeMap<usize, (usize, u32)>,
    handles: usize,
    ids: u32,
    pub execs: BTreeMap<usize, Arc<Exec>>,
    pub objects: Objects,
}

impl Graph {
    /// The node of a local id that is known to exist.
    pub fn node(&self, id: u32) -> Answer<&Node> {
        self.nodes.get(&id).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Every edge: from, to, and its data.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32, Edge)> {
        self.nodes
            .iter()
            .flat_map(|(to, node)| node.after.iter().map(|link| (link.node, *to, link.edge)))
    }
}

impl Graphs {
    /// A new handle.
    pub fn new_handle(&mut self) -> usize {
        self.handles += 1;
        FIRST_HANDLE + self.handles * 64
    }

    /// A graph's or executable graph's number.
    pub fn new_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    pub fn create(&mut self) -> usize {
        let (handle, id) = (self.new_handle(), self.new_id());
        self.all.insert(
            handle,
            Graph {
                id,
                nodes: BTreeMap::new(),
                next: 0,
                original: None,
                is_child: false,
                memory: None,
                executable: 0,
                captures: 0,
                objects: BTreeMap::new(),
            },
        );
        handle
    }

    pub fn graph(&self, graph: usize) -> Answer<&Graph> {
        self.all.get(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub fn graph_mut(&mut self, graph: usize) -> Answer<&mut Graph> {
        self.all.get_mut(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// A node's graph and local id.
    pub fn locate(&self, node: usize) -> Answer<(usize, u32)> {
        self.nodes_by_handle.get(&node).copied().ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    pub fn node(&self, node: usize) -> Answer<&Node> {
        let (graph, id) = self.locate(node)?;
        self.graph(graph)?.node(id)
    }

    pub fn node_mut(&mut self, node: usize) -> Answer<&mut Node> {
        let (graph, id) = self.locate(node)?;
        self.graph_mut(graph)?.nodes.get_mut(&id).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The local id of a node that must be one of this graph.
    fn within(&self, graph: usize, node: usize) -> Answer<u32> {
        let (found, id) = self.locate(node)?;
        if found == graph { Ok(id) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// Adds a node that depends on others, which must be different nodes of the same graph.
    pub fn add(&mut self, graph: usize, task: Task, after: &[Behind]) -> Answer<usize> {
        self.graph(graph)?;
        let mut links: Vec<Link> = Vec::with_capacity(after.len());
        for (node, edge) in after {
            let node = self.within(graph, *node)?;
            if links.iter().any(|link| link.node == node) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            links.push(Link { node, edge: *edge });
        }
        let handle = self.new_handle();
        let found = self.graph_mut(graph)?;
        let id = found.next;
        found.next += 1;
        for link in &links {
            if let Some(node) = found.nodes.get_mut(&link.node) {
                node.dependents.push(id);
            }
        }
        if let Some(memory) = &mut found.memory {
            memory.push(links.iter().map(|link| link.node));
        }
        found
            .nodes
            .insert(id, Node { handle, task: Task::Empty, after: links, dependents: Vec::new() });
        self.nodes_by_handle.insert(handle, (graph, id));
        if let Err(error) = self.admit(graph, id, &task) {
            let _ = self.remove(handle);
            return Err(error);
        }
        self.node_mut(handle)?.task = task;
        Ok(handle)
    }

    /// Adds a dependency, which must not exist yet.
    pub fn connect(&mut self, graph: usize, from: usize, to: usize, edge: Edge) -> Answer {
        let (from, to) = (self.within(graph, from)?, self.within(graph, to)?);
        let found = self.graph_mut(graph)?;
        if from == to || found.node(to)?.after.iter().any(|link| link.node == from) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(node) = found.nodes.get_mut(&to) {
            node.after.push(Link { node: from, edge });
        }
        if let Some(node) = found.nodes.get_mut(&from) {
            node.dependents.push(to);
        }
        Ok(())
    }

    /// Removes a dependency.
    pub fn disconnect(&mut self, graph: usize, from: usize, to: usize, edge: Edge) -> Answer {
        let (from, to) = (self.within(graph, from)?, self.within(graph, to)?);
        let found = self.graph_mut(graph)?;
        let link = Link { node: from, edge };
        let behind = found.nodes.get_mut(&to).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let index = behind.after.iter().position(|known| *known == link);
        behind.after.remove(index.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        if let Some(node) = found.nodes.get_mut(&from) {
            node.dependents.retain(|dependent| *dependent != to);
        }
        Ok(())
    }

    /// Removes a node and its edges.
    pub fn remove(&mut self, node: usize) -> Answer<Destructors> {
        let (graph, id) = self.locate(node)?;
        let found = self.graph_mut(graph)?;
        let removed = found.nodes.remove(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        for link in &removed.after {
            if let Some(node) = found.nodes.get_mut(&link.node) {
                node.dependents.retain(|dependent| *dependent != id);
            }
        }
        for dependent in &removed.dependents {
            if let Some(node) = found.nodes.get_mut(dependent) {
                node.after.retain(|link| link.node != id);
            }
        }
        self.nodes_by_handle.remove(&node);
        Ok(match removed.task {
            Task::Child(child) => self.discard(child),
            _ => Destructors::default(),
        })
    }

    /// Destroys a graph with its nodes and their child graphs. User objects may end with it.
    pub fn discard(&mut self, graph: usize) -> Destructors {
        let Some(found) = self.all.remove(&graph) else { return Destructors::default() };
        let mut ended = self.objects.release_all(&found.objects);
        for node in found.nodes.into_values() {
            self.nodes_by_handle.remove(&node.handle);
            if let Task::Child(child) = node.task {
                ended.extend(self.discard(child));
            }
        }
        ended
    }

    /// A copy of a graph, and of its child graphs.
    pub fn duplicate(&mut self, graph: usize) -> Answer<usize> {
        let source = self.graph(graph)?;
        if source.has_memory() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let (original, next, objects) = (source.id, source.next, source.objects.clone());
        let nodes: Vec<_> = source
            .nodes
            .iter()
            .map(|(id, node)| (*id, node.task.clone(), node.after.clone(), node.dependents.clone()))
            .collect();
        self.objects.retain_all(&objects);
        let copy = self.create();
        for (id, task, after, dependents) in nodes {
            let task = match task {
                Task::Child(child) => self.adopt(child)?,
                other => other,
            };
            let handle = self.new_handle();
            self.nodes_by_handle.insert(handle, (copy, id));
            self.graph_mut(copy)?.nodes.insert(id, Node { handle, task, after, dependents });
        }
        let made = self.graph_mut(copy)?;
        (made.original, made.next, made.objects) = (Some(original), next, objects);
        Ok(copy)
    }

    /// The work of a node that runs a copy of a graph.
    pub fn adopt(&mut self, graph: usize) -> Answer<Task> {
        let child = self.duplicate(graph)?;
        self.graph_mut(child)?.is_child = true;
        Ok(Task::Child(child))
    }
}
