//! The process at the other end of a client's connection.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A client's process, and a second handle of its connection.
pub struct Peer {
    pid: u32,
    uid: u32,
    stream: UnixStream,
}

impl Peer {
    /// The process that has made a connection.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` and `size` are places for the answer and its size.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut size,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { pid: peer.pid as u32, uid: peer.uid, stream: stream.try_clone()? })
    }

    /// Its PID, in the server's namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether its user is root, or the user of this server, who is as good as root on this GPU.
    pub fn is_privileged(&self) -> bool {
        // SAFETY: the call takes nothing and cannot fail.
        self.uid == 0 || self.uid == unsafe { libc::geteuid() }
    }

    /// Whether it has closed the connection. The kernel does so before others see that a process has
    /// ended.
    pub fn has_hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.stream.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one descriptor of ours, and no wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents & libc::POLLHUP != 0
    }
}
