//! `libcuda.so.1` without a GPU: every function of cuda.h, over the stub engine.
//!
//! Programs and libraries that use the driver must run on it unmodified and see what a real driver
//! would show them: handles, error codes, bytes, versions. Kernels are not computed, they only take
//! time; undocumented export tables are not served.
//!
//! A call enters through an export that [`table`] generates, passes [`boundary`] (which counts it
//! and stops panics), and reaches a safe function in the module of its subject. [`process`] has the
//! state of the driver, and of a process that forks.
//!
//! | to change | look into |
//! |---|---|
//! | which symbols do something | [`table`], a row for each; [`extra_exports`] for those beside cuda.h |
//! | what `cuGetProcAddress` finds | [`lookup`] |
//! | the driver's CUDA version | [`version`] |
//! | devices, `CUDA_VISIBLE_DEVICES` | [`device`] |
//! | contexts, primary contexts | [`context`] |
//! | memory of every kind, copies, fills, pools, sharing | [`memory`] |
//! | streams, events, queued work | [`stream`] |
//! | modules, images, functions, the linker | [`module`] |
//! | launches | [`launch`] |
//! | graphs and captures | [`graph`], [`capture`] |
//! | error names | [`errors`] |

// The header has hundreds of constants, all with their own prefix.
#![allow(clippy::wildcard_imports)]
// A body takes what the header's function takes.
#![allow(clippy::too_many_arguments)]

mod boundary;
mod capture;
mod context;
mod device;
mod errors;
mod extra_exports;
mod graph;
mod launch;
mod lookup;
mod memory;
mod module;
mod process;
mod slab;
mod stream;
mod table;
mod version;

#[cfg(test)]
mod tests;

/// The result of an operation: a value, or the driver's error code.
type Answer<T = ()> = Result<T, driver_sys::cuda::CUresult>;
