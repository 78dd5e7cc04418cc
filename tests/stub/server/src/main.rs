//! `stub-gpu serve` is the server, `stub-gpu control` sends one line to it from a shell. `stub-gpu
//! exports` is for `link-older-driver`.

use std::process::ExitCode;
use stub_engine::symbols;
use stub_gpu::arguments::{self, Command};
use stub_gpu::{control, serve};

fn main() -> ExitCode {
    let done = arguments::parse(std::env::args().skip(1)).and_then(|command| match command {
        Command::Serve(options) => serve::run(&options),
        Command::Control { socket, line } => control::send(&socket, &line),
        Command::Exports(version) => {
            symbols::exports(version).for_each(|symbol| println!("{symbol}"));
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stub-gpu: {error}");
            ExitCode::FAILURE
        }
    }
}
