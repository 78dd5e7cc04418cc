//! Stream capture: work on a capturing stream becomes nodes of a graph and is not done.
//!
//! A *sequence* is one capture, from begin to end. Its *members* are the streams in it: the one it
//! began on, and those that wait for an event that was recorded in it. A member has the set of
//! nodes that its next node depends on. An event that was recorded in a sequence has such a set and
//! no instant. [`take`] makes nodes of work. [`hooks`] has the checks for all other functions;
//! without captures they cost one load. [`calls`] has the driver functions.
//!
//! A call that breaks the rules is refused and invalidates the sequence: its streams then return
//! `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`, until the sequence ends without a graph.

pub mod calls;
pub mod hooks;
pub mod take;

use crate::Answer;
use crate::graph::model::Graphs;
use crate::graph::task::Task;
use crate::process::{Driver, lock};
use crate::stream::Queue;
use driver_sys::cuda::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::ThreadId;

thread_local! {
    /// The mode of this thread: what it must not do while others capture.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// A capture in progress.
struct Sequence {
    graph: usize,
    /// Whether the program has created the graph.
    has_target: bool,
    /// The queue that it began on.
    origin: u64,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    is_valid: bool,
    /// The last nodes of streams that were destroyed during the capture.
    left: Vec<usize>,
}

/// A capturing stream.
struct Member {
    sequence: u64,
    /// The handle of its context.
    context: usize,
    is_blocking: bool,
    /// The nodes that its next node depends on.
    after: Vec<usize>,
    /// The dependencies that the program has read last, at a stable address.
    shown: Vec<usize>,
}

/// An event that was last recorded in a sequence, which may have ended.
#[derive(Clone)]
struct Recorded {
    sequence: u64,
    after: Vec<usize>,
}

/// All captures, and the streams and events in them.
#[derive(Default)]
struct Registry {
    sequences: BTreeMap<u64, Sequence>,
    /// By the queue's number.
    members: BTreeMap<u64, Member>,
    /// By the event's handle.
    events: BTreeMap<usize, Recorded>,
}

/// The captures of the process.
#[derive(Default)]
pub struct Captures {
    sequences: AtomicUsize,
    /// Events that were last recorded in a capture.
    events: AtomicUsize,
    registry: Mutex<Registry>,
}

impl Captures {
    /// Whether nothing is captured now.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sequences.load(Ordering::Relaxed) == 0
    }

    /// Whether nothing is captured and no event was.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.is_idle() && self.events.load(Ordering::Relaxed) == 0
    }
}

/// The locked registry. Its entries are counted when it is unlocked.
struct LockedRegistry<'a> {
    captures: &'a Captures,
    registry: MutexGuard<'a, Registry>,
}

impl Drop for LockedRegistry<'_> {
    fn drop(&mut self) {
        self.captures.sequences.store(self.registry.sequences.len(), Ordering::Relaxed);
        self.captures.events.store(self.registry.events.len(), Ordering::Relaxed);
    }
}

fn lock_registry(driver: &Driver) -> LockedRegistry<'_> {
    LockedRegistry { captures: &driver.captures, registry: lock(&driver.captures.registry) }
}

/// Adds the nodes that are missing.
fn join(after: &mut Vec<usize>, more: &[usize]) {
    for new in more {
        if !after.contains(new) {
            after.push(*new);
        }
    }
}

impl Registry {
    fn invalidate(&mut self, sequence: u64) {
        if let Some(found) = self.sequences.get_mut(&sequence) {
            found.is_valid = false;
        }
    }

    fn is_valid(&self, sequence: u64) -> bool {
        self.sequences.get(&sequence).is_some_and(|found| found.is_valid)
    }

