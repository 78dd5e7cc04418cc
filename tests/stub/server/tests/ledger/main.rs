//! The server with real processes: the ledger when they allocate, race and are killed.
//!
//! The child processes are this test program, running [`client`].

mod driven;
mod time;

use driven::{Server, row, wait_for};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use stub_engine::Engine;
use stub_engine::client::Client;
use stub_engine::ledger::{Kind, Walk};
use stub_engine::symbols::Library;

/// The body of a client process: `charge BYTES`, `release BYTES`, `managed BYTES`, `pool ROOM
/// BYTES`, `unpool BYTES ROOM`, `graph ROOM BYTES`, `churn SEED ROUNDS`, `fork`; `launch COUNT NS AT` (AT 0: now),
/// `status AT`, `wait`, `flood`: see [`time`].
#[test]
fn client() {
    let Some(socket) = std::env::var_os("STUB_TEST_SOCKET") else { return };
    let group = std::env::var("STUB_TEST_GROUP").expect("group");
    let client = Client::connect(socket.as_ref(), Library::Cuda, &group).expect("connect");
    let worker = time::Worker::new(&client);
    for line in std::io::stdin().lines() {
        let line = line.expect("line");
        let words: Vec<_> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().expect("number");
        match words[0] {
            "charge" => {
                let granted = client.charge(0, Kind::Requested, number(1)).is_ok();
                println!("answer {}", u64::from(granted));
            }
            "release" => {
                client.release(0, Kind::Requested, number(1));
                println!("answer 1");
            }
            "managed" => {
                let granted = client.charge(0, Kind::Managed, number(1)).is_ok();
                println!("answer {}", u64::from(granted));
            }
            "pool" => {
                let grown = client.charge_pool(0, [number(1); 2], number(2));
                println!("answer {}", grown.unwrap_or(u64::MAX));
            }
            "unpool" => {
                client.release_pool(0, number(1), number(2));
                println!("answer 1");
            }
            "graph" => {
                let granted = client.charge(0, Kind::Graphs, number(1)).is_ok();
                let mut walk = Walk::default();
                walk.allocate(number(2));
                client.walk_graph(0, walk);
                println!("answer {}", u64::from(granted));
            }
            "fork" => {
                // SAFETY: the child only waits to be killed.
                let child = unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::pause();
                    }
                    child
                };
                println!("answer {child}");
            }
            "churn" => {
                let (held, refused) = churn(&client, number(1), number(2));
                println!("answer {held} {refused}");
            }
            "launch" => println!("answer {}", worker.launch(number(1), number(2), number(3))),
            "status" => println!("answer {}", u64::from(worker.is_done(number(1)))),
            "peek" => println!("answer {}", u64::from(worker.peek(number(1)))),
            "wait" => println!("answer {}", worker.wait()),
            "flood" => worker.flood(),
            other => panic!("unknown order {other}"),
        }
    }
}

/// Random charges and releases; returns the bytes held at the end and the refusals met.
fn churn(client: &Client, seed: u64, rounds: u64) -> (u64, u64) {
    let mut random = seed;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..rounds {
        if held.is_empty() || next(3) > 0 {
            let bytes = 1 + next(2 << 30);
            match client.charge(0, Kind::Requested, bytes) {
                Ok(()) => held.push(bytes),
                Err(_) => refused += 1,
            }
        } else {
            let index = next(held.len() as u64) as usize;
            client.release(0, Kind::Requested, held.swap_remove(index));
        }
    }
    (held.iter().sum(), refused)
}

