//! The command line.

use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "usage:
  stub-gpu serve --socket PATH --control PATH [--cards a100,a100] [--free-delay-ms 0] [--with-parent]
  stub-gpu control PATH '{\"command\": \"ledger\"}'";

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Be the server.
    Serve(Options),
    /// Send one line to a server's control socket and print the answer.
    Control {
        /// The control socket.
        socket: PathBuf,
        /// The JSON object.
        line: String,
    },
}

/// How to serve.
#[derive(Debug)]
pub struct Options {
    /// Where the stub libraries connect.
    pub socket: PathBuf,
    /// Where tests connect.
    pub control: PathBuf,
    /// Profiles, comma-separated.
    pub cards: String,
    /// How long a gone process's bytes stay taken.
    pub free_delay: Duration,
    /// End when the parent process does.
    pub with_parent: bool,
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
        _ => Err(USAGE.into()),
    }
}

fn serve(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut socket, mut control) = (None, None);
    let mut cards = "a100".to_owned();
    let mut free_delay = Duration::ZERO;
    let mut with_parent = false;
    while let Some(option) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
        match option.as_str() {
            "--socket" => socket = Some(PathBuf::from(value()?)),
            "--control" => control = Some(PathBuf::from(value()?)),
            "--cards" => cards = value()?,
            "--free-delay-ms" => {
                let text = value()?;
                let millis = text.parse().map_err(|_| {
                    format!("--free-delay-ms {text:?}: write whole milliseconds, such as 50")
                })?;
                free_delay = Duration::from_millis(millis);
            }
            "--with-parent" => with_parent = true,
            other => return Err(format!("unknown option {other:?}\n{USAGE}")),
        }
    }
    match (socket, control) {
        (Some(socket), Some(control)) => {
            Ok(Options { socket, control, cards, free_delay, with_parent })
        }
        _ => Err(format!("--socket and --control are both needed\n{USAGE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let Ok(Command::Serve(options)) =
            parse_line("serve --socket s --control c --free-delay-ms 50 --cards t4,t4")
        else {
            panic!("not a serve command");
        };
        assert_eq!((options.cards.as_str(), options.free_delay.as_millis()), ("t4,t4", 50));
        assert!(!options.with_parent);
        for wrong in ["", "serve --socket s", "serve --speed 9", "control s"] {
            assert!(parse_line(wrong).is_err(), "{wrong:?}");
        }
        let error = parse_line("serve --free-delay-ms soon").expect_err("not a number");
        assert!(error.contains("soon"), "{error}");
    }
}
