//! Managed memory and pools of several processes, and what is left of them when one is killed.

use crate::driven::{Server, row, wait_for};
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn what_a_killed_process_pooled_and_managed_comes_back_after_the_delay() {
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
        let is_gone = row(&ledger, pid)["state"] == "gone";
        let used = if is_gone { 2 * MIB } else { 34 * MIB };
        assert_eq!(ledger["cards"][0]["used"], used);
        is_gone.then_some(ledger)
    });
    assert!(at.elapsed() >= Duration::from_millis(200));
    let gone = &row(&ledger, pid)["cards"][0];
    for kind in ["requested", "cached", "held", "managed"] {
        assert_eq!(gone[kind]["now"], 0, "{kind}");
    }
    assert_eq!(gone["held"]["peak"], 32 * MIB + 99);
    assert_eq!(ledger["cards"][0]["groups"]["a"]["held"]["now"], 2 * MIB);
}

#[test]
fn a_pool_that_gives_back_what_it_has_not_got_loses_its_connection() {
    let server = Server::start("overdrawn-pool", &["--cards", "t4"]);
    for wrong in ["unpool 8 0", "unpool 0 2097152", "unpool 7 2097153", "pool 0 2097146"] {
        let mut client = server.client("");
        assert_eq!(client.does("pool 2097152 7"), [2 * MIB]);
        client.does(wrong);
        assert_eq!(client.does("charge 1"), [0], "{wrong}: the server has hung up");
    }
}
