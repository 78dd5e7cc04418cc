//! NVIDIA's C interface as data: types, constants and one signature per exported symbol.
//!
//! The interposer and the stub driver must agree with the real driver, and with each other, on every
//! signature and layout, so neither writes one by hand: both take them from here, and everything
//! here but this file is generated from NVIDIA's headers (`make gen`).
//!
//! - [`cuda`] and [`nvml`] hold the types and constants, and assert every record's layout as the C
//!   compiler has it;
//! - `cuda_fn!(name, then rest)` expands to `then! { name (parameters) -> type; rest }`, so a macro
//!   of the caller can turn a bare symbol name into a wrapper, a function pointer or a row;
//! - `each_cuda_fn!(then)` hands all signatures to `then!` at once (`each_nvml_fn!` likewise);
//! - [`versions::VERSIONS`] says which symbol `cuGetProcAddress` hands out for which CUDA version.
#![no_std]

/// cuda.h.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#[allow(clippy::pedantic)]
#[rustfmt::skip]
pub mod cuda;

/// nvml.h.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#[allow(clippy::pedantic)]
#[rustfmt::skip]
pub mod nvml;

/// cudaTypedefs.h.
#[rustfmt::skip]
pub mod versions;
