//! Engine time of several processes, on the real clock and on a virtual one.

use crate::driven::{Driven, Server, row, wait_for};
use serde_json::{Value, json};
use std::time::Duration;
use stub_engine::Engine;
use stub_engine::client::Client;
use stub_engine::clock::{Clock, RealClock};
use stub_engine::time::{FULL, Lane, Mark, Progress, Query, Work};

const MS: u64 = 1_000_000;

/// A client process that launches kernels on one stream.
pub struct Worker<'a> {
    client: &'a Client,
    lane: Lane,
}

impl<'a> Worker<'a> {
    pub fn new(client: &'a Client) -> Self {
        Self { client, lane: Lane::default() }
    }

    /// Launches so many kernels of `ns`, at an instant of its clock (0: now).
    pub fn launch(&self, count: u64, ns: u64, at: u64) -> u64 {
        let name = self.client.kernel("k");
        for _ in 0..count {
            let at = if at == 0 { RealClock.now() } else { at };
            self.client.submit(&self.lane, 1, 0, Work::Kernel { name, ns, demand: FULL }, at);
        }
        count
    }

    fn progress(&self, at: u64, has_forecast: bool) -> Progress {
        let query = Query { mark: self.lane.last(), event: None, has_forecast };
        assert_ne!(query.mark, Mark::NONE);
        self.client.status(&query, at).expect("a server").progress
    }

    pub fn is_done(&self, at: u64) -> bool {
        matches!(self.progress(at, true), Progress::Done(_))
    }

    /// The same without a forecast.
    pub fn peek(&self, at: u64) -> bool {
        matches!(self.progress(at, false), Progress::Done(_))
    }

    /// Waits for all of it as the driver does; returns the number of queries.
    pub fn wait(&self) -> u64 {
        let mut queries = 1;
        while let Progress::Pending { check_at, .. } = self.progress(RealClock.now(), true) {
            RealClock.sleep_until(check_at.expect("nothing waits for ever"));
            queries += 1;
        }
        queries
    }

    /// Launches without end, into a ring that only the server empties.
    pub fn flood(&self) -> ! {
        println!("answer 1");
        loop {
            self.launch(1, 20_000, 0);
        }
    }
}

fn history(server: &Server) -> Value {
    server.ask(&json!({"command": "history"}))
}

/// The buckets of a process on card 0: start and engine time.
fn buckets(history: &Value, client: &Driven) -> Vec<(u64, u64)> {
    let cards = &row(history, client.process.id())["cards"];
    let buckets = cards[0]["buckets"].as_array().expect("buckets").iter();
    buckets.map(|pair| (pair[0].as_u64().expect("start"), pair[1].as_u64().expect("ns"))).collect()
}

#[test]
fn two_processes_get_their_requests_and_never_more_than_the_card() {
    let server = Server::start("time", &["--cards", "t4"]);
    let mut clients = [server.client("a"), server.client("b")];
    for client in &mut clients {
        assert_eq!(client.does(&format!("launch 30 {} 0", 4 * MS)), [30]);
    }
    for client in &mut clients {
        client.tell("wait");
    }
    for client in &mut clients {
        let looks = client.hear()[0];
        assert!(looks < 120 * 2, "asked {looks} times, and then slept");
    }
    let history = history(&server);
    let mut together = std::collections::BTreeMap::new();
    for client in &clients {
        let card = server.card(client);
        assert_eq!(card["busy_ns"], 120 * MS);
        assert_eq!(card["by_kernel"], json!({"k": {"launched": 30, "busy_ns": 120 * MS}}));
        let buckets = buckets(&history, client);
        assert_eq!(buckets.iter().map(|(_, ns)| ns).sum::<u64>(), 120 * MS);
        for (start, ns) in buckets {
            *together.entry(start).or_insert(0) += ns;
        }
    }
    let width = history["bucket_ns"].as_u64().expect("width");
    assert!(together.values().all(|ns| *ns <= width), "{together:?}");
    assert_eq!(server.ledger()["cards"][0]["busy_ns"], 240 * MS);
}

