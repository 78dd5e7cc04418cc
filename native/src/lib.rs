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

use pyo3::prelude::*;

/// The Rust core: quantities, the files of a slice, the coordinator, and the cluster allocator.
#[pymodule]
mod _native {
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

    /// Cards that a slice can have: rows of its limits page.
    #[pymodule_export]
    const MAX_CARDS: usize = hami_limits::page::MAX_ROWS;
}
