//! Messages between a client and the server: fixed, small, binary, one reply to each request.

use crate::ledger::Walk;
use crate::time::{Mark, Progress, Query, Status};
use std::io::{self, Read};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// First message. `card`: library, `amount`: length of the group's name, which follows.
    Attach = 1,
    /// Charges `amount` bytes of `card` for `kind`.
    Charge,
    /// Releases them.
    Release,
    /// Charges an allocation of `amount` bytes from a memory pool, which grows by the first of
    /// `rooms` that fits; the reply's first value is by how much.
    ChargePool,
    /// Releases it, and `rooms[0]` bytes that the pool returns to the card.
    ReleasePool,
    /// Bytes of `card` in use; if `now` is not 0, also its engine time and how busy it was lately.
    Usage,
    /// The processes on `card` at `now`; rows of [`PROCESS`] bytes follow.
    Processes,
    /// The kernel durations; text follows.
    Durations,
    /// The cards, as the only message of a connection that does not attach; JSON follows.
    Cards,
    /// The number of a kernel's name, `amount` bytes of which follow.
    Kernel,
    /// Takes the work from the client's ring, up to `now`.
    Drain,
    /// The status of a mark at `now`: [`Request::of_query`], with [`Reply::of_status`] as reply.
    Status,
    /// Makes the shared allocation `rooms` of `amount` charged bytes of `card`.
    Share,
    /// Holds the shared allocation `rooms`. If no client holds it, `amount` bytes of `card` are
    /// charged; with an amount of 0 the reply's status is 2.
    Hold,
    /// Ends a hold of the shared allocation `rooms`.
    DropHold,
    /// The allocations and frees of a graph's launch: [`Request::of_walk`].
    WalkGraph,
    /// Records that the client has exported the shared allocation `rooms`, whose file it has as the
    /// descriptor `amount`.
    Export,
    /// A MIG call on `card`, as JSON of `amount` bytes that follows, with [`crate::mig::Reply`] as
    /// JSON after the reply.
    Mig,
    /// The same of a [`crate::memory_limits::Call`] and its reply.
    MemoryLimits,
}

/// Bytes of one row of a [`Operation::Processes`] reply: pid, bytes, their peak, busy nanoseconds,
/// percent.
pub const PROCESS: usize = 40;

/// No instant, in a reply.
const NEVER: u64 = u64::MAX;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which operation.
    pub operation: Operation,
    /// Which card.
    pub card: u32,
    /// Which kind of bytes, as the ledger numbers them.
    pub kind: u32,
    /// How many bytes.
    pub amount: u64,
    /// How much a memory pool grows or shrinks, or which allocation is shared.
    pub rooms: [u64; 2],
    /// The client's clock.
    pub now: u64,
}

/// A reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0; 1 when out of memory; 2 when no client holds the shared allocation.
    pub status: u32,
    /// Bytes that follow.
    pub length: u32,
    /// Results.
    pub values: [u64; 4],
}

impl Default for Request {
    fn default() -> Self {
        Self { operation: Operation::Cards, card: 0, kind: 0, amount: 0, rooms: [0; 2], now: 0 }
    }
}

const REQUEST: usize = 48;
const REPLY: usize = 40;

