//! The built library: its name, and exactly a driver's symbols besides the stub's own two.

use std::collections::BTreeSet;
use std::process::Command;
use stub_engine::symbols::{CUDA, INTEROP};
use stub_gpu::testing::library;

/// What the stub exports for tests and for its own NVML.
const OWN: [&str; 2] = ["stub_card_usage", "stub_ledger_json"];

fn lines_of(program: &str, argument: &str) -> String {
    let library = library("stub-libcuda", "libcuda.so");
    let output = Command::new(program).arg(argument).arg(library).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_exports_what_a_driver_does_and_nothing_else() {
    let text = lines_of("nm", "-D");
    let exported: BTreeSet<_> =
        text.lines().filter_map(|line| line.split_once(" T ")).map(|row| row.1).collect();
    let expected: BTreeSet<_> = CUDA.iter().chain(INTEROP).chain(&OWN).copied().collect();
    assert_eq!(exported, expected);
}

#[test]
fn programs_find_it_by_the_drivers_name() {
    let text = lines_of("readelf", "-d");
    assert!(text.contains("soname: [libcuda.so.1]"), "{text}");
}
