//! `hami_py._native`: what Python needs of the Rust core, one thin function or class per thing.
//!
//! No policy lives here. Arguments are converted, the lock of the interpreter is given up around
//! everything that can wait for a file, and errors become the exceptions of `hami_py.errors`.

#![allow(clippy::needless_pass_by_value, reason = "what comes from Python comes by value")]
#![allow(clippy::doc_markdown, reason = "doc comments on what Python sees are its docstrings")]

mod account;
mod allocator;
mod coordinator;
mod errors;
mod extender;
mod grants;
mod limits;
mod metrics;
mod quantity;
mod regime;
mod variables;

use pyo3::prelude::*;

/// The Rust core: quantities, the files of a slice, the coordinator, and the cluster allocator.
#[pymodule]
mod _native {
    use hami_limits::variables::{memory_names, share_names};
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_export]
    use crate::account::{Account, AccountSnapshot, ProcessUse};
    #[pymodule_export]
    use crate::allocator::Allocator;
    #[pymodule_export]
    use crate::coordinator::coordinate;
    #[pymodule_export]
    use crate::grants::Grants;
    #[pymodule_export]
    use crate::limits::{LimitRow, LimitsPage, same_card};
    #[pymodule_export]
    use crate::quantity::{format_memory, parse_memory, parse_share};
    #[pymodule_export]
    use crate::variables::{HamiLimit, HamiVariables};

    /// Cards that a slice can have: rows of its limits page.
    #[pymodule_export]
    const MAX_CARDS: usize = hami_limits::page::MAX_ROWS;

    #[pymodule_init]
    fn add_names(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("HAMI_MEMORY_LIMITS", PyTuple::new(py, memory_names().collect::<Vec<_>>())?)?;
        module.add("HAMI_SHARE_LIMITS", PyTuple::new(py, share_names().collect::<Vec<_>>())?)
    }
}
