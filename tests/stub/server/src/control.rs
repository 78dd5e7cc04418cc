//! The control socket: one JSON object per line in, one per line out.
//!
//! Through it a test reads what the driver really allocated, and orders faults.

use crate::faults::Fault;
use crate::node::Node;
use crate::serve;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use stub_engine::durations::{Durations, Entry};
use stub_engine::mig;

#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    /// Reports the ledger.
    Ledger,
    /// Reports when each process had which card's compute engine.
    History,
    /// Starts peaks and refusal counts again.
    ResetPeaks,
    /// Sets how long launches take by kernel name; `*` for the others. Replaces what was set
    /// before.
    Kernels { kernels: BTreeMap<String, Entry> },
    /// [`Fault::OutOfMemory`]
    Oom { card: usize, nth: u64 },
    /// [`Fault::Slow`]
    Slow { symbol: String, us: u32 },
    /// [`Fault::Xid`]
    Xid { card: usize, xid: u32 },
    /// [`Fault::Lost`]
    Lose { card: usize },
    /// [`Fault::Lost`]
    Restore { card: usize },
    /// [`Fault::RemapFailed`]
    RemapFailed { card: usize, failed: bool },
    /// Does a MIG call, as root.
    Mig { card: usize, call: mig::Call },
    /// A process that no list shows holds a card, or a GPU instance, or not any more.
    MigHold { card: usize, instance: Option<u32>, held: bool },
    /// The next creation of a compute instance fails.
    MigFail { card: usize },
    /// Resets a card.
    Reset { card: usize },
    /// Ends the server.
    Shutdown,
}

fn execute(command: Command, node: &Node) -> Result<Value, String> {
    match command {
        Command::Ledger => return Ok(node.report()),
        Command::History => return Ok(node.history()),
        Command::ResetPeaks => node.reset_peaks(),
        Command::Kernels { kernels } => node.set_durations(Durations::new(&kernels)),
        Command::Oom { card, nth } => node.inject(Fault::OutOfMemory { card, nth })?,
        Command::Slow { symbol, us } => node.inject(Fault::Slow { symbol, us })?,
        Command::Xid { card, xid } => node.inject(Fault::Xid { card, xid })?,
        Command::Lose { card } => node.inject(Fault::Lost { card, is_lost: true })?,
        Command::Restore { card } => node.inject(Fault::Lost { card, is_lost: false })?,
        Command::RemapFailed { card, failed: has_failed } => {
            node.inject(Fault::RemapFailed { card, has_failed })?;
        }
        Command::Mig { card, call } => {
            let reply = node.mig(card, &call, None)?;
            if reply.code != 0 {
                return Err(format!("mig: card {card}: {call:?}: NVML error {}", reply.code));
            }
            return Ok(json!(reply));
        }
        Command::MigHold { card, instance, held } => node.mig_hold(card, instance, held)?,
        Command::MigFail { card } => node.mig_fail(card)?,
        Command::Reset { card } => node.reset(card)?,
        Command::Shutdown => {}
    }
    Ok(json!({"ok": true}))
}

/// Replies to one connection's lines until it closes.
pub fn serve(stream: UnixStream, node: &Node) {
    let Ok(reader) = stream.try_clone() else { return };
    let mut writer = stream;
    for line in BufReader::new(reader).lines() {
        let Ok(line) = line else { return };
        let command = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"));
        let is_last = matches!(command, Ok(Command::Shutdown));
        let answer = command
            .and_then(|command| execute(command, node))
            .unwrap_or_else(|error| json!({"error": error}));
        // In one write: a value formats itself in hundreds of small ones.
        let sent = writer.write_all(format!("{answer}\n").as_bytes());
        if is_last {
            serve::stop();
        }
        if sent.is_err() {
            return;
        }
    }
}

/// Sends one line to a server and prints the reply.
pub fn send(socket: &Path, line: &str) -> Result<(), String> {
    let at = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(at)?;
    writeln!(stream, "{line}").map_err(at)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(at)?;
    print!("{answer}");
    match serde_json::from_str::<Value>(&answer) {
        Ok(value) if value.get("error").is_none() => Ok(()),
        _ => Err("the server refused the command".into()),
    }
}
