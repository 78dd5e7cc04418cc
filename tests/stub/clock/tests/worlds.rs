//! Real processes under the clock: their notes in a common file are the same in each run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stub_gpu::testing::library;

/// Far more real time than any of these needs.
const DEADLINE: Duration = Duration::from_secs(60);
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// Creates a folder for a test.
fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{number}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("folder");
    folder
}

fn compiled(name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    gcc.arg(format!("{PROGRAMS}/{name}.c")).arg("-o").arg(&program);
    assert!(gcc.status().expect("gcc").success(), "{name} does not compile");
    program
}

fn clock() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library("stub-clock", "libstub_clock.so"))
}

/// A group of processes under one clock. Processes that still run are killed when it is dropped.
struct World {
    folder: PathBuf,
    expect: usize,
    processes: Vec<Child>,
}

impl World {
    fn new(name: &str, expect: usize) -> Self {
        Self { folder: folder(name), expect, processes: Vec::new() }
    }

    fn notes(&self) -> PathBuf {
        self.folder.join("notes")
    }

    /// Starts `PROGRAM notes NAME ARGUMENTS`; processes are ordered by their start.
    fn start(&mut self, program: &str, name: &str, arguments: &[&str]) -> u32 {
        self.start_with(program, name, arguments, &[])
    }

