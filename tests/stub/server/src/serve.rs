//! Sockets and threads: one thread per client, and one per control connection.
//!
//! A client's thread reads requests until the stream ends. The end of the stream is the end of the
//! client, because the kernel closes the socket however the process ends.

use crate::arguments::Options;
use crate::control;
use crate::node::Node;
use crate::peer::Peer;
use crate::timekeeper::Timekeeper;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use stub_engine::profile;
use stub_engine::ring::Shared;
use stub_engine::symbols::Library;
use stub_engine::wire::{self, Operation, Reply, Request};

/// The longest name a group can have.
const GROUP_NAME_MAX: u64 = 256;
/// The longest text of a request. Compilers generate kernel names of some kilobytes.
const TEXT_MAX: u64 = 1 << 20;

/// Serves until a signal or the `shutdown` command.
pub fn run(options: &Options) -> Result<(), String> {
    if options.with_parent {
        end_with_parent()?;
    }
    // Before any thread starts, because threads inherit the mask.
    let signals = block_signals();
    let node = start(options)?;
    println!("ready");
    io::stdout().flush().map_err(|error| format!("standard output: {error}"))?;
    wait_for_signal(&signals);
    node.end();
    for socket in [&options.socket, &options.control] {
        let _ = std::fs::remove_file(socket);
    }
    Ok(())
}

/// Listens on both sockets and returns; the threads run until the process ends.
pub fn start(options: &Options) -> Result<Arc<Node>, String> {
    let cards = profile::cards(&options.cards)?;
    let time = Timekeeper::new(cards.len(), options.slicing, options.has_virtual_clock);
    let (root, limits) = (options.root.clone(), options.memory_limits);
    let node = Arc::new(Node::new(cards, options.free_delay, time, root, limits)?);
    let clients = listen(&options.socket)?;
    let controls = listen(&options.control)?;
    each_connection(clients, Arc::clone(&node), serve_client);
    each_connection(controls, Arc::clone(&node), control::serve);
    Ok(node)
}

/// Makes `run` return.
pub fn stop() {
    // SAFETY: a signal to this very process, which waits for it.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

fn end_with_parent() -> Result<(), String> {
    // SAFETY: both calls take and return plain numbers.
    let parent = unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
            return Err(format!("--with-parent: {}", io::Error::last_os_error()));
        }
        libc::getppid()
    };
    // The parent may have ended before the call of prctl.
    if parent == 1 { Err("--with-parent: the parent has ended already".into()) } else { Ok(()) }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is a plain value that the calls fill; threads started later inherit the mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

fn wait_for_signal(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: `set` was filled by `block_signals`.
    while unsafe { libc::sigwait(set, &raw mut signal) } != 0 {}
}

fn listen(path: &Path) -> Result<UnixListener, String> {
    if UnixStream::connect(path).is_ok() {
        return Err(format!("{}: another server listens there", path.display()));
    }
    // A socket without a listener is left over from a killed server.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn each_connection(listener: UnixListener, node: Arc<Node>, serve: fn(UnixStream, &Node)) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let node = Arc::clone(&node);
            std::thread::spawn(move || serve(stream, &node));
        }
    });
}

fn serve_client(mut stream: UnixStream, node: &Node) {
    let Ok(client) = attach(&mut stream, node) else { return };
    while let Ok(request) = Request::read(&mut stream) {
        let has_text = matches!(
            request.operation,
            Operation::Kernel | Operation::Mig | Operation::MemoryLimits
        );
        let length = if has_text { request.amount } else { 0 };
        let Ok(text) = read_text(&mut stream, length, TEXT_MAX) else { break };
        let Some(reply) = node.answer(client, &request, &text) else { break };
        if wire::send(&stream, &reply).is_err() {
            break;
        }
    }
    node.detach(client);
}

fn read_text(stream: &mut UnixStream, length: u64, longest: u64) -> io::Result<String> {
    if length > longest {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn attach(stream: &mut UnixStream, node: &Node) -> io::Result<stub_engine::ledger::ClientId> {
    let request = Request::read(stream)?;
    let cards = serde_json::to_vec(&node.cards())?;
    if request.operation == Operation::Cards {
        wire::send(stream, &Reply::default().with_tail(&cards))?;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if request.operation != Operation::Attach {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let group = read_text(stream, request.amount, GROUP_NAME_MAX)?;
    let library = if request.card == Library::Cuda as u32 { Library::Cuda } else { Library::Nvml };
    let (page, file) = Shared::create()?;
    let client = node.attach(Peer::of(stream)?, &group, library, Arc::new(page));
    let greeting = wire::send(stream, &Reply::default().with_tail(&cards))
        .and_then(|()| wire::send_file(stream, &file));
    if let Err(error) = greeting {
        node.detach(client);
        return Err(error);
    }
    Ok(client)
}
