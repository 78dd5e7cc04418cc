//! The Python class of the cluster allocator: JSON in, JSON or plain values out.

use crate::extender::{self, Answered};
use crate::{errors, metrics};
use hami_allocator::wire::{Assignment, Candidate, PodRequest};
use hami_allocator::{Allocator as Engine, Filtered, NodeUsage, Refusal, parse};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard};

/// Allocates cards to pods over all nodes: filter, score, hold, reserve, release.
///
/// The state is in memory only. Methods can be called from several threads; a lock serialises them.
#[pyclass(module = "hami_py._native", frozen)]
pub struct Allocator {
    engine: Mutex<Engine>,
    /// Only locked while the engine is locked.
    answered: Mutex<Answered>,
}

impl Allocator {
    fn of(engine: Engine) -> Self {
        Self { engine: Mutex::new(engine), answered: Mutex::default() }
    }

    fn with<T: Send>(&self, py: Python<'_>, work: impl Send + FnOnce(&mut Engine) -> T) -> T {
        py.detach(|| work(&mut self.engine.lock().expect("no earlier call has panicked")))
    }

    fn answered(&self) -> MutexGuard<'_, Answered> {
        self.answered.lock().expect("no earlier call has panicked")
    }

    /// The usage part by part; other calls get their turn in between.
    fn parts(&self, with_pods: bool) -> impl Iterator<Item = Vec<NodeUsage>> {
        let engine = || self.engine.lock().expect("no earlier call has panicked");
        (0..).map_while(move |part| engine().usage_part(part, with_pods))
    }
}

#[pymethods]
impl Allocator {
    #[new]
    fn new() -> Self {
        Self::of(Engine::default())
    }

    /// An allocator in the state of a snapshot.
    #[staticmethod]
    fn restore(py: Python<'_>, snapshot: &[u8]) -> PyResult<Self> {
        let engine = py.detach(|| Engine::restore(snapshot)).map_err(errors::invalid)?;
        Ok(Self::of(engine))
    }

    /// Add or replace a published node; pods that are bound to it stay.
    fn set_node(&self, py: Python<'_>, node: &[u8]) -> PyResult<()> {
        self.with(py, |engine| engine.set_node(parse("node", node)?)).map_err(errors::invalid)
    }

    /// Remove a node; its pods count again when it returns.
    fn remove_node(&self, py: Python<'_>, name: &str) {
        self.with(py, |engine| engine.remove_node(name));
    }

    /// Add or replace a quota.
    fn set_quota(&self, py: Python<'_>, quota: &[u8]) -> PyResult<()> {
        self.with(py, |engine| engine.set_quota(parse("quota", quota)?)).map_err(errors::invalid)
    }

    /// Remove a quota.
    fn remove_quota(&self, py: Python<'_>, namespace: &str, name: &str) {
        self.with(py, |engine| engine.remove_quota(namespace, name));
    }

    /// Record a bound pod; `started` means that its ordinary init containers are done.
    fn place(
        &self,
        py: Python<'_>,
        request: &[u8],
        assignment: &[u8],
        started: bool,
    ) -> PyResult<()> {
        let placed = self.with(py, |engine| {
            let request: PodRequest = parse("request", request)?;
            let assignment: Assignment = parse("assignment", assignment)?;
            engine.place(&request, assignment, started)
        });
        placed.map_err(errors::invalid)
    }

    /// Remove a pod that was deleted or has ended.
    fn remove(&self, py: Python<'_>, uid: &str) {
        self.with(py, |engine| engine.remove(uid));
    }

    /// Release what is held or reserved for a pod; what is bound stays.
    fn release(&self, py: Python<'_>, uid: &str) {
        self.with(py, |engine| engine.release(uid));
    }

    /// End the hold for a pod; what is reserved or bound stays.
    fn end_hold(&self, py: Python<'_>, uid: &str) {
        self.with(py, |engine| engine.end_hold(uid));
    }

    /// Hold the cards that a pod gets on a node without its victims, until the hold is ended.
    fn hold_freed(
        &self,
        py: Python<'_>,
        request: &[u8],
        node: &str,
        victims: Vec<PyBackedStr>,
        now_ns: u64,
    ) -> PyResult<()> {
        let held = self.with(py, |engine| {
            engine.hold_freed(&parse("request", request)?, node, &victims, now_ns)
        });
        held.map_err(errors::invalid)
    }

    /// End expired holds; returns how many have expired so far.
    fn expire(&self, py: Python<'_>, now_ns: u64) -> u64 {
        self.with(py, |engine| engine.expire(now_ns))
    }

