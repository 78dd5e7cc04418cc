//! `libnvidia-ml.so.1` without a GPU: NVML over the stub engine.
//!
//! It sees the cards and processes that the stub `libcuda.so.1` makes: those of the server's
//! engine, or, without a server, those of this process. It is built like that library: every symbol
//! of nvml.h exists, [`table`] has a row for each that does something, the others answer
//! `NVML_ERROR_NOT_SUPPORTED`.
//!
//! NVML's structures grew with its versions while old names kept the old size, so every version has a
//! function of its own where its structure differs.

// The header's constants are named one by one nowhere: hundreds of them, all with its own prefix.
#![allow(clippy::wildcard_imports)]

mod accounting;
mod boundary;
mod device;
mod engine;
mod hardware;
mod processes;
mod system;
mod table;

#[cfg(test)]
mod tests;

/// What an operation answers: a value, or NVML's error code.
type Answer<T = ()> = Result<T, driver_sys::nvml::nvmlReturn_t>;
