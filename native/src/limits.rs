//! The limits page.

use crate::errors;
use hami_limits::Row;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One card of a limits page: memory limit in bytes, share in percent; None = no limit.
#[pyclass(module = "hami_py._native", get_all, set_all, eq, from_py_object)]
#[derive(Clone, PartialEq)]
pub struct LimitRow {
    uuid: String,
    memory_limit: Option<u64>,
    share: Option<u32>,
}

#[pymethods]
impl LimitRow {
    #[new]
    #[pyo3(signature = (uuid, memory_limit=None, share=None))]
    fn new(uuid: String, memory_limit: Option<u64>, share: Option<u32>) -> Self {
        Self { uuid, memory_limit, share }
    }

    fn __repr__(&self) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "None".to_owned());
        format!(
            "LimitRow({:?}, memory_limit={}, share={})",
            self.uuid,
            text(self.memory_limit.map(|bytes| bytes.to_string())),
            text(self.share.map(|percent| percent.to_string())),
        )
    }
}

impl From<Row> for LimitRow {
    fn from(row: Row) -> Self {
        Self { uuid: row.uuid, memory_limit: row.memory_limit, share: row.share }
    }
}

impl From<LimitRow> for Row {
    fn from(row: LimitRow) -> Self {
        Self { uuid: row.uuid, memory_limit: row.memory_limit, share: row.share }
    }
}

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
            .map_err(errors::page)
    }

    /// Opens an existing page.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| hami_limits::LimitsPage::open(&path))
            .map(|page| Self(Mutex::new(page)))
            .map_err(errors::page)
    }

    /// The rows now in force.
    fn rows(&self, py: Python<'_>) -> PyResult<Vec<LimitRow>> {
        let rows = py.detach(|| self.page().rows()).map_err(errors::page)?;
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
        py.detach(|| self.page().set_memory_limits(&limits)).map_err(errors::page)
    }
}