    fn start_with(
        &mut self,
        program: &str,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> u32 {
        let mut process = Command::new(compiled(program, &self.folder));
        process
            .arg(self.notes())
            .arg(name)
            .args(arguments)
            .env("LD_PRELOAD", clock())
            .env("STUB_CLOCK", self.folder.join("clock"))
            .env("STUB_CLOCK_PLACE", self.processes.len().to_string())
            .env("STUB_CLOCK_EXPECT", self.expect.to_string())
            .envs(environment.iter().copied());
        let child = process.spawn().expect("start");
        let pid = child.id();
        self.processes.push(child);
        pid
    }

    /// Waits until all have ended, and returns their notes.
    fn finish(mut self) -> Vec<String> {
        let until = Instant::now() + DEADLINE;
        for process in &mut self.processes {
            while process.try_wait().expect("wait").is_none() {
                assert!(Instant::now() < until, "{} stands still", self.folder.display());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let notes = fs::read_to_string(self.notes()).unwrap_or_default();
        notes.lines().map(String::from).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn two_sleepers_alternate_in_the_same_way_each_time() {
    let run = || {
        let mut world = World::new("sleepers", 2);
        world.start("turns", "a", &["3000", "1000000"]);
        world.start("turns", "b", &["2000", "1500000"]);
        world.finish()
    };
    let first = run();
    assert_eq!(
        first[..5],
        ["1000000 a woke", "1500000 b woke", "2000000 a woke", "3000000 a woke", "3000000 b woke",]
    );
    assert_eq!((first.len(), first.last().map(String::as_str)), (5000, Some("3000000000 b woke")));
    assert_eq!(first, run());
}

#[test]
fn a_word_of_a_shared_file_is_passed_to_and_fro() {
    let mut world = World::new("pingpong", 2);
    let file = world.folder.join("word");
    let file = file.to_str().expect("path");
    world.start("pingpong", "a", &[file, "0", "20000"]);
    world.start("pingpong", "b", &[file, "1", "20000"]);
    assert_eq!(
        world.finish(),
        [
            "39999000 a passed 39999",
            "40000000 b passed 40000",
            "40000000 a woken: 0",
            "40005000 b woken: -1",
        ]
    );
}

#[test]
fn lateness_comes_on_top_of_each_sleep_and_wake() {
    let mut world = World::new("late", 1);
    world.start_with("turns", "a", &["2", "1000"], &[("STUB_CLOCK_LATE_NS", "60")]);
    assert_eq!(world.finish(), ["1060 a woke", "2120 a woke"]);
}

#[test]
fn a_process_that_dies_while_it_runs_is_removed() {
    for how in ["return", "_exit", "abort", "kill"] {
        let mut world = World::new("dies", 2);
        world.start("dies", "a", &["1500", how]);
        world.start("turns", "b", &["3", "1000"]);
        let expected = ["1000 b woke", &format!("1500 a {how}"), "2000 b woke", "3000 b woke"];
        assert_eq!(world.finish(), expected);
    }
}

#[test]
fn signals_take_effect_at_the_instant_they_are_sent() {
    let run = || {
        let mut world = World::new("signals", 3);
        let stopped = world.start("turns", "s", &["6", "1000"]).to_string();
        let killed = world.start("turns", "k", &["9", "1000"]).to_string();
        let (kill, stop, go) = ("9", "19", "18");
        let plan = ["1500", stop, &stopped, "1000", kill, &killed, "2000", go, &stopped];
        world.start("signals", "d", &plan);
        world.finish()
    };
    let first = run();
    assert_eq!(
        first,
        [
            "1000 s woke",
            "1000 k woke",
            "1500 d sent 19",
            "2000 k woke",
            "2500 d sent 9",
            "4500 d sent 18",
            "4500 s woke",
            "5500 s woke",
            "6500 s woke",
            "7500 s woke",
            "8500 s woke",
        ]
    );
    assert_eq!(first, run());
}

#[test]
fn a_process_stopped_from_outside_delays_no_other_and_can_continue() {
    let mut world = World::new("outside", 2);
    let stopped = world.start("spins", "s", &["20000000"]) as i32;
    let notes = world.notes();
    // SAFETY: a signal to a child.
    let send = |signal| assert_eq!(unsafe { libc::kill(stopped, signal) }, 0);
    send(libc::SIGSTOP);
    world.start("turns", "t", &["5", "1000000"]);
    let until = Instant::now() + DEADLINE;
    while fs::read_to_string(&notes).unwrap_or_default().lines().count() < 5 {
        assert!(Instant::now() < until, "the stopped process holds up the other");
        std::thread::sleep(Duration::from_millis(5));
        // It may have been stopped before it entered; then it is continued, and stopped again.
        send(libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
        send(libc::SIGSTOP);
    }
    send(libc::SIGCONT);
    assert_eq!(world.finish().len(), 6);
}

#[test]
fn a_process_stopped_during_a_wait_takes_no_turn() {
    let mut world = World::new("middle", 2);
    let stopped = world.start("turns", "s", &["100000", "1"]) as i32;
    world.start("turns", "t", &["100000", "1"]);
    // SAFETY: a signal to a child.
    let send = |signal| assert_eq!(unsafe { libc::kill(stopped, signal) }, 0);
    for round in 0..100 {
        send(libc::SIGSTOP);
        // Long enough for the other process to detect that and to continue without it.
        std::thread::sleep(Duration::from_millis(30));
        send(libc::SIGCONT);
        std::thread::sleep(Duration::from_micros(10_000 + 37 * round));
    }
    assert_eq!(world.finish().len(), 200_000);
}

#[test]
fn a_thread_that_spins_until_a_time_sees_it_come() {
    let mut world = World::new("spins", 2);
    world.start("spins", "a", &["5000"]);
    world.start("turns", "b", &["1", "2000"]);
    assert_eq!(world.finish(), ["2000 b woke", "5000 a reached"]);
}

#[test]
fn the_locks_of_the_c_library_wait_in_virtual_time() {
    let mut world = World::new("threads", 1);
    world.start("threads", "t", &[]);
    let notes = world.finish();
    let said: Vec<_> = notes.iter().map(|line| line.split_once(' ').expect("time").1).collect();
    assert_eq!(
        said,
        [
            "t holder lets go",
            "t waiter has the mutex",
            "t joined the holder",
            "t waiter saw the condition",
            "t after seconds: 110",
            "t waiter got the semaphore",
            "t joined the waiter",
        ]
    );
    assert!(notes[2].starts_with("2000000 ") && notes[5].starts_with("60002000000 "), "{notes:?}");
    // By the time of day, which advances while the program runs: a little less.
    let seconds: u64 = notes[4].split_once(' ').expect("time").0.parse().expect("number");
    assert!((4_000_000_000..=5_002_000_000).contains(&seconds), "{notes:?}");
}

#[test]
fn children_take_part_and_a_new_program_keeps_its_place() {
    let mut world = World::new("begets", 1);
    world.start("begets", "p", &[]);
    assert_eq!(
        world.finish(),
        [
            "1000 p parent",
            "1500 p child",
            "2000 p parent",
            "3000 p parent",
            "3000 p is another program",
            "3000 p child",
            "4000 p and sleeps",
        ]
    );
}

#[test]
fn an_observer_reads_the_time_and_delays_no_process() {
    let mut world = World::new("observer", 1);
    world.start("turns", "a", &["1000", "1000000"]);
    world.start_with("spins", "o", &["1000000000"], &[("STUB_CLOCK_ROLE", "observer")]);
    let notes: BTreeSet<_> = world.finish().into_iter().collect();
    assert!(notes.contains("1000000000 o reached"), "{notes:?}");
}

#[test]
fn bad_settings_are_reported() {
    for (name, value) in [("STUB_CLOCK_LATE_NS", "1ms"), ("STUB_CLOCK_ROLE", "watcher")] {
        let output = Command::new("true")
            .env("LD_PRELOAD", clock())
            .env("STUB_CLOCK", folder("bad").join("clock"))
            .env(name, value)
            .output()
            .expect("true");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(name) && said.contains(value), "{said}");
    }
}