#[test]
fn eight_racing_processes_half_of_them_killed_are_recorded_to_the_byte() {
    let server = Server::start("eight", &["--cards", "t4"]);
    let mut clients: Vec<_> = (0..8).map(|_| server.client("race")).collect();
    for (seed, client) in (1..).zip(&mut clients) {
        // Processes that will be killed never end by themselves.
        let rounds = if seed % 2 == 0 { u64::MAX } else { 3000 };
        client.tell(&format!("churn {seed} {rounds}"));
    }
    let mut total = 0;
    let mut refused = 0;
    for client in clients.iter_mut().step_by(2) {
        let answer = client.hear();
        total += answer[0];
        refused += answer[1];
        let ledger = server.ledger();
        let held = &row(&ledger, client.process.id())["cards"][0]["requested"]["now"];
        assert_eq!(held.as_u64(), Some(answer[0]));
    }
    for client in clients.iter_mut().skip(1).step_by(2) {
        client.kill();
    }
    let ledger = wait_for("the killed ones' bytes", || {
        let ledger = server.ledger();
        let rows = ledger["processes"].as_array()?;
        (rows.iter().filter(|row| row["state"] == "freed").count() == 4).then_some(ledger)
    });
    let card = &ledger["cards"][0];
    assert_eq!(card["requested"]["now"].as_u64(), Some(total));
    assert_eq!(card["used"].as_u64(), Some(total));
    assert!(card["requested"]["peak"].as_u64() <= card["total"].as_u64(), "{card}");
    assert!(card["refused"].as_u64() >= Some(refused), "{card}");
    assert_eq!(card["groups"]["race"]["requested"], card["requested"]);
    for client in clients.iter().skip(1).step_by(2) {
        let ended = &row(&ledger, client.process.id())["cards"][0];
        assert_eq!((&ended["requested"]["now"], &ended["allocations"]), (&json!(0), &json!(0)));
    }
}

#[test]
fn a_forked_child_holds_its_parents_bytes_as_long_as_it_lives() {
    let server = Server::start("fork", &["--cards", "t4"]);
    let mut client = server.client("");
    assert_eq!(client.does("charge 777"), [1]);
    let child = client.does("fork")[0];
    client.kill();
    assert_eq!(server.ledger()["cards"][0]["used"], 777);
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(child as i32, libc::SIGKILL) };
    wait_for("the bytes", || (server.ledger()["cards"][0]["used"] == 0).then_some(()));
}

#[test]
fn a_release_without_its_charge_ends_the_connection() {
    let server = Server::start("overdrawn", &["--cards", "t4"]);
    let mut client = server.client("");
    assert_eq!(client.does("charge 10"), [1]);
    client.does("release 11");
    assert_eq!(client.does("charge 1"), [0], "the server has hung up");
    assert_eq!(server.ledger()["cards"][0]["used"], 0);
}

#[test]
fn peaks_groups_and_faults_are_told_apart() {
    let server = Server::start("faults", &["--cards", "t4,t4"]);
    let (mut first, mut second) = (server.client("a"), server.client("b"));
    assert_eq!(first.does("charge 1000"), [1]);
    assert_eq!(second.does("charge 500"), [1]);
    assert_eq!(first.does("release 1000"), [1]);
    assert_eq!(server.ask(&json!({"command": "oom", "card": 0, "nth": 2})), json!({"ok": true}));
    assert_eq!(first.does("charge 1"), [1]);
    assert_eq!(second.does("charge 1"), [0], "the planned refusal");
    assert_eq!(second.does("charge 1"), [1]);
    let ledger = server.ledger();
    let peak = |ledger: &Value, group: &str| {
        ledger["cards"][0]["groups"][group]["requested"]["peak"].as_u64()
    };
    assert_eq!((peak(&ledger, "a"), peak(&ledger, "b")), (Some(1000), Some(501)));
    assert_eq!(ledger["cards"][0]["requested"]["peak"], 1500);
    assert_eq!(ledger["cards"][0]["refused"], 1);
    assert_eq!(ledger["cards"][1]["used"], 0);
    server.ask(&json!({"command": "reset-peaks"}));
    assert_eq!(peak(&server.ledger(), "a"), Some(1));
}

#[test]
fn a_wrong_command_returns_an_error() {
    let server = Server::start("wrong", &["--cards", "t4"]);
    for (command, word) in [
        (json!({"command": "explode"}), "explode"),
        (json!({"command": "oom", "card": 1, "nth": 1}), "card"),
        (json!({"command": "oom", "card": 0, "nth": 0}), "nth"),
        (json!({"command": "lose", "card": 1}), "card 1"),
        (json!({"command": "xid", "card": 0}), "xid"),
        (json!({"command": "slow", "symbol": "cudaMalloc", "us": 1}), "cudaMalloc"),
        (json!(7), "7"),
    ] {
        let answer = server.ask(&command);
        let error = answer["error"].as_str().expect("an error");
        assert!(error.contains(word), "{command}: {error}");
    }
}

#[test]
fn a_stop_command_ends_it_and_removes_its_sockets() {
    let mut server = Server::start("stop", &[]);
    assert_eq!(server.ask(&json!({"command": "shutdown"})), json!({"ok": true}));
    assert!(server.process.wait().expect("wait").success());
    assert!(!server.directory.join("engine").exists());
    assert!(!server.directory.join("control").exists());
}

