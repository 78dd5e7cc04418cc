//! Launches of executable graphs: each step is submitted to the engine after its dependencies.
//!
//! A graph has its own lanes, one for each branch. A launch begins after the pending work of its
//! stream and after the graph's last launch; work in the stream after it waits for its last steps.
//! A step that takes no time needs no lane: it is done when its dependencies are. As with every
//! asynchronous call here, bytes are copied and host functions are called during the launch, in the
//! order of the steps.

use super::exec::{self, State, Step};
use super::task::{Task, shape};
use crate::capture::take;
use crate::context::Context;
use crate::process::{Driver, driver, lock};
use crate::stream::work::{self, Lane, Mark, Work};
use crate::stream::{self, Queue};
use crate::{
    Answer, launch,
    memory::{fill, volume},
};
use driver_sys::cuda::*;
use std::collections::BTreeMap;

/// A branch's queue.
struct Branch {
    /// The handle of the context of its work; 0 until a launch sets it to its stream's.
    context: usize,
    /// Whether the branch uses the context of the launch's stream.
    is_open: bool,
    lane: Lane,
}

/// The branches of an executable graph, and the end of its last launch.
pub struct Running {
    branches: Vec<Branch>,
    ends: Vec<Mark>,
}

impl Running {
    pub fn new(steps: &[Step]) -> Self {
        let count = steps.iter().map(|step| step.branch + 1).max().unwrap_or(0);
        let branch = |_| Branch { context: 0, is_open: true, lane: Lane::default() };
        let mut branches: Vec<Branch> = (0..count).map(branch).collect();
        for step in steps {
            let branch = &mut branches[step.branch];
            branch.context = branch.context.max(step.task.context());
            branch.is_open = branch.context == 0;
        }
        Self { branches, ends: Vec::new() }
    }

    /// Ends the queues of a context that is about to end.
    pub fn leave(&mut self, driver: &Driver, context: &Context, own_handle: usize) {
        for branch in self.branches.iter_mut().filter(|branch| branch.context == own_handle) {
            work::end(driver, context, &branch.lane);
            if branch.is_open {
                branch.context = 0;
            }
        }
    }
}

impl Drop for Running {
    /// Work that runs continues.
    fn drop(&mut self) {
        let Ok(driver) = driver() else { return };
        for branch in &self.branches {
            if let Some(context) = driver.contexts.get(branch.context) {
                work::end(driver, context, &branch.lane);
            }
        }
    }
}

/// When something is done: the last mark of each branch that it depends on.
type Done = BTreeMap<usize, Mark>;

/// Adds a dependency.
fn join(done: &mut Done, more: &Done) {
    for (branch, mark) in more {
        let last = done.entry(*branch).or_insert(*mark);
        *last = (*last).max(*mark);
    }
}

/// One launch in progress.
struct Launch<'a> {
    driver: &'static Driver,
    running: &'a Running,
    /// The branches' lanes.
    contexts: Vec<&'static Context>,
    /// The marks that the first step of each branch depends on.
    before: Vec<Mark>,
    /// When the steps so far are done.
    done: Vec<Done>,
}

