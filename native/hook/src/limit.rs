//! The stage `createRuntime`: the node agent lets the driver limit the container's cgroup.
//!
//! At that stage the runtime has put the container's first process into its cgroup, and the process
//! waits. The hook only tells the agent its PID: the agent asks the driver, which may hang.

use crate::STATE;
use serde::Deserialize;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the agent may take. The runtime ends the hook, and with it the container's start, later.
const DEADLINE: Duration = Duration::from_secs(8);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct State {
    pid: u32,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
}

/// Tells the agent that the container with a slot starts: `required|wanted SOCKET SLOT`.
///
/// # Errors
///
/// It is required, and the driver does not limit the container.
pub fn limit(words: &[OsString], state: &[u8]) -> Result<(), String> {
    let [need, socket, slot] = words else {
        return Err("the hook's arguments are not limit required|wanted SOCKET SLOT".into());
    };
    match ask(Path::new(socket), &slot.to_string_lossy(), state) {
        Err(why) if need != "wanted" => Err(format!("the driver does not limit its memory: {why}")),
        _ => Ok(()),
    }
}

fn ask(socket: &Path, slot: &str, state: &[u8]) -> Result<(), String> {
    let State { pid } =
        serde_json::from_slice(state).map_err(|error| format!("{STATE}: {error}"))?;
    let answer = send(socket, &format!("{}\n", serde_json::json!({"slot": slot, "pid": pid})));
    let fix = "see the log of the node agent";
    let text = answer.map_err(|error| format!("{}: {error}; {fix}", socket.display()))?;
    let answer: Answer = serde_json::from_str(&text)
        .map_err(|error| format!("the agent's answer: {error}; {fix}"))?;
    answer.error.map_or(Ok(()), Err)
}

/// Sends a request until it is answered: an agent that is being replaced is back within seconds.
fn send(socket: &Path, request: &str) -> io::Result<String> {
    let end = Instant::now() + DEADLINE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match send_once(socket, request, left.max(PAUSE)) {
            Err(_) if left > PAUSE => sleep(PAUSE),
            answer => return answer,
        }
    }
}

fn send_once(socket: &Path, request: &str, left: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.ends_with('\n') { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
