//! A server, and client processes that follow commands.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct Server {
    pub process: Child,
    pub directory: PathBuf,
}

impl Server {
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let directory =
            std::env::temp_dir().join(format!("stub-gpu-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("directory");
        let mut process = Command::new(env!("CARGO_BIN_EXE_stub-gpu"))
            .args(["serve", "--with-parent", "--socket"])
            .arg(directory.join("engine"))
            .arg("--control")
            .arg(directory.join("control"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("server");
        let mut line = String::new();
        let output = process.stdout.take().expect("stdout");
        BufReader::new(output).read_line(&mut line).expect("ready line");
        assert_eq!(line, "ready\n");
        Self { process, directory }
    }

    pub fn ask(&self, command: &Value) -> Value {
        let mut stream = UnixStream::connect(self.directory.join("control")).expect("control");
        stream.set_read_timeout(Some(DEADLINE)).expect("deadline");
        writeln!(stream, "{command}").expect("command");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("answer");
        serde_json::from_str(&line).expect("JSON")
    }

    pub fn ledger(&self) -> Value {
        self.ask(&json!({"command": "ledger"}))
    }

    /// The ledger's row of a process on card 0.
    pub fn card(&self, client: &Driven) -> Value {
        row(&self.ledger(), client.process.id())["cards"][0].clone()
    }

    pub fn client(&self, group: &str) -> Driven {
        let mut process = Command::new(std::env::current_exe().expect("own path"))
            .args(["client", "--exact", "--nocapture"])
            .env("STUB_TEST_SOCKET", self.directory.join("engine"))
            .env("STUB_TEST_GROUP", group)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("client");
        let input = process.stdin.take().expect("stdin");
        let output = BufReader::new(process.stdout.take().expect("stdout")).lines();
        Driven { process, input, output }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A client process that follows commands.
pub struct Driven {
    pub process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Driven {
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("tell");
    }

    /// The next answer. Lines of the test harness are skipped.
    pub fn hear(&mut self) -> Vec<u64> {
        loop {
            let line = self.output.next().expect("an answer").expect("line");
            if let Some((_, answer)) = line.split_once("answer ") {
                return answer.split(' ').map(|word| word.parse().expect("number")).collect();
            }
        }
    }

    pub fn does(&mut self, line: &str) -> Vec<u64> {
        self.tell(line);
        self.hear()
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn row(ledger: &Value, pid: u32) -> &Value {
    let rows = ledger["processes"].as_array().expect("rows");
    rows.iter().find(|row| row["pid"] == pid).expect("a row of this pid")
}
