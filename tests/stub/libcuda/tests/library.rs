//! The built library: its name, its exported symbols, and no others.

use stub_engine::symbols::{CUDA, INTEROP};
use stub_gpu::testing::{check_library, library};

/// The functions that the stub exports for tests and for its own NVML.
const OWN: [&str; 3] = ["stub_arrive", "stub_card_usage", "stub_ledger_json"];

#[test]
fn it_exports_what_a_driver_does_and_nothing_else() {
    let symbols = CUDA.iter().chain(INTEROP).chain(&OWN).copied().collect();
    check_library(&library("stub-libcuda", "libcuda.so"), "libcuda.so.1", &symbols);
}