impl Launch<'_> {
    /// A step's lane and context, after the lane's waits for the step's dependencies.
    fn enter(&self, step: &Step, behind: &Done) -> (&'static Context, &Lane) {
        let context = self.contexts[step.branch];
        let lane = &self.running.branches[step.branch].lane;
        let elsewhere = behind.iter().filter(|(branch, _)| **branch != step.branch);
        let first = if behind.is_empty() { &self.before[..] } else { &[] };
        for mark in elsewhere.map(|(_, mark)| mark).chain(first) {
            work::submit(self.driver, context, lane, Work::Wait(*mark));
        }
        (context, lane)
    }

    fn submit(&self, step: &Step, behind: &Done, work: Work) -> Mark {
        let (context, lane) = self.enter(step, behind);
        work::submit(self.driver, context, lane, work)
    }

    /// Does a step, or submits it to the engine; returns its mark if it takes time there.
    fn run(&self, step: &Step, kernel: Option<&launch::Kernel>, behind: &Done) -> Answer<Mark> {
        match &step.task {
            Task::Kernel(_) => {
                let Some(kernel) = kernel else { return Ok(Mark::NONE) };
                let (context, lane) = if kernel.ns > 0 {
                    self.enter(step, behind)
                } else {
                    (self.contexts[step.branch], &self.running.branches[step.branch].lane)
                };
                kernel.function.take_local(self.driver, self.contexts[step.branch])?;
                Ok(launch::enqueue_in(self.driver, context, lane, kernel))
            }
            Task::Copy(copy, _) => {
                let card = self.contexts[step.branch].card();
                let timed = volume::run(self.driver, card, copy)?;
                Ok(timed.map_or(Mark::NONE, |work| self.submit(step, behind, work)))
            }
            Task::Fill(rows) => fill::run(self.driver, rows).map(|()| Mark::NONE),
            Task::Host(call) => {
                if let Some(function) = call.r#fn {
                    // SAFETY: the program's own function and argument.
                    unsafe { function(call.userData) };
                }
                Ok(Mark::NONE)
            }
            // Memory is allocated and freed when the launch ends.
            Task::Child(_) | Task::Empty | Task::Allocate(_) | Task::Free(_) => Ok(Mark::NONE),
        }
    }

    fn step(&mut self, step: &Step, kernel: Option<&launch::Kernel>) -> Answer {
        let mut done = Done::new();
        for before in &step.after {
            join(&mut done, &self.done[*before]);
        }
        let mark = self.run(step, kernel, &done)?;
        if !mark.is_none() {
            // Its lane has waited for the step's dependencies.
            done = Done::from([(step.branch, mark)]);
        }
        self.done.push(done);
        Ok(())
    }
}

/// When the steps without dependents are done.
fn ends(steps: &[Step], done: &[Done]) -> Done {
    let mut is_end = vec![true; steps.len()];
    for before in steps.iter().flat_map(|step| &step.after) {
        is_end[*before] = false;
    }
    let mut ends = Done::new();
    for (done, _) in done.iter().zip(is_end).filter(|(_, is_end)| *is_end) {
        join(&mut ends, done);
    }
    ends
}

impl State {
    /// Launches all steps. Refuses before it does anything if a handle is not valid any more.
    fn launch(&mut self, driver: &'static Driver, queue: Queue) -> Answer {
        for branch in self.running.branches.iter_mut().filter(|branch| branch.context == 0) {
            branch.context = queue.context().1;
        }
        let context_of = |branch: &Branch| {
            driver.contexts.get(branch.context).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        };
        let kernel_of = |step: &Step| match &step.task {
            Task::Kernel(call) => launch::check(driver, call.func, &shape(call)).map(Some),
            _ => Ok(None),
        };
        let contexts: Answer<Vec<_>> = self.running.branches.iter().map(context_of).collect();
        let kernels: Answer<Vec<_>> = self.steps.iter().map(kernel_of).collect();
        let (contexts, kernels) = (contexts?, kernels?);
        let mut before = self.running.ends.clone();
        before.push(queue.tail(driver));
        before.retain(|mark| !mark.is_none());
        let done = Vec::with_capacity(self.steps.len());
        let mut launch = Launch { driver, running: &self.running, contexts, before, done };
        self.memory.begin(driver, queue)?;
        let mut steps = self.steps.iter().zip(&kernels);
        let result = steps.try_for_each(|(step, kernel)| launch.step(step, kernel.as_ref()));
        if result.is_err() {
            self.memory.end(driver, queue, false);
            return result;
        }
        let ends = ends(&self.steps, &launch.done);
        for mark in ends.values() {
            queue.submit(driver, Work::Wait(*mark));
        }
        if !ends.is_empty() {
            self.running.ends = ends.into_values().collect();
        }
        self.memory.end(driver, queue, true);
        Ok(())
    }
}

/// `cuGraphLaunch`
pub fn launch(exec: CUgraphExec, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    let exec = exec::find(exec)?;
    if take::graph(driver, queue, &exec)? {
        return Ok(());
    }
    lock(&exec.state).launch(driver, queue)
}

/// `cuGraphUpload`: maps the graph's memory, and takes no time.
pub fn upload(exec: CUgraphExec, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    let exec = exec::find(exec)?;
    lock(&exec.state).memory.map(driver, queue)
}
