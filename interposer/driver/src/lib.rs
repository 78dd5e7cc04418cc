//! The bottom layer of `libvgpu.so`: the real CUDA driver and NVML, and helpers that know nothing
//! of slices.
//!
//! | module | what it has |
//! |---|---|
//! | [`real`] | a typed caller for every driver function in the hook table |
//! | [`symbols`] | the driver's address of each function |
//! | [`callers`] | whether a hooked function is called by the driver itself |
//! | [`context`] | the current context of a thread |
//! | [`objects`] | the libraries that are loaded; their names and functions |
//! | [`libdl`] | the C library's own `dlsym` and what else a lookup needs |
//! | [`guard`] | keeps panics and thread cancellation inside the library |
//! | [`process`] | whether this process is a fork that inherited the driver's state |
//! | [`racy_once`], [`report`] | values that are set once; lines on standard error |

// A panic here would be a panic in the user's program.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::doc_markdown)] // most names in comments are CUDA's

pub mod callers;
pub mod context;
pub mod guard;
pub mod libdl;
pub mod location;
pub mod objects;
pub mod process;
pub mod racy_once;
pub mod real;
pub mod report;
pub mod symbols;
