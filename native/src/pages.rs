//! The two pages of a slice: the limits page, opened and changed, and the grants page, created.

use crate::errors;
use hami_limits::grants;
use hami_limits::{InvalidValue, Mode, Priority, Regime, Row};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One card of a limits page: memory limit in bytes, share in percent; None = no limit. Mode is
/// "hard" or "soft", priority "low", "normal" or "high". `context_memory` is what the driver takes
/// for a process's context, in bytes; None = unknown. `granule`: the driver takes requests of more
/// than half of this many bytes in multiples of it; None = to the byte. `injected_memory` and
/// `injected_share` are the limits in the environment of the container.
#[pyclass(module = "hami_py._native", get_all, set_all, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub struct LimitRow {
    uuid: String,
    memory_limit: Option<u64>,
    share: Option<u32>,
    mode: Named<Mode>,
    priority: Named<Priority>,
    context_memory: Option<u64>,
    granule: Option<u32>,
    injected_memory: Option<u64>,
    injected_share: Option<u32>,
}

#[pymethods]
impl LimitRow {
    #[new]
    #[pyo3(signature = (
        uuid, memory_limit=None, share=None, mode="hard", priority="normal", *,
        context_memory=None, granule=None, injected_memory=None, injected_share=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        uuid: String,
        memory_limit: Option<u64>,
        share: Option<u32>,
        mode: &str,
        priority: &str,
        context_memory: Option<u64>,
        granule: Option<u32>,
        injected_memory: Option<u64>,
        injected_share: Option<u32>,
    ) -> PyResult<Self> {
        let (mode, priority) = (Named::parse(mode)?, Named::parse(priority)?);
        Ok(Self {
            uuid,
            memory_limit,
            share,
            mode,
            priority,
            context_memory,
            granule,
            injected_memory,
            injected_share,
        })
    }

    fn __repr__(&self) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "None".to_owned());
        format!(
            "LimitRow({:?}, memory_limit={}, share={}, mode={:?}, priority={:?}, \
             context_memory={}, granule={}, injected_memory={}, injected_share={})",
            self.uuid,
            text(self.memory_limit.map(|bytes| bytes.to_string())),
            text(self.share.map(|percent| percent.to_string())),
            self.mode.word(),
            self.priority.word(),
            text(self.context_memory.map(|bytes| bytes.to_string())),
            text(self.granule.map(|bytes| bytes.to_string())),
            text(self.injected_memory.map(|bytes| bytes.to_string())),
            text(self.injected_share.map(|percent| percent.to_string())),
        )
    }
}

impl From<Row> for LimitRow {
    fn from(row: Row) -> Self {
        Self {
            uuid: row.uuid,
            memory_limit: row.memory_limit,
            share: row.share,
            mode: Named(row.mode),
            priority: Named(row.priority),
            context_memory: row.context_memory,
            granule: row.granule,
            injected_memory: row.injected_memory,
            injected_share: row.injected_share,
        }
    }
}

impl From<LimitRow> for Row {
    fn from(row: LimitRow) -> Self {
        Self {
            uuid: row.uuid,
            memory_limit: row.memory_limit,
            share: row.share,
            mode: row.mode.0,
            priority: row.priority.0,
            context_memory: row.context_memory,
            granule: row.granule,
            injected_memory: row.injected_memory,
            injected_share: row.injected_share,
        }
    }
}

/// Share in percent, mode and priority of one card.
type PyRegime = (Option<u32>, Named<Mode>, Named<Priority>);

/// Whether two UUIDs name the same card. The prefix `GPU-` or `MIG-` is ignored: the driver does
/// not report it.
#[pyfunction]
pub fn same_card(left: &str, right: &str) -> bool {
    hami_limits::same_card(left, right)
}

/// The file with the limits of a slice. Its owner can change it; others can read it.
#[pyclass(module = "hami_py._native", frozen)]
pub struct LimitsPage(Mutex<hami_limits::LimitsPage>);

