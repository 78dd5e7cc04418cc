//! Files that are whole from their first instant.
//!
//! Limits page and account are opened by processes that do not wait for each other. So a file is
//! written under another name and then linked: of several makers one wins, the others find its file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes `path` with these first bytes, of this size and mode (less the umask), its blocks allocated:
/// a store to a mapped page without one would kill the program. The file must not exist.
pub fn create(path: &Path, mode: u32, size: usize, start: &[u8]) -> io::Result<File> {
    let (draft, mut file) = create_draft(path, mode)?;
    let linked = allocate(&file, size)
        .and_then(|()| file.write_all(start))
        .and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    linked.map(|()| file)
}

fn create_draft(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode);
    let mut attempt = 0;
    loop {
        let mut name = OsString::from(path.as_os_str());
        name.push(format!(".{}-{attempt}", std::process::id()));
        match options.open(&name) {
            // A maker with our pid, in another namespace or killed here, has left its draft.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => attempt += 1,
            Err(e) => return Err(e),
            Ok(file) => return Ok((name.into(), file)),
        }
    }
}

fn allocate(file: &File, size: usize) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as libc::off_t) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