impl Request {
    /// As bytes.
    pub fn encode(&self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[0..4].copy_from_slice(&(self.operation as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.card.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.amount.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.rooms[0].to_le_bytes());
        bytes[32..40].copy_from_slice(&self.rooms[1].to_le_bytes());
        bytes[40..48].copy_from_slice(&self.now.to_le_bytes());
        bytes
    }

    /// [`Operation::Status`]
    pub fn of_query(query: &Query, now: u64) -> Self {
        let Query { mark, event, has_forecast } = *query;
        Self {
            operation: Operation::Status,
            kind: event.map_or(0, |event| event + 1),
            amount: mark.bits(),
            rooms: [u64::from(has_forecast), 0],
            now,
            ..Self::default()
        }
    }

    /// The query of [`Request::of_query`].
    pub fn query(&self) -> Query {
        Query {
            mark: Mark::from_bits(self.amount),
            event: self.kind.checked_sub(1),
            has_forecast: self.rooms[0] != 0,
        }
    }

    /// [`Operation::WalkGraph`]
    pub fn of_walk(card: u32, walk: &Walk) -> Self {
        Self {
            operation: Operation::WalkGraph,
            card,
            amount: walk.rise,
            rooms: [walk.fall, walk.bytes.cast_unsigned()],
            now: walk.allocations.cast_unsigned(),
            ..Self::default()
        }
    }

    /// The walk of [`Request::of_walk`].
    pub fn walk(&self) -> Walk {
        Walk {
            rise: self.amount,
            fall: self.rooms[0],
            bytes: self.rooms[1].cast_signed(),
            allocations: self.now.cast_signed(),
        }
    }

    /// Reads the next request from a stream; the end of the stream is an error of its own kind.
    pub fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; REQUEST];
        stream.read_exact(&mut bytes)?;
        let word =
            |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let operation = match word(0) {
            1 => Operation::Attach,
            2 => Operation::Charge,
            3 => Operation::Release,
            4 => Operation::ChargePool,
            5 => Operation::ReleasePool,
            6 => Operation::Usage,
            7 => Operation::Processes,
            8 => Operation::Durations,
            9 => Operation::Cards,
            10 => Operation::Kernel,
            11 => Operation::Drain,
            12 => Operation::Status,
            13 => Operation::Share,
            14 => Operation::Hold,
            15 => Operation::DropHold,
            16 => Operation::WalkGraph,
            17 => Operation::Export,
            18 => Operation::Mig,
            19 => Operation::MemoryLimits,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let (rooms, now) = ([long(24), long(32)], long(40));
        Ok(Self { operation, card: word(4), kind: word(8), amount: long(16), rooms, now })
    }
}

impl Reply {
    /// As bytes.
    pub fn encode(&self) -> [u8; REPLY] {
        let mut bytes = [0; REPLY];
        bytes[0..4].copy_from_slice(&self.status.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.values[0].to_le_bytes());
        bytes[16..24].copy_from_slice(&self.values[1].to_le_bytes());
        bytes[24..32].copy_from_slice(&self.values[2].to_le_bytes());
        bytes[32..40].copy_from_slice(&self.values[3].to_le_bytes());
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; REPLY]) -> Self {
        let word =
            |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self { status: word(0), length: word(4), values: [long(8), long(16), long(24), long(32)] }
    }

    /// The reply to [`Operation::Status`].
    pub fn of_status(status: &Status) -> Self {
        let instant = |at: Option<u64>| at.unwrap_or(NEVER);
        let (code, [first, second, third]) = match status.progress {
            Progress::Done(at) => (0, [instant(at), 0, 0]),
            Progress::Pending { forecast, check_at, earliest } => {
                (1, [instant(forecast), instant(check_at), earliest])
            }
        };
        Self { status: code, length: 0, values: [first, second, third, status.lane_done] }
    }

    /// The status of [`Reply::of_status`].
    pub fn status(&self) -> Status {
        let instant = |value: u64| (value != NEVER).then_some(value);
        let [first, second, earliest, lane_done] = self.values;
        let progress = if self.status == 0 {
            Progress::Done(instant(first))
        } else {
            let (forecast, check_at) = (instant(first), instant(second));
            Progress::Pending { forecast, check_at, earliest }
        };
        Status { progress, lane_done }
    }

    /// Reads the next reply from a stream, and the bytes after it.
    pub fn read(stream: &mut impl Read) -> io::Result<(Self, Vec<u8>)> {
        let mut bytes = [0; REPLY];
        stream.read_exact(&mut bytes)?;
        let reply = Self::decode(&bytes);
        let mut tail = vec![0; reply.length as usize];
        stream.read_exact(&mut tail)?;
        Ok((reply, tail))
    }

    /// As bytes, with the bytes that follow it.
    pub fn with_tail(mut self, tail: &[u8]) -> Vec<u8> {
        self.length = tail.len() as u32;
        let mut message = self.encode().to_vec();
        message.extend_from_slice(tail);
        message
    }
}

