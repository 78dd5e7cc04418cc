//! `libnvidia-ml.so.1` without a GPU: NVML over the stub engine.
//!
//! It shows the cards and processes of the stub `libcuda.so.1`: those of the server's engine, or,
//! without a server, those of this process. Every symbol of nvml.h exists. [`table`] has a row for
//! each symbol that does something; the others return `NVML_ERROR_NOT_SUPPORTED`.
//!
//! NVML's structures have grown with its versions, and old names keep the old size. So every
//! version with its own structure has its own function.

// The header has hundreds of constants, all with their own prefix.
#![allow(clippy::wildcard_imports)]

mod accounting;
mod boundary;
mod device;
mod engine;
mod events;
mod hardware;
mod memory_limits;
mod mig;
mod processes;
mod system;
mod table;

#[cfg(test)]
mod tests;

/// The result of an operation: a value, or NVML's error code.
type Answer<T = ()> = Result<T, driver_sys::nvml::nvmlReturn_t>;
