//! The built library: its name, its exported symbols, and no others.

use stub_engine::symbols::NVML;
use stub_gpu::testing::{check_library, library};

#[test]
fn it_exports_the_header_and_nothing_else() {
    let library = library("stub-libnvidia-ml", "libnvidia_ml.so");
    check_library(&library, "libnvidia-ml.so.1", &NVML.iter().copied().collect());
}
