//! The control socket: one JSON object per line in, one per line out.
//!
//! It is how a test asks what the driver really granted, and how it makes things go wrong on purpose.

use crate::arguments::slicing;
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
use stub_engine::symbols::Library;

#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    /// Everything the ledger says.
    Ledger,
    /// Let peaks and refusal counts start from now.
    ResetPeaks,
    /// How long a gone process's bytes stay taken.
    FreeDelay { ms: u64 },
    /// When each process had which card's compute engine.
    History,
    /// What launches take by kernel name; `*` for the others. Replaces what was set before.
    Kernels { kernels: BTreeMap<String, Entry> },
    /// How contexts take turns on a card from now on.
    Slicing { slice_us: u64, switch_us: u64 },
    /// The `nth` allocation on `card` from now (1 is the next) is refused.
    Oom { card: usize, nth: u64 },
    /// Every call of `symbol` takes `us` longer; 0 ends it.
    Slow { symbol: String, us: u32 },
    /// End the server.
    Shutdown,
}

fn execute(command: Command, node: &Node) -> Result<Value, String> {
    match command {
        Command::Ledger => return Ok(node.report()),
        Command::History => return Ok(node.history()),
        Command::Slicing { slice_us, switch_us } => {
            node.set_slicing(
                slicing(slice_us, switch_us).map_err(|error| format!("slicing: {error}"))?,
            );
        }
        Command::ResetPeaks => node.reset_peaks(),
        Command::FreeDelay { ms } => node.set_free_delay(Duration::from_millis(ms)),
        Command::Kernels { kernels } => node.set_durations(Durations::new(&kernels)),
        Command::Oom { card, nth } => {
            if card >= node.cards.len() || nth == 0 {
                let cards = node.cards.len();
                return Err(format!(
                    "oom: card {card} must be below {cards}, nth {nth} must be at least 1"
                ));
            }
            node.refuse_nth(card, nth);
        }
        Command::Slow { symbol, us } => {
            let (library, place) = find_symbol(&symbol)
                .ok_or_else(|| format!("slow: no library has a symbol {symbol:?}"))?;
            node.set_delay(library, place, us);
        }
        Command::Shutdown => {}
    }
    Ok(json!({"ok": true}))
}

fn find_symbol(name: &str) -> Option<(Library, usize)> {
    [Library::Cuda, Library::Nvml].into_iter().find_map(|library| {
        let place = library.symbols().iter().position(|symbol| *symbol == name)?;
        Some((library, place))
    })
}

/// Answers one connection's lines until it closes.
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
        let sent = writeln!(writer, "{answer}");
        if is_last {
            serve::stop();
        }
        if sent.is_err() {
            return;
        }
    }
}

/// Sends one line to a server and prints the answer.
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
