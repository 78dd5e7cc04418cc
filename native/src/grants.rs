//! The grants page, as its maker sees it: a coordinator writes it, the library reads it.

use crate::errors;
use hami_limits::grants::GrantsPage;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The file in which a coordinator says whose turn it is on the cards of a slice.
#[pyclass(module = "hami_py._native", frozen)]
pub struct Grants;

#[pymethods]
impl Grants {
    /// Makes an empty page, in which nobody coordinates; the file must not exist.
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| GrantsPage::create(&path).map(drop)).map_err(errors::file)
    }
}