#[test]
fn on_a_virtual_clock_every_number_is_exact() {
    let arguments = ["--cards", "t4", "--clock", "virtual", "--switch-us", "0"];
    let server = Server::start("virtual", &arguments);
    let mut clients = [server.client("a"), server.client("b")];
    assert_eq!(clients[0].does(&format!("launch 100 {MS} {}", 5 * MS)), [100]);
    assert_eq!(clients[1].does(&format!("launch 2 {} {}", 3 * MS, 10 * MS)), [2]);
    let busy = |server: &Server, clients: &[Driven; 2]| {
        clients.each_ref().map(|client| server.card(client)["busy_ns"].as_u64().expect("ns"))
    };
    // There was no query yet: now is the latest instant that a client has reported.
    assert_eq!(busy(&server, &clients), [5 * MS, 0]);
    assert_eq!(server.ledger()["now_ns"], 10 * MS);
    // The first one's slice ends at 11 ms, and the second one has three of 2 ms.
    assert_eq!(clients[1].does(&format!("status {}", 24 * MS)), [1]);
    assert_eq!(clients[1].does(&format!("status {}", 12 * MS)), [1], "what is done stays done");
    let [first, second] = busy(&server, &clients);
    assert_eq!((second, first), (6 * MS, 13 * MS));
    assert_eq!(clients[1].does(&format!("launch 100 {MS} {}", 30 * MS)), [100]);
    assert_eq!(clients[0].does(&format!("status {}", 49 * MS)), [0]);
    let expected = busy(&server, &clients);
    assert_eq!(expected.iter().sum::<u64>(), first + second + 25 * MS);
    let sums = clients
        .each_ref()
        .map(|client| buckets(&history(&server), client).iter().map(|(_, ns)| ns).sum::<u64>());
    assert_eq!(sums, expected);
}

#[test]
fn local_answers_of_a_client_move_the_virtual_clock() {
    let arguments = ["--cards", "t4", "--clock", "virtual"];
    let server = Server::start("promised", &arguments);
    let mut clients = [server.client("a"), server.client("b")];
    assert_eq!(clients[0].does(&format!("launch 3 {} {}", 10 * MS, 5 * MS)), [3]);
    // The server promises 35 ms at the first status, and receives no query before that.
    for (at, done) in [(6, 0), (20, 0), (34, 0)] {
        assert_eq!(clients[0].does(&format!("peek {}", at * MS)), [done]);
        assert_eq!(server.ledger()["now_ns"], at * MS);
        assert_eq!(server.card(&clients[0])["busy_ns"], (at - 5) * MS);
    }
    assert_eq!(clients[1].does(&format!("launch 1 {MS} {}", 34 * MS)), [1]);
    assert_eq!(clients[0].does(&format!("peek {}", 36 * MS)), [1]);
    // A process ends at the latest instant that a client has reported, or would have.
    assert_eq!(clients[0].does(&format!("launch 1 {} {}", 9 * MS, 40 * MS)), [1]);
    assert_eq!(clients[0].does(&format!("peek {}", 42 * MS)), [0]);
    assert_eq!(clients[0].does(&format!("peek {}", 43 * MS)), [0]);
    let pid = clients[0].process.id();
    clients[0].kill();
    wait_for("its end", || (row(&server.ledger(), pid)["state"] == "freed").then_some(()));
    assert_eq!(clients[1].does(&format!("status {}", 60 * MS)), [1]);
    let switch = 50_000;
    assert_eq!(server.card(&clients[0])["busy_ns"], 33 * MS - switch);
}

#[test]
fn a_killed_process_vanishes_from_the_engine_and_the_others_go_on() {
    let server = Server::start("killed", &["--cards", "t4"]);
    let mut survivor = server.client("a");
    for round in 0..12 {
        let mut flooding = server.client("b");
        assert_eq!(flooding.does("flood"), [1]);
        assert_eq!(survivor.does(&format!("launch 2 {} 0", 3 * MS)), [2]);
        // At another point of its loop each time.
        std::thread::sleep(Duration::from_micros(1234 * round));
        let pid = flooding.process.id();
        flooding.kill();
        survivor.does("wait");
        wait_for("its end", || (row(&server.ledger(), pid)["state"] == "freed").then_some(()));
        let before = server.card(&flooding)["busy_ns"].clone();
        assert_eq!(survivor.does(&format!("launch 1 {MS} 0")), [1]);
        survivor.does("wait");
        assert_eq!(server.card(&flooding)["busy_ns"], before, "it has no work left");
    }
    assert_eq!(server.card(&survivor)["busy_ns"], 12 * 7 * MS);
}
