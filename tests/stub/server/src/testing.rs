//! Helpers for the tests of several crates: a process for one test, and a built library.
//!
//! A driver is initialised once per process and reads the environment then. So each test runs in a
//! new process, which is the same test program with that one test selected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const ALONE: &str = "STUB_TEST_ALONE";

/// Builds the shared library of a package, because `cargo test` does not.
///
/// # Panics
/// When it cannot be built.
pub fn library(package: &str, file: &str) -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").expect("run by cargo"));
    cargo.args(["build", "--message-format", "json-render-diagnostics", "--package", package]);
    let output = cargo.output().expect("cargo");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The path is one of the JSON strings in the output.
    let path = text.split('"').find(|piece| piece.ends_with(&format!("/{file}")));
    PathBuf::from(path.expect("a path of the library"))
}

/// Checks a library's exported symbols and the name that programs load it by.
///
/// # Panics
/// When either is not as expected.
pub fn check_library(library: &Path, soname: &str, symbols: &BTreeSet<&str>) {
    let text = output_of("nm", "-D", library);
    let exported: BTreeSet<_> =
        text.lines().filter_map(|line| line.split_once(" T ")).map(|row| row.1).collect();
    assert_eq!(&exported, symbols);
    let text = output_of("readelf", "-d", library);
    assert!(text.contains(&format!("soname: [{soname}]")), "{text}");
}

fn output_of(program: &str, argument: &str, library: &Path) -> String {
    let output = Command::new(program).arg(argument).arg(library).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether this process runs one test only.
pub fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs `body`, which must be a closure in a test, in a new process with these variables and none
/// of the stub's others.
///
/// # Panics
/// When the body panics, with its output.
pub fn alone<F: Fn()>(environment: &[(&str, &str)], body: F) {
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = path.split_once("::").map_or(path, |(_crate, name)| name);
    if std::env::var(ALONE).is_ok_and(|chosen| chosen == name) {
        return body();
    }
    let mut process = Command::new(std::env::current_exe().expect("own path"));
    process.args([name, "--exact", "--nocapture"]);
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.to_string_lossy().starts_with("STUB_GPU_")) {
        process.env_remove(name);
    }
    process.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_LAUNCH_BLOCKING").env(ALONE, name);
    let output = process.envs(environment.iter().copied()).output().expect("own program");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}{errors}", output.status);
    assert!(text.contains("1 passed"), "{name} did not run:\n{text}");
}
