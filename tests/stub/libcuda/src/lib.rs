//! `libcuda.so.1` without a GPU: every function of cuda.h, over the stub engine.
//!
//! Programs and libraries that use the driver must run on it unmodified and see what a real driver
//! would show them: handles, error codes, bytes, versions. So every symbol of the header exists;
//! [`table`] says which of them do something, one row each; the others answer
//! `CUDA_ERROR_NOT_SUPPORTED`. What drivers export beside that header is in [`interop`]. Kernels are
//! not computed, they only take time; undocumented export tables are not served.
//!
//! A call comes in through an export that [`table`] generates, passes [`boundary`] (which counts it
//! and stops panics), has its C arguments wrapped ([`boundary`]), and reaches a safe function in the
//! module of its noun.

// The header's constants are named one by one nowhere: hundreds of them, all with its own prefix.
#![allow(clippy::wildcard_imports)]
// A body takes what the header's function takes.
#![allow(clippy::too_many_arguments)]

mod attributes;
mod boundary;
mod capture;
mod context;
mod copy;
mod device;
mod errors;
mod event;
mod fill;
mod function;
mod graph;
mod host;
mod image;
mod interop;
mod launch;
mod link;
mod lookup;
mod managed;
mod memory;
mod module;
mod occupancy;
mod old_launch;
mod outside;
mod pointer;
mod pool;
mod primary;
mod process;
mod slab;
mod stream;
mod table;
mod texture;
mod visible;
mod volume;
mod work;

#[cfg(test)]
mod tests;

/// What an operation answers: a value, or the driver's error code.
type Answer<T = ()> = Result<T, driver_sys::cuda::CUresult>;