    /// The member of a queue, if it is still valid.
    fn usable(&mut self, queue: u64) -> Answer<Option<&mut Member>> {
        let is_valid = self.members.get(&queue).map(|member| self.is_valid(member.sequence));
        match is_valid {
            None => Ok(None),
            Some(true) => Ok(self.members.get_mut(&queue)),
            Some(false) => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
    }

    /// The sequences in which a context's streams take part.
    fn within(&self, context: usize, only_blocking: bool) -> Vec<u64> {
        let members = self.members.values();
        members
            .filter(|member| member.context == context && (member.is_blocking || !only_blocking))
            .map(|member| member.sequence)
            .collect()
    }

    /// Refuses the default stream while it would have to wait for a capturing stream.
    fn check_legacy(&mut self, queue: Queue) -> Answer {
        if !matches!(queue, Queue::Legacy(..)) {
            return Ok(());
        }
        let entangled = self.within(queue.context().1, true);
        if entangled.is_empty() {
            return Ok(());
        }
        for sequence in entangled {
            self.invalidate(sequence);
        }
        Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Refuses what is unsafe during a capture, by the modes of this thread and of the sequences.
    fn check_safe(&mut self) -> Answer {
        let mode = MODE.get();
        if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let thread = std::thread::current().id();
        let mut answer = Ok(());
        for sequence in self.sequences.values_mut() {
            let forbids = if sequence.thread == thread {
                sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED
            } else {
                sequence.mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                    && mode == CU_STREAM_CAPTURE_MODE_GLOBAL
            };
            if forbids {
                sequence.is_valid = false;
                answer = Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Adds work as the next node of a capturing stream. `false`: the stream does not capture.
    fn take(
        &mut self,
        graphs: &mut Graphs,
        queue: Queue,
        task: impl FnOnce(&mut Graphs) -> Answer<Task>,
    ) -> Answer<bool> {
        self.check_legacy(queue)?;
        let Some(member) = self.usable(queue.id())? else { return Ok(false) };
        let (sequence, after) = (member.sequence, std::mem::take(&mut member.after));
        let graph = self.sequences.get(&sequence).map_or(0, |found| found.graph);
        match task(graphs).and_then(|task| graphs.add(graph, task, &after)) {
            Ok(node) => {
                if let Some(member) = self.members.get_mut(&queue.id()) {
                    member.after = vec![node];
                }
                Ok(true)
            }
            Err(error) => {
                self.invalidate(sequence);
                Err(error)
            }
        }
    }

    /// Refuses what cannot be a node, on a capturing stream.
    fn refuse(&mut self, queue: Queue) -> Answer {
        self.check_legacy(queue)?;
        match self.usable(queue.id())?.map(|member| member.sequence) {
            None => Ok(()),
            Some(sequence) => {
                self.invalidate(sequence);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Whether the origin's last nodes do not depend on every node of all streams, destroyed ones
    /// included: such a capture must not end.
    fn is_unjoined(&self, graphs: &Graphs, sequence: u64, origin: &Member) -> bool {
        let Some(found) = self.sequences.get(&sequence) else { return false };
        let mut reached = std::collections::BTreeSet::new();
        let mut to_visit = origin.after.clone();
        while let Some(node) = to_visit.pop() {
            if reached.insert(node)
                && let (Ok((graph, _)), Ok(found)) = (graphs.locate(node), graphs.node(node))
                && let Ok(graph) = graphs.graph(graph)
            {
                to_visit.extend(found.after.iter().map(|before| graph.nodes[before].handle));
            }
        }
        let others = self.members.values().filter(|member| member.sequence == sequence);
        others
            .flat_map(|member| &member.after)
            .chain(&found.left)
            .any(|node| !reached.contains(node))
    }
}

/// Ends a sequence for all its streams. Its graph stays if it is valid or the program's own.
fn take_apart(
    registry: &mut Registry,
    graphs: &mut Graphs,
    sequence: u64,
    is_wanted: bool,
) -> usize {
    registry.members.retain(|_, member| member.sequence != sequence);
    let Some(ended) = registry.sequences.remove(&sequence) else { return 0 };
    if let Ok(graph) = graphs.graph_mut(ended.graph) {
        graph.captures -= 1;
    }
    if !is_wanted && !ended.has_target {
        graphs.discard(ended.graph);
    }
    ended.graph
}
