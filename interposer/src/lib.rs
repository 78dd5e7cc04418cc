//! `libvgpu.so`: stands between a program and the CUDA driver and holds it to its slice.
//!
//! Loading this library does nothing; the first CUDA or NVML call sets it to work. A call's way
//! through the modules:
//!
//! | | module | what happens there |
//! |---|---|---|
//! | the road in | [`roads`] | dlsym, dlvsym and cuGetProcAddress hand out our wrapper for the driver's function |
//! | the boundary | [`table`], [`boundary`] | one row per hooked symbol becomes a wrapper that lets no panic out |
//! | the operation | [`memory`], [`stream_ordered`], [`synchronize`], [`context`], [`info`], [`nvml`], [`init`] | a short function per symbol |
//! | the share | [`compute`] | launches: a jump in [`arch`], past the gate where a share holds |
//! | the books | [`allocations`], [`pools`] | what this process holds, by pointer and by memory pool |
//! | the slice | [`slice`] | which limits hold here, and the charge against every level |
//! | the driver | [`driver`] | the functions that the program would have reached without us |
//!
//! The rule for every body: ask the driver with the program's own arguments, and change nothing but
//! what a limit requires.

#[macro_use]
mod boundary;
mod allocations;
mod arch;
mod cards;
mod compute;
mod context;
mod driver;
mod info;
mod init;
mod memory;
mod nvml;
mod pools;
mod roads;
mod say;
mod settings;
mod settled;
mod slice;
mod stream_ordered;
mod synchronize;
mod table;
