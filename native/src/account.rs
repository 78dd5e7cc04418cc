//! The account, for its readers.

use crate::errors;
use hami_account::Snapshot;
use hami_coordinator::Meter;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The memory and time that one process of a slice uses. Entry i of a list is for the card of row
/// i.
#[pyclass(module = "hami_py._native", frozen, get_all)]
pub struct ProcessUse {
    /// The process's number in its own PID namespace.
    pid: u32,
    /// When it started, in clock ticks since boot; with the pid it names one process. 0 = unknown.
    start_time: u64,
    /// The inode of its PID namespace; 0 = unknown.
    pid_namespace: u64,
    /// False once the process has died. Its bytes count until the driver has had time to free them.
    alive: bool,
    /// Bytes, including those of the driver.
    memory: Vec<u64>,
    /// The bytes of `memory` that the driver has taken for itself.
    driver_memory: Vec<u64>,
    /// The number of refused allocations, by row.
    refusals: Vec<u64>,
    /// The time for which the card's engine was busy with its kernels, in nanoseconds.
    used_ns: Vec<u64>,
    /// The time for which its threads waited to launch, in nanoseconds.
    throttled_ns: Vec<u64>,
    /// The engine time that it has used beyond its share and not yet paid back, in nanoseconds.
    debt_ns: Vec<u64>,
    /// When it last worked on the card, in seconds since 1970; `None` = never, or not measured.
    last_used: Vec<Option<f64>>,
}

/// The instant of the files' clock in seconds since 1970. An untrue one is not in the future.
fn unix_time(instant_ns: u64) -> Option<f64> {
    let age = Duration::from_nanos(hami_limits::clock::monotonic_ns().saturating_sub(instant_ns));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    (instant_ns > 0).then(|| now.saturating_sub(age).as_secs_f64())
}

impl From<hami_account::ProcessUse> for ProcessUse {
    fn from(process: hami_account::ProcessUse) -> Self {
        Self {
            last_used: process.compute.map(|card| unix_time(card.active_at)).to_vec(),
            pid: process.identity.pid,
            start_time: process.identity.start_time,
            pid_namespace: process.identity.pid_namespace,
            alive: process.alive,
            memory: process.memory.to_vec(),
            driver_memory: process.driver_memory.to_vec(),
            refusals: process.refusals.to_vec(),
            used_ns: process.compute.map(|card| card.used_ns).to_vec(),
            throttled_ns: process.compute.map(|card| card.throttled_ns).to_vec(),
            debt_ns: process.compute.map(|card| card.debt_ns).to_vec(),
        }
    }
}

/// An account, read once, so that the processes and the sums belong together.
#[pyclass(module = "hami_py._native", frozen, get_all)]
pub struct AccountSnapshot {
    /// The processes that have a slot of the account.
    processes: Vec<Py<ProcessUse>>,
    /// The bytes that all processes hold together, by row.
    memory_used: Vec<u64>,
    /// The bytes of `memory_used`, by row, that the driver was measured to hold for the processes
    /// beyond what they are charged, such as for modules.
    measured_memory: Vec<u64>,
    /// The most bytes that were in use, by row.
    memory_peak: Vec<u64>,
    /// The number of refused allocations, by row, including processes that have exited.
    refusals: Vec<u64>,
    /// Engine time in nanoseconds, by row, including processes that have exited.
    used_ns: Vec<u64>,
    /// The time for which threads waited to launch, in nanoseconds, by row, including processes
    /// that have exited.
    throttled_ns: Vec<u64>,
}

/// The file with the memory and time that the processes of a slice use. The library writes it.
#[pyclass(module = "hami_py._native", frozen)]
pub struct Account {
    path: PathBuf,
}

impl Account {
    fn read(&self, py: Python<'_>) -> PyResult<Snapshot> {
        py.detach(|| errors::contained(&self.path, || Snapshot::read(&self.path)))
    }
}

#[pymethods]
impl Account {
    /// Creates an empty account. The file must not exist.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| hami_account::Account::create(&path)).map_err(errors::file)?;
        Ok(Self { path })
    }

    /// An existing account.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Snapshot::check(&path)).map_err(errors::file)?;
        Ok(Self { path })
    }

    /// The account now.
    fn snapshot(&self, py: Python<'_>) -> PyResult<AccountSnapshot> {
        let read = self.read(py)?;
        let processes =
            read.processes.into_iter().map(|process| Py::new(py, ProcessUse::from(process)));
        Ok(AccountSnapshot {
            processes: processes.collect::<PyResult<_>>()?,
            memory_used: read.used.to_vec(),
            measured_memory: read.measured.to_vec(),
            memory_peak: read.peak.to_vec(),
            refusals: read.refusals.to_vec(),
            used_ns: read.used_ns.to_vec(),
            throttled_ns: read.throttled_ns.to_vec(),
        })
    }

    /// Releases the memory of dead processes if it is time to, and returns how many bytes that are.
    ///
    /// It maps the file, so the processes of the slice must be trusted not to truncate it.
    fn reclaim(&self, py: Python<'_>) -> PyResult<u64> {
        let reclaim =
            || hami_account::Account::attach(&self.path).map(|account| account.reap_dead());
        py.detach(|| errors::contained(&self.path, reclaim))
    }
}

/// Write into a slice's files what NVML shows of its processes: which dead ones' memory the driver has
/// freed, and what it holds beyond the charges, such as for modules.
///
/// Only one process may do so at a time, and no coordinator that reads sweeps. It maps the files of
/// the slice, so the processes of the slice must be trusted not to truncate them.
#[pyclass(module = "hami_py._native", frozen)]
pub struct MemoryMeter(PathBuf, Mutex<Meter>);

impl MemoryMeter {
    fn with<T: Send>(&self, py: Python<'_>, use_it: impl FnOnce(&mut Meter) -> T + Send) -> T {
        py.detach(|| use_it(&mut self.1.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl MemoryMeter {
    /// A meter for the slice in this directory. With `measures` the driver's memory beyond the charges
    /// counts.
    #[new]
    fn new(py: Python<'_>, directory: PathBuf, measures: bool) -> PyResult<Self> {
        match py.detach(|| Meter::open(&directory, measures)) {
            Ok(meter) => Ok(Self(directory, Mutex::new(meter))),
            Err(error) => Err(errors::os(&directory, &error)),
        }
    }

    /// Whether any process has joined the slice.
    fn has_processes(&self, py: Python<'_>) -> bool {
        self.with(py, |meter| meter.has_processes())
    }

    /// Compares the files with a sweep, as `hami_py.gpu.sweep` encodes it.
    fn update(&self, py: Python<'_>, sweep: Vec<u8>) -> PyResult<()> {
        let updated = self.with(py, |meter| meter.update(&sweep));
        updated.map_err(|damage| errors::damaged_slice(&self.0, damage))
    }

    /// Forgets what was measured of processes that have ended.
    fn release_ended(&self, py: Python<'_>) {
        self.with(py, Meter::release_ended);
    }
}

/// The directory of this user's slices, if the user has named none.
#[pyfunction]
pub fn runtime_directory(py: Python<'_>) -> PathBuf {
    py.detach(hami_account::runtime_directory)
}
