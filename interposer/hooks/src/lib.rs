//! `libvgpu.so`: a preloaded library between a program and the CUDA driver that enforces the limits
//! of a slice.
//!
//! The library is a stack of crates. Each one uses only those above it in this table:
//!
//! | crate | what it has |
//! |---|---|
//! | `driver-sys` | signatures and layouts from NVIDIA's headers |
//! | [`vgpu_table`] | the hook table: one row per symbol that is hooked or called |
//! | [`vgpu_driver`] | the real driver: addresses, typed callers, contexts |
//! | [`vgpu_slice`] | which limits hold, and the memory that is charged |
//! | [`vgpu_compute`] | the compute share: admission, metering and billing of launches |
//! | `vgpu`, this one | the exported wrappers and the bodies of the hooks |
//!
//! Loading the library does nothing; the first CUDA or NVML call does the first work. The way of a
//! call:
//!
//! 1. [`lookup`]: dlsym, dlvsym and cuGetProcAddress return our wrapper instead of the driver's
//!    function. A program that is linked to the driver finds the wrapper by itself.
//! 2. [`boundary`]: each row of the hook table becomes a wrapper that lets no panic out. A
//!    [`launch`] is a [`jump`] instead, which most often goes straight to the driver.
//! 3. The body, a short function per symbol: [`init`], [`memory`], [`arrays`], [`virtual_memory`],
//!    [`bindings`], [`external`], [`ipc`], [`stream_ordered`], [`graphs`], [`context`],
//!    [`functions`], [`info`], [`synchronize`], [`capture`], [`nvml`]. [`form`] has the two forms
//!    of calls that name a stream. A body reads the program's arguments and calls an operation of
//!    `vgpu_slice` or `vgpu_compute`. Most bodies are rows of `around`.
//! 4. The operation calls the driver through [`vgpu_driver::real`].
//!
//! The rule for every body: call the driver with the program's own arguments, and change only what
//! a limit requires.

// A panic here would be a panic in the user's program.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::doc_markdown)] // most names in comments are CUDA's

#[macro_use]
mod boundary;

mod arrays;
mod bindings;
mod capture;
mod context;
mod external;
mod form;
mod functions;
mod graphs;
mod info;
mod init;
mod ipc;
mod jump;
mod launch;
mod lookup;
mod memory;
mod nvml;
mod stream_ordered;
mod synchronize;
mod virtual_memory;