/// Writes all of `bytes`. A closed connection is an error, not the signal that would end a program.
pub fn send(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the buffer is `bytes`.
        let sent = unsafe {
            libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// Calls `call` again while a signal interrupts it. `SA_RESTART` does not cover a socket with a
/// timeout, and neither does a stop and a continuation of the process.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Room for a control message with one descriptor, aligned as the kernel requires.
#[repr(C, align(8))]
struct OneDescriptor([u8; 32]);

/// Sends one byte with an open file.
pub fn send_file(stream: &UnixStream, file: &impl AsRawFd) -> io::Result<()> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = OneDescriptor([0; 32]);
    // SAFETY: every pointer in `message` is to a local that lives until after the call; the control
    // buffer is larger than one descriptor needs.
    let message = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(file.as_raw_fd());
        message
    };
    uninterrupted(|| {
        // SAFETY: as above.
        let sent =
            unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

/// Receives a file from [`send_file`].
pub fn receive_file(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = OneDescriptor([0; 32]);
    // SAFETY: as in `send_file`; the header is only read where the kernel says there is one.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<OneDescriptor>() as _;
        uninterrupted(|| {
            let flags = libc::MSG_CMSG_CLOEXEC;
            match libc::recvmsg(stream.as_raw_fd(), &raw mut message, flags) {
                0.. => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })?;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    extern "C" fn ignore(_: i32) {}

    #[test]
    fn a_file_arrives_although_signals_interrupt_the_wait() {
        // SAFETY: the handler does nothing; no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as libc::sighandler_t) };
        let (ours, theirs) = UnixStream::pair().expect("pair");
        theirs.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
        let receiver = std::thread::spawn(move || receive_file(&theirs).map(drop));
        for _ in 0..20 {
            // The receiver needs a moment to wait again. A signal before that would test nothing.
            std::thread::sleep(Duration::from_millis(2));
            assert!(!receiver.is_finished());
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(receiver.as_pthread_t(), libc::SIGUSR1) };
        }
        send_file(&ours, &ours).expect("sent");
        receiver.join().expect("no panic").expect("received");
    }

    #[test]
    fn messages_survive_the_wire() {
        let request = Request {
            operation: Operation::ChargePool,
            card: 15,
            kind: 1,
            amount: u64::MAX - 5,
            rooms: [32 << 20, 7 << 40],
            now: 9 << 50,
        };
        assert_eq!(Request::read(&mut request.encode().as_slice()).expect("read"), request);
        let reply = Reply { status: 1, length: 0, values: [1 << 40, 7, 8, 9] };
        let bytes = reply.with_tail(b"tail");
        let (read, tail) = Reply::read(&mut bytes.as_slice()).expect("read");
        assert_eq!(
            (read.status, read.values, tail.as_slice()),
            (1, [1 << 40, 7, 8, 9], &b"tail"[..])
        );
        assert!(Request::read(&mut [99u8; REQUEST].as_slice()).is_err());
        let walk = Walk { rise: 7, fall: 9 << 40, bytes: -5, allocations: -1 };
        assert_eq!(Request::of_walk(3, &walk).walk(), walk);
        for (event, has_forecast) in [(None, true), (Some(0), false), (Some(1 << 20), true)] {
            let query = Query { mark: Mark::new(7, 9), event, has_forecast };
            assert_eq!(Request::of_query(&query, 5).query(), query);
        }
        for progress in [
            Progress::Done(None),
            Progress::Done(Some(5)),
            Progress::Pending { forecast: None, check_at: None, earliest: 0 },
            Progress::Pending { forecast: Some(9), check_at: Some(7), earliest: 6 },
        ] {
            let status = Status { progress, lane_done: 3 };
            assert_eq!(Reply::of_status(&status).status(), status);
        }
    }
}