impl LimitsPage {
    fn page(&self) -> MutexGuard<'_, hami_limits::LimitsPage> {
        // The page itself is on disk and always complete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl LimitsPage {
    /// Creates a page. The file must not exist. Slices with the same `gang` have leases together.
    #[staticmethod]
    #[pyo3(signature = (path, rows, *, gang=None))]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        rows: Vec<LimitRow>,
        gang: Option<[u8; 16]>,
    ) -> PyResult<Self> {
        let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
        py.detach(|| hami_limits::LimitsPage::create(&path, gang, &rows))
            .map(|page| Self(Mutex::new(page)))
            .map_err(errors::file)
    }

    /// Opens an existing page.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| hami_limits::LimitsPage::open(&path))
            .map(|page| Self(Mutex::new(page)))
            .map_err(errors::file)
    }

    /// The gang of the slice; None = it has none.
    fn gang(&self, py: Python<'_>) -> PyResult<Option<[u8; 16]>> {
        py.detach(|| self.page().gang()).map_err(errors::file)
    }

    /// The rows that are in force now.
    fn rows(&self, py: Python<'_>) -> PyResult<Vec<LimitRow>> {
        let rows = py.detach(|| self.page().rows()).map_err(errors::file)?;
        Ok(rows.into_iter().map(LimitRow::from).collect())
    }

    /// Sets the memory limits of some cards, in bytes by UUID; None is no limit. All of them are in
    /// force when this returns.
    fn set_memory_limits(
        &self,
        py: Python<'_>,
        limits: HashMap<String, Option<u64>>,
    ) -> PyResult<()> {
        let limits: Vec<_> = limits.iter().map(|(uuid, limit)| (uuid.as_str(), *limit)).collect();
        py.detach(|| self.page().set_memory_limits(&limits)).map_err(errors::file)
    }

    /// Sets the share in percent (None is no limit), the mode and the priority of some cards, by
    /// UUID. All of them are in force when this returns.
    fn set_regimes(&self, py: Python<'_>, regimes: HashMap<String, PyRegime>) -> PyResult<()> {
        let regimes = regimes.iter().map(|(uuid, (share, mode, priority))| {
            // On the page 0 means "no limit"; from Python it is an invalid percentage.
            if *share == Some(0) {
                let fix = "write 1 to 100, or None for no limit";
                return Err(errors::invalid(InvalidValue::new("share", "0", fix)));
            }
            let share = share.unwrap_or(0);
            Ok((uuid.as_str(), Regime { share, mode: mode.0, priority: priority.0 }))
        });
        let regimes = regimes.collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.page().set_regimes(&regimes)).map_err(errors::file)
    }
}

/// The file in which the coordinator grants leases on the cards of a slice.
#[pyclass(module = "hami_py._native", frozen)]
pub struct GrantsPage;

#[pymethods]
impl GrantsPage {
    /// Creates a page without grants. The file must not exist.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| grants::GrantsPage::create(&path).map(drop)).map_err(errors::file)
    }
}

/// A value that is a word in Python.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Named<T>(pub T);

/// A type whose values have names in Python.
pub trait Words: Copy + PartialEq + 'static {
    const FIELD: &'static str;
    const FIX: &'static str;
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for Mode {
    const FIELD: &'static str = "mode";
    const FIX: &'static str = "write hard or soft";
    const WORDS: &'static [(&'static str, Self)] = &[("hard", Self::Hard), ("soft", Self::Soft)];
}

impl Words for Priority {
    const FIELD: &'static str = "priority";
    const FIX: &'static str = "write low, normal or high";
    const WORDS: &'static [(&'static str, Self)] =
        &[("low", Self::Low), ("normal", Self::Normal), ("high", Self::High)];
}

impl<T: Words> Named<T> {
    pub fn parse(text: &str) -> PyResult<Self> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, value)| Self(*value))
            .ok_or_else(|| errors::invalid(InvalidValue::new(T::FIELD, text, T::FIX)))
    }

    pub fn word(self) -> &'static str {
        T::WORDS.iter().find(|(_, value)| *value == self.0).map_or("", |(word, _)| *word)
    }
}

impl<T: Words> FromPyObject<'_, '_> for Named<T> {
    type Error = PyErr;

    fn extract(name: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Self::parse(name.extract::<&str>()?)
    }
}

impl<'py, T: Words> IntoPyObject<'py> for Named<T> {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::new(py, self.word()))
    }
}
