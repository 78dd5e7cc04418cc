//! The command line.

use std::path::PathBuf;
use std::time::Duration;
use stub_engine::memory_limits::Backend;
use stub_engine::time::Slicing;

const USAGE: &str = "usage:
  stub-gpu serve --socket PATH --control PATH [--cards a100,a100] [--free-delay-ms 0] [--with-parent]
      [--switch-us 50] [--clock real|virtual] [--root DIRECTORY]
      [--memory-limits dmem|misc]
  stub-gpu control PATH '{\"command\": \"ledger\"}'
  stub-gpu exports 12020";

/// The parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Runs the server.
    Serve(Options),
    /// Sends one line to a server's control socket and prints the reply.
    Control {
        /// The control socket.
        socket: PathBuf,
        /// The JSON object.
        line: String,
    },
    /// Prints the exports of a driver of this CUDA version.
    Exports(i32),
}

/// The options of the server.
#[derive(Debug)]
pub struct Options {
    /// Where the stub libraries connect.
    pub socket: PathBuf,
    /// Where tests connect.
    pub control: PathBuf,
    /// Profiles, comma-separated.
    pub cards: String,
    /// How long the memory of an ended process stays allocated.
    pub free_delay: Duration,
    /// Whether the server ends when its parent process does.
    pub with_parent: bool,
    /// How contexts take turns on a card.
    pub slicing: Slicing,
    /// Whether the clients' clock is virtual: now is the latest instant that a client has reported.
    pub has_virtual_clock: bool,
    /// Where the files of MIG's capabilities are written: below `proc` and `dev` there.
    pub root: Option<PathBuf>,
    /// What enforces the memory limits of cgroups; `None`: the driver has none.
    pub memory_limits: Option<Backend>,
}

/// Reads the arguments after the program's name.
pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    match arguments.next().as_deref() {
        Some("serve") => serve(arguments).map(Command::Serve),
        Some("control") => match (arguments.next(), arguments.next(), arguments.next()) {
            (Some(socket), Some(line), None) => {
                Ok(Command::Control { socket: socket.into(), line })
            }
            _ => Err(USAGE.into()),
        },
        Some("exports") => match (arguments.next(), arguments.next()) {
            (Some(version), None) => version
                .parse()
                .map(Command::Exports)
                .map_err(|_| format!("{version:?} is no CUDA version; write one such as 12020")),
            _ => Err(USAGE.into()),
        },
        _ => Err(USAGE.into()),
    }
}

fn serve(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut socket, mut control) = (None, None);
    let mut cards = "a100".to_owned();
    let mut free_delay = Duration::ZERO;
    let mut with_parent = false;
    let mut slicing = Slicing::default();
    let mut has_virtual_clock = false;
    let mut root = None;
    let mut memory_limits = None;
    while let Some(option) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
        match option.as_str() {
            "--socket" => socket = Some(PathBuf::from(value()?)),
            "--control" => control = Some(PathBuf::from(value()?)),
            "--cards" => cards = value()?,
            "--root" => root = Some(PathBuf::from(value()?)),
            "--free-delay-ms" => {
                free_delay = Duration::from_millis(number(&option, &value()?, "milliseconds")?);
            }
            "--switch-us" => {
                slicing.switch_ns = number(&option, &value()?, "microseconds")? * 1000;
            }
            "--clock" => {
                has_virtual_clock = match value()?.as_str() {
                    "real" => false,
                    "virtual" => true,
                    other => return Err(format!("--clock {other:?}: write real or virtual")),
                }
            }
            "--memory-limits" => {
                memory_limits = Some(match value()?.as_str() {
                    "dmem" => Backend::Dmem,
                    "misc" => Backend::Misc,
                    other => return Err(format!("--memory-limits {other:?}: write dmem or misc")),
                });
            }
            "--with-parent" => with_parent = true,
            other => return Err(format!("unknown option {other:?}\n{USAGE}")),
        }
    }
    match (socket, control) {
        (Some(socket), Some(control)) => Ok(Options {
            socket,
            control,
            cards,
            free_delay,
            with_parent,
            slicing,
            has_virtual_clock,
            root,
            memory_limits,
        }),
        _ => Err(format!("--socket and --control are both needed\n{USAGE}")),
    }
}

fn number(option: &str, text: &str, unit: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{option} {text:?}: write whole {unit}, such as 50"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let line = "serve --socket s --control c --free-delay-ms 50 --cards t4,t4 --switch-us 5";
        let Ok(Command::Serve(options)) = parse_line(line) else {
            panic!("not a serve command");
        };
        assert_eq!((options.cards.as_str(), options.free_delay.as_millis()), ("t4,t4", 50));
        assert!(!options.with_parent && !options.has_virtual_clock);
        assert_eq!(options.slicing, Slicing { slice_ns: 2_000_000, switch_ns: 5_000 });
        for wrong in
            ["", "serve --socket s", "serve --speed 9", "control s", "exports", "exports new"]
        {
            assert!(parse_line(wrong).is_err(), "{wrong:?}");
        }
        for (wrong, word) in [
            ("serve --free-delay-ms soon", "soon"),
            ("serve --switch-us -1", "switch-us"),
            ("serve --clock sundial", "sundial"),
            ("serve --memory-limits soft", "soft"),
        ] {
            let error = parse_line(wrong).expect_err("no value");
            assert!(error.contains(word), "{error}");
        }
    }
}
