//! The account, as its readers see it.

use crate::errors;
use hami_account::Snapshot;
use pyo3::prelude::*;
use std::path::PathBuf;

/// What one process of a slice holds and uses; entry i of a list is for the card of row i.
#[pyclass(module = "hami_py._native", frozen, get_all)]
pub struct ProcessUse {
    /// The process, as it is numbered in its own PID namespace.
    pid: u32,
    /// When it started, in clock ticks since boot; with the pid it names one process. 0 = unknown.
    start_time: u64,
    /// The inode of its PID namespace; 0 = unknown.
    pid_namespace: u64,
    /// False once it has died; its bytes are counted until the driver has had time to free them.
    alive: bool,
    /// Bytes.
    memory: Vec<u64>,
    /// How often an allocation was refused, by row.
    refusals: Vec<u64>,
    /// For how long the card's engine worked for it, in nanoseconds.
    used_ns: Vec<u64>,
    /// For how long its threads were kept from launching, in nanoseconds.
    throttled_ns: Vec<u64>,
    /// How much more than its share it has used just now, in nanoseconds.
    debt_ns: Vec<u64>,
}

impl From<hami_account::ProcessUse> for ProcessUse {
    fn from(process: hami_account::ProcessUse) -> Self {
        Self {
            pid: process.identity.pid,
            start_time: process.identity.start_time,
            pid_namespace: process.identity.pid_namespace,
            alive: process.alive,
            memory: process.memory.to_vec(),
            refusals: process.refusals.to_vec(),
            used_ns: process.compute.map(|card| card.used_ns).to_vec(),
            throttled_ns: process.compute.map(|card| card.throttled_ns).to_vec(),
            debt_ns: process.compute.map(|card| card.debt_ns).to_vec(),
        }
    }
}

/// An account, read once: the processes and the sums belong together.
#[pyclass(module = "hami_py._native", frozen, get_all)]
pub struct AccountSnapshot {
    /// The processes that hold a place in the account.
    processes: Vec<Py<ProcessUse>>,
    /// Bytes that all processes together hold, by row.
    memory_used: Vec<u64>,
    /// How often an allocation was refused, by row, also to processes that are gone.
    refusals: Vec<u64>,
    /// For how long the engines worked for the slice, in nanoseconds, by row, likewise.
    used_ns: Vec<u64>,
    /// For how long its threads were kept from launching, in nanoseconds, by row, likewise.
    throttled_ns: Vec<u64>,
}

/// The file that says what the processes of a slice hold. Read here, written by the library.
#[pyclass(module = "hami_py._native", frozen)]
pub struct Account {
    path: PathBuf,
}

impl Account {
    fn read(&self, py: Python<'_>) -> PyResult<Snapshot> {
        py.detach(|| Snapshot::read(&self.path)).map_err(errors::file)
    }
}

#[pymethods]
impl Account {
    /// Makes an empty account; the file must not exist.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| hami_account::Account::create(&path)).map_err(errors::file)?;
        Ok(Self { path })
    }

    /// An existing account.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let account = Self { path };
        account.read(py)?;
        Ok(account)
    }

    /// What it says now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<AccountSnapshot> {
        let read = self.read(py)?;
        let processes =
            read.processes.into_iter().map(|process| Py::new(py, ProcessUse::from(process)));
        Ok(AccountSnapshot {
            processes: processes.collect::<PyResult<_>>()?,
            memory_used: read.used.to_vec(),
            refusals: read.refusals.to_vec(),
            used_ns: read.used_ns.to_vec(),
            throttled_ns: read.throttled_ns.to_vec(),
        })
    }

    /// Give back what dead processes held, as far as its time has come; how many bytes.
    ///
    /// It maps the file, so only for a slice whose processes are trusted not to cut it short.
    fn reclaim(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| hami_account::Account::attach(&self.path).map(|account| account.reap_dead()))
            .map_err(errors::file)
    }
}