#[test]
fn it_exits_with_its_parent() {
    let server = Server::start("orphan", &[]);
    let socket = server.directory.join("orphans-engine");
    let script = r#""$0" serve --with-parent --socket "$1" --control "$1.control" & wait"#;
    let mut parent = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_stub-gpu")])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .expect("sh");
    wait_for("the orphan's socket", || UnixStream::connect(&socket).ok());
    parent.kill().expect("kill");
    parent.wait().expect("wait");
    wait_for("the orphan's end", || UnixStream::connect(&socket).is_err().then_some(()));
}

const MIB: u64 = 1 << 20;

#[test]
fn pool_and_managed_memory_of_a_killed_process_is_released_after_the_delay() {
    let server = Server::start("pools", &["--cards", "t4", "--free-delay-ms", "200"]);
    let (mut killed, mut other) = (server.client("a"), server.client("a"));
    assert_eq!(killed.does("managed 99"), [1]);
    assert_eq!(killed.does(&format!("pool {} 7", 32 * MIB)), [32 * MIB]);
    assert_eq!(killed.does("pool 0 8"), [0], "in the room that is there");
    assert_eq!(other.does(&format!("pool {} 5", 2 * MIB)), [2 * MIB]);
    let ledger = server.ledger();
    let group = &ledger["cards"][0]["groups"]["a"];
    assert_eq!(group["requested"]["now"], 99 + 7 + 8 + 5);
    assert_eq!(group["cached"]["now"], 34 * MIB - 7 - 8 - 5);
    assert_eq!(group["held"], json!({"now": 34 * MIB + 99, "peak": 34 * MIB + 99}));
    assert_eq!((&group["managed"]["now"], &group["allocations"]), (&json!(99), &json!(4)));
    assert_eq!(ledger["cards"][0]["used"], 34 * MIB);
    let pid = killed.process.id();
    let at = Instant::now();
    killed.kill();
    let ledger = wait_for("the bytes", || {
        let ledger = server.ledger();
        let is_gone = row(&ledger, pid)["state"] == "freed";
        let used = if is_gone { 2 * MIB } else { 34 * MIB };
        assert_eq!(ledger["cards"][0]["used"], used);
        is_gone.then_some(ledger)
    });
    assert!(at.elapsed() >= Duration::from_millis(200));
    let ended = &row(&ledger, pid)["cards"][0];
    for kind in ["requested", "cached", "held", "managed"] {
        assert_eq!(ended[kind]["now"], 0, "{kind}");
    }
    assert_eq!(ended["held"]["peak"], 32 * MIB + 99);
    assert_eq!(ledger["cards"][0]["groups"]["a"]["held"]["now"], 2 * MIB);
}

#[test]
fn graph_memory_of_a_killed_process_is_released() {
    let server = Server::start("graphs", &["--cards", "t4"]);
    let mut client = server.client("a");
    assert_eq!(client.does(&format!("graph {} 7", 2 * MIB)), [1]);
    let held = server.card(&client);
    assert_eq!(held["graphs"], json!({"now": 2 * MIB, "peak": 2 * MIB}));
    assert_eq!(
        (&held["requested"]["now"], &held["cached"]["now"]),
        (&json!(7), &json!(2 * MIB - 7))
    );
    let pid = client.process.id();
    client.kill();
    let freed = wait_for("the bytes", || {
        let ledger = server.ledger();
        let row = row(&ledger, pid);
        (row["state"] == "freed").then(|| row["cards"][0].clone())
    });
    assert_eq!(freed["graphs"], json!({"now": 0, "peak": 2 * MIB}));
}

#[test]
fn a_pool_that_releases_too_much_loses_its_connection() {
    let server = Server::start("overdrawn-pool", &["--cards", "t4"]);
    let unpools = ["unpool 8 0", "unpool 0 2097152", "unpool 7 2097153"];
    for wrong in unpools.into_iter().chain(["pool 0 2097146", "graph 2097152 4194298"]) {
        let mut client = server.client("");
        assert_eq!(client.does("pool 2097152 7"), [2 * MIB]);
        client.does(wrong);
        assert_eq!(client.does("charge 1"), [0], "{wrong}: the server has hung up");
    }
}
