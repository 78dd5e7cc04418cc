//! The limits page.

use crate::errors;
use crate::regime::Named;
use hami_limits::{InvalidValue, Mode, Priority, Regime, Row};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One card of a limits page: memory limit in bytes, share in percent; None = no limit. Mode is
/// "hard" or "soft", priority "low", "normal" or "high".
#[pyclass(module = "hami_py._native", get_all, set_all, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub struct LimitRow {
    uuid: String,
    memory_limit: Option<u64>,
    share: Option<u32>,
    mode: Named<Mode>,
    priority: Named<Priority>,
}

#[pymethods]
impl LimitRow {
    #[new]
    #[pyo3(signature = (
        uuid, memory_limit=None, share=None, mode="hard", priority="normal"
    ))]
    fn new(
        uuid: String,
        memory_limit: Option<u64>,
        share: Option<u32>,
        mode: &str,
        priority: &str,
    ) -> PyResult<Self> {
        let (mode, priority) = (Named::parse(mode)?, Named::parse(priority)?);
        Ok(Self { uuid, memory_limit, share, mode, priority })
    }

    fn __repr__(&self) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "None".to_owned());
        format!(
            "LimitRow({:?}, memory_limit={}, share={}, mode={:?}, priority={:?})",
            self.uuid,
            text(self.memory_limit.map(|bytes| bytes.to_string())),
            text(self.share.map(|percent| percent.to_string())),
            self.mode.word(),
            self.priority.word(),
        )
    }
}

impl From<Row> for LimitRow {
    fn from(row: Row) -> Self {
        let Row { uuid, memory_limit, share, mode, priority } = row;
        Self { uuid, memory_limit, share, mode: Named(mode), priority: Named(priority) }
    }
}

impl From<LimitRow> for Row {
    fn from(row: LimitRow) -> Self {
        let LimitRow { uuid, memory_limit, share, mode, priority } = row;
        Self { uuid, memory_limit, share, mode: mode.0, priority: priority.0 }
    }
}

/// Share in percent, mode and priority of one card.
type PyRegime = (Option<u32>, Named<Mode>, Named<Priority>);

/// Whether two UUIDs name one card: the driver does not say whether it is a `GPU-` or a `MIG-`.
#[pyfunction]
pub fn same_card(left: &str, right: &str) -> bool {
    hami_limits::same_card(left, right)
}

/// The file that says what a slice may use, opened for reading and (by its owner) changing.
#[pyclass(module = "hami_py._native", frozen)]
pub struct LimitsPage(Mutex<hami_limits::LimitsPage>);

impl LimitsPage {
    fn page(&self) -> MutexGuard<'_, hami_limits::LimitsPage> {
        // The page itself is on disk and always whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl LimitsPage {
    /// Makes a new page; the file must not exist.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf, rows: Vec<LimitRow>) -> PyResult<Self> {
        let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
        py.detach(|| hami_limits::LimitsPage::create(&path, &rows))
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

    /// The rows now in force.
    fn rows(&self, py: Python<'_>) -> PyResult<Vec<LimitRow>> {
        let rows = py.detach(|| self.page().rows()).map_err(errors::file)?;
        Ok(rows.into_iter().map(LimitRow::from).collect())
    }

    /// Sets the memory limits of some cards in bytes by UUID, None for no limit; all of them are in
    /// force when this returns.
    fn set_memory_limits(
        &self,
        py: Python<'_>,
        limits: HashMap<String, Option<u64>>,
    ) -> PyResult<()> {
        let limits: Vec<_> = limits.iter().map(|(uuid, limit)| (uuid.as_str(), *limit)).collect();
        py.detach(|| self.page().set_memory_limits(&limits)).map_err(errors::file)
    }

    /// Sets how some cards are shared, by UUID: share in percent (None for no limit), mode and
    /// priority; all of them are in force when this returns.
    fn set_regimes(&self, py: Python<'_>, regimes: HashMap<String, PyRegime>) -> PyResult<()> {
        let regimes = regimes.iter().map(|(uuid, (share, mode, priority))| {
            // To the page 0 is "no limit"; here it is no percentage.
            if *share == Some(0) {
                let fix = "give 1 to 100, or None for no limit";
                return Err(errors::invalid(InvalidValue::new("share", "0", fix)));
            }
            let share = share.unwrap_or(0);
            Ok((uuid.as_str(), Regime { share, mode: mode.0, priority: priority.0 }))
        });
        let regimes = regimes.collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.page().set_regimes(&regimes)).map_err(errors::file)
    }
}
