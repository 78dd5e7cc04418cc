//! The built library: its name, and exactly the header's symbols.

use std::collections::BTreeSet;
use std::process::Command;
use stub_engine::symbols::NVML;
use stub_gpu::testing::library;

fn lines_of(program: &str, argument: &str) -> String {
    let library = library("stub-libnvidia-ml", "libnvidia_ml.so");
    let output = Command::new(program).arg(argument).arg(library).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_exports_the_header_and_nothing_else() {
    let text = lines_of("nm", "-D");
    let exported: BTreeSet<_> =
        text.lines().filter_map(|line| line.split_once(" T ")).map(|row| row.1).collect();
    let expected: BTreeSet<_> = NVML.iter().copied().collect();
    assert_eq!(exported, expected);
}

#[test]
fn programs_find_it_by_the_drivers_name() {
    let text = lines_of("readelf", "-d");
    assert!(text.contains("soname: [libnvidia-ml.so.1]"), "{text}");
}