    /// The nodes that fit, and the reasons of the others: of full nodes, and of those where no
    /// eviction helps.
    #[allow(clippy::type_complexity, reason = "three plain things for Python")]
    fn filter<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        names: Option<Vec<PyBackedStr>>,
        now_ns: u64,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let request = || parse::<PodRequest>("request", request);
        let Some(names) = names else {
            let all = self.with(py, |engine| engine.filter_all(&request()?, now_ns));
            let (names, filtered) = all.map_err(errors::invalid)?;
            return answer(py, &filtered, |node| Ok(PyString::new(py, &names[node]).into_any()));
        };
        let filtered = self.with(py, |engine| engine.filter(&request()?, &names, now_ns));
        // Return the same string objects.
        let name = |node: usize| Ok((&names[node]).into_pyobject(py)?.into_any());
        answer(py, &filtered.map_err(errors::invalid)?, name)
    }

    /// Whether one of these nodes would fit without cards that are reserved, or held until
    /// `soon_ns` at most.
    fn fits_without_unbound(
        &self,
        py: Python<'_>,
        request: &[u8],
        names: Vec<PyBackedStr>,
        now_ns: u64,
        soon_ns: u64,
    ) -> PyResult<bool> {
        let only = self.with(py, |engine| {
            engine.fits_without_unbound(&parse("request", request)?, &names, now_ns, soon_ns)
        });
        only.map_err(errors::invalid)
    }

    /// The score of each node from 0 to 10,000, 0 if the pod does not fit; the best node's cards
    /// are held for `hold_ns`.
    fn score(
        &self,
        py: Python<'_>,
        request: &[u8],
        names: Vec<PyBackedStr>,
        now_ns: u64,
        hold_ns: u64,
    ) -> PyResult<Vec<(PyBackedStr, u16)>> {
        let scores = self
            .with(py, |engine| engine.score(&parse("request", request)?, &names, now_ns, hold_ns));
        Ok(names.into_iter().zip(scores.map_err(errors::invalid)?).collect())
    }

    /// `filter` of a JSON list of names: how many fit, whether all nodes were searched, and
    /// `ExtenderFilterResult` as JSON.
    fn filter_names<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        names: &[u8],
        now_ns: u64,
    ) -> PyResult<(usize, bool, Bound<'py, PyBytes>)> {
        let answer = self.with(py, |engine| {
            let request: PodRequest = parse("request", request)?;
            let (list, filtered) = engine.filter_list(&request, names, now_ns)?;
            let (feasible, whole) = (filtered.feasible.len(), !filtered.is_partial);
            let answer = extender::filter_result(&list, filtered, &mut self.answered());
            Ok((feasible, whole, answer))
        });
        let (feasible, whole, answer) = answer.map_err(errors::invalid)?;
        Ok((feasible, whole, PyBytes::new(py, &answer)))
    }

    /// `score` of a JSON list of names: `HostPriorityList` as JSON.
    fn prioritize_names<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        names: &[u8],
        now_ns: u64,
        hold_ns: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answer = self.with(py, |engine| {
            let request: PodRequest = parse("request", request)?;
            let known = self.answered().take(names);
            let (list, rated) = engine.score_list(&request, names, known, now_ns, hold_ns)?;
            Ok(extender::host_priorities(&list, &rated))
        });
        Ok(PyBytes::new(py, &answer.map_err(errors::invalid)?))
    }

    /// Reserve cards on a node and return the assignment. Repeating it returns the same assignment.
    fn reserve<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        node: &str,
        now_ns: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let reserved = self.with(py, |engine| {
            let request: PodRequest = parse("request", request)?;
            engine.reserve(&request, node, now_ns)
        });
        match reserved {
            Ok(assignment) => Ok(json(py, &assignment)),
            Err(Refusal::Invalid(error)) => Err(errors::invalid(error)),
            Err(Refusal::Unfit(reason)) => Err(errors::unfit(node, &reason.to_string())),
        }
    }

    /// The UIDs of the pods to evict, or None if that would not help or the namespace has used its
    /// steps.
    fn victims(
        &self,
        py: Python<'_>,
        request: &[u8],
        node: &str,
        candidates: &[u8],
        now_ns: u64,
    ) -> PyResult<Option<Vec<String>>> {
        let victims = self.with(py, |engine| {
            let request: PodRequest = parse("request", request)?;
            let candidates: Vec<Candidate> = parse("candidates", candidates)?;
            engine.victims(&request, node, &candidates, now_ns)
        });
        victims.map_err(errors::invalid)
    }

    /// Whether the search for victims of this pod at this time has used its steps.
    fn preemption_is_over(&self, py: Python<'_>, uid: &str, now_ns: u64) -> bool {
        self.with(py, |engine| engine.preemption_is_over(uid, now_ns))
    }

    /// Explain each card of a node, with the assignment and the score if the pod fits.
    fn explain<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        node: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let explained = self.with(py, |engine| engine.explain(&parse("request", request)?, node));
        Ok(json(py, &explained.map_err(errors::invalid)?))
    }

    /// The state, for `restore`.
    fn snapshot<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.with(py, Engine::snapshot))
    }

    /// A digest that is equal for equal states.
    fn digest(&self, py: Python<'_>) -> String {
        self.with(py, Engine::digest)
    }

    /// The allocated part of each card, and the pods that have it.
    fn usage<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        json(py, &self.with(py, |engine| engine.usage()))
    }

    /// The part of each namespace's quotas that is in use.
    fn namespaces<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        json(py, &self.with(py, |engine| engine.namespaces()))
    }

    /// The allocated parts of each node's cards, in Prometheus' text format.
    fn node_metrics<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| metrics::nodes(self.parts(false))))
    }

    /// The allocated part of each card, in Prometheus' text format.
    fn card_metrics<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| metrics::cards(self.parts(false))))
    }

    /// The allocated part of each card, and of each pod on it, under HAMi's names.
    fn hami_metrics<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| metrics::hami(self.parts(true))))
    }
}

fn answer<'py>(
    py: Python<'py>,
    filtered: &Filtered,
    name: impl Fn(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let feasible = filtered.feasible.iter().map(|node| name(*node as usize));
    let feasible = PyList::new(py, feasible.collect::<PyResult<Vec<_>>>()?)?;
    let reasons = |nodes: &[(u32, Arc<str>)]| {
        let reasons = PyDict::new(py);
        for (node, why) in nodes {
            reasons.set_item(name(*node as usize)?, &**why)?;
        }
        PyResult::Ok(reasons)
    };
    Ok((feasible, reasons(&filtered.failed)?, reasons(&filtered.unresolvable)?))
}

fn json<'py>(py: Python<'py>, value: &impl Serialize) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &serde_json::to_vec(value).expect("plain values are JSON"))
}
