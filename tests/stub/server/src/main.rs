//! `stub-gpu serve` is the server, `stub-gpu control` sends one line to it from a shell.

use std::process::ExitCode;
use stub_gpu::arguments::{self, Command};
use stub_gpu::{control, serve};

fn main() -> ExitCode {
    let done = arguments::parse(std::env::args().skip(1)).and_then(|command| match command {
        Command::Serve(options) => serve::run(&options),
        Command::Control { socket, line } => control::send(&socket, &line),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stub-gpu: {error}");
            ExitCode::FAILURE
        }
    }
}
