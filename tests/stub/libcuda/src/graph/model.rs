//! The model of graphs: nodes in the order of their creation, and their dependencies.
//!
//! One table has all graphs of the process, because a node's handle leads to its graph, and child
//! graphs belong to nodes of other graphs. Handles are numbers that are never reused, so the handle
//! of something that was destroyed is recognised. A node depends on older nodes only, so the order
//! of creation is an order in which the nodes can run.

use super::exec::Exec;
use super::memory::Layouts;
use super::objects::Objects;
use super::task::Task;
use crate::Answer;
use driver_sys::cuda::CUDA_ERROR_INVALID_VALUE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first handle: not an address of any allocator, and not a small number.
const FIRST_HANDLE: usize = 0x6772_6100_0000;

/// A node.
pub struct Node {
    pub handle: usize,
    pub task: Task,
    /// The local ids of its dependencies.
    pub after: Vec<u32>,
}

/// A graph.
pub struct Graph {
    /// A number that no other graph ever has.
    pub id: u32,
    /// By local id: in order of creation.
    pub nodes: BTreeMap<u32, Node>,
    next: u32,
    /// Whether it belongs to a node of another graph.
    pub is_child: bool,
    /// Where its allocations are; `None` without nodes that allocate or free.
    pub memory: Option<Layouts>,
    /// The handle of its last executable graph, which may be destroyed.
    pub executable: usize,
    /// The number of captures that add to it now.
    pub captures: u32,
    pub objects: Objects,
}

/// All graphs of the process, their executable graphs, and user objects.
#[derive(Default)]
pub struct Graphs {
    all: BTreeMap<usize, Graph>,
    /// A node's graph and local id.
    nodes_by_handle: BTreeMap<usize, (usize, u32)>,
    handles: usize,
    ids: u32,
    pub execs: BTreeMap<usize, Arc<Exec>>,
    /// The program's own references to user objects.
    pub objects: Objects,
    /// The user objects of destroyed graphs.
    pub ended: Vec<Objects>,
}

impl Graphs {
    /// A new handle.
    pub fn new_handle(&mut self) -> usize {
        self.handles += 1;
        FIRST_HANDLE + self.handles * 64
    }

    pub fn create(&mut self) -> usize {
        let handle = self.new_handle();
        self.ids += 1;
        self.all.insert(
            handle,
            Graph {
                id: self.ids,
                nodes: BTreeMap::new(),
                next: 0,
                is_child: false,
                memory: None,
                executable: 0,
                captures: 0,
                objects: Objects::new(),
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
        self.graph(graph)?.nodes.get(&id).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Adds a node that depends on others, which must be different nodes of the same graph.
    pub fn add(&mut self, graph: usize, task: Task, after: &[usize]) -> Answer<usize> {
        self.graph(graph)?;
        let mut links = Vec::with_capacity(after.len());
        for node in after {
            let (found, id) = self.locate(*node)?;
            if found != graph || links.contains(&id) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            links.push(id);
        }
        let handle = self.new_handle();
        let found = self.graph_mut(graph)?;
        let id = found.next;
        found.next += 1;
        if let Some(memory) = &mut found.memory {
            memory.push(&links);
        }
        self.admit(graph, id, &task)?;
        self.graph_mut(graph)?.nodes.insert(id, Node { handle, task, after: links });
        self.nodes_by_handle.insert(handle, (graph, id));
        Ok(handle)
    }

    /// Destroys a graph with its nodes and their child graphs.
    pub fn discard(&mut self, graph: usize) {
        let Some(found) = self.all.remove(&graph) else { return };
        self.ended.push(found.objects);
        for node in found.nodes.into_values() {
            self.nodes_by_handle.remove(&node.handle);
            if let Task::Child(child) = node.task {
                self.discard(child);
            }
        }
    }
}
