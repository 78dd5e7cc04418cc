//! The built library: its name, its exported symbols, and no others.

use stub_engine::symbols::{self, NEWEST};
use stub_gpu::testing::{check_library, library};

#[test]
fn it_exports_what_a_driver_does_and_nothing_else() {
    let symbols = symbols::exports(NEWEST).collect();
    check_library(&library("stub-libcuda", "libcuda.so"), "libcuda.so.1", &symbols);
}
