//! The page in the hands of its owner: created once, then changed in place.
//!
//! All access is by `pread` and `pwrite`, never by a mapping. The owner may be a daemon that serves
//! many slices, and a file that is truncated under a mapping would kill it.

use super::layout::{
    ACTIVE, Contents, FILE, PAGE, REGULATED, check_rows, copy_at, decode, encode_copy, encode_page,
    is_regulated,
};
use super::{Gang, Regime, Row};
use crate::file::{self, FileError, lock_call, named};
use crate::quantity::InvalidValue;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a change waits for another writer. A change takes microseconds, so the deadline passes
/// only if a writer was stopped while it held the lock.
const LOCK_DEADLINE: Duration = Duration::from_secs(1);

/// An open limits page. Its owner can change it; others can read it.
#[derive(Debug)]
pub struct LimitsPage {
    file: File,
    path: PathBuf,
}

impl LimitsPage {
    /// Creates the page of a new slice. The file must not exist; its mode is 0644 less the umask.
    pub fn create(path: &Path, gang: Option<Gang>, rows: &[Row]) -> Result<Self, FileError> {
        check_rows(rows)?;
        let id = file::random().map_err(|e| FILE.io(path, e))?;
        let file = FILE.create(path, 0o644, &encode_page(id, gang, rows))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Opens a page; for writing if the file's permissions allow it.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = match file::open(path, true) {
            Err(e) if read_only(&e) => file::open(path, false),
            other => other,
        };
        let file = file.map_err(|e| FILE.io(path, e))?;
        read_page(&file, path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// The gang of the slice, which never changes.
    pub fn gang(&self) -> Result<Option<Gang>, FileError> {
        read_page(&self.file, &self.path).map(|(contents, _)| contents.gang)
    }

    /// The rows that are in force now.
    pub fn rows(&self) -> Result<Vec<Row>, FileError> {
        read_page(&self.file, &self.path).map(|(contents, _)| contents.rows)
    }

    /// Sets the memory limits of some cards, all at once. They are in force when this returns.
    pub fn set_memory_limits(&mut self, limits: &[(&str, Option<u64>)]) -> Result<(), FileError> {
        self.update(|rows| {
            limits.iter().try_for_each(|(uuid, limit)| {
                row_mut(rows, uuid).map(|row| row.memory_limit = *limit)
            })
        })
    }

    /// Sets the regimes of some cards, all at once. They are in force when this returns.
    pub fn set_regimes(&mut self, regimes: &[(&str, Regime)]) -> Result<(), FileError> {
        self.update(|rows| {
            regimes.iter().try_for_each(|(uuid, regime)| {
                row_mut(rows, uuid).map(|row| {
                    row.share = (regime.share != 0).then_some(regime.share);
                    (row.mode, row.priority) = (regime.mode, regime.priority);
                })
            })
        })
    }

    /// Appends a card. Programs that have already opened the page do not see it.
    pub fn append(&mut self, row: Row) -> Result<(), FileError> {
        self.update(|rows| {
            rows.push(row);
            Ok(())
        })
    }

    /// Fills the inactive copy, then makes it active by writing one word. `regulated` rises before
    /// that and falls after it, so that no launch misses a share that is in force.
    fn update(
        &mut self,
        change: impl FnOnce(&mut Vec<Row>) -> Result<(), InvalidValue>,
    ) -> Result<(), FileError> {
        let _lock = WriteLock::take(&self.file).map_err(|e| FILE.io(&self.path, e))?;
        let (mut contents, page) = read_page(&self.file, &self.path)?;
        FILE.check_size_limit(&self.path)?;
        change(&mut contents.rows)?;
        check_rows(&contents.rows)?;
        let regulated = is_regulated(&contents.rows);
        self.fill_inactive(&contents, &page)
            .and_then(|()| if regulated { self.put_header(REGULATED, 1) } else { Ok(()) })
            .and_then(|()| self.put_header(ACTIVE, contents.active ^ 1))
            .and_then(|()| if regulated { Ok(()) } else { self.put_header(REGULATED, 0) })
            .map_err(|e| FILE.io(&self.path, e))
    }

    fn put_header(&self, offset: usize, value: u32) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), offset as u64)
    }

    pub(super) fn fill_inactive(&self, contents: &Contents, page: &[u8]) -> io::Result<()> {
        let Contents { active, generation, gang, rows } = contents;
        let copy = encode_copy(page, generation.wrapping_add(1), *gang, rows);
        self.file.write_all_at(&copy, copy_at(active ^ 1) as u64)
    }

    #[cfg(test)]
    pub(super) fn update_all(&mut self, rows: &[Row]) -> Result<(), FileError> {
        self.update(|current| {
            rows.clone_into(current);
            Ok(())
        })
    }

    #[cfg(test)]
    pub(super) fn read(&self) -> (Contents, Vec<u8>) {
        read_page(&self.file, &self.path).unwrap()
    }
}

/// The page's contents and bytes. A read that overlaps two changes may see a mixture, so it is
/// retried.
pub(super) fn read_page(file: &File, path: &Path) -> Result<(Contents, Vec<u8>), FileError> {
    const ATTEMPTS: u32 = 10;
    let mut page = vec![0; PAGE];
    let mut attempt = 0;
    loop {
        attempt += 1;
        let metadata = file.metadata().map_err(|e| FILE.io(path, e))?;
        FILE.check_size(path, metadata.is_file(), metadata.len())?;
        file.read_exact_at(&mut page, 0).map_err(|e| FILE.io(path, named("pread64", e)))?;
        FILE.check_head(path, &page)?;
        match decode(&page) {
            Ok(contents) => return Ok((contents, page)),
            Err(reason) if attempt == ATTEMPTS => return Err(FILE.damaged(path, reason)),
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
}

fn row_mut<'a>(rows: &'a mut [Row], uuid: &str) -> Result<&'a mut Row, InvalidValue> {
    let known: Vec<String> = rows.iter().map(|row| row.uuid.clone()).collect();
    rows.iter_mut().find(|row| row.uuid == uuid).ok_or_else(|| {
        InvalidValue::new("uuid", uuid, format!("name a card of the slice: {}", known.join(", ")))
    })
}

fn read_only(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

/// Excludes other writers. The kernel releases the lock when its holder dies.
///
/// A container can open its page for reading, and so it can lock the page for reading, for ever.
/// Writers take no such lock, so one is ignored. It would otherwise forbid every change.
struct WriteLock<'a>(&'a File);

impl<'a> WriteLock<'a> {
    fn take(file: &'a File) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_DEADLINE;
        loop {
            match lock_call(file.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, WHOLE) {
                Ok(_) => return Ok(Self(file)),
                // The page could only be opened for reading.
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => {
                    return Err(io::Error::from_raw_os_error(libc::EACCES));
                }
                Err(e) if !matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                    return Err(e);
                }
                Err(_) if is_locked_for_reading(file) => return Ok(Self(file)),
                Err(_) if Instant::now() >= deadline => {
                    let message = "another writer has held it for a second; try again";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        // It fails only for a closed file, whose lock is released as well.
        let _ = lock_call(self.0.as_raw_fd(), libc::F_OFD_SETLK, libc::F_UNLCK, WHOLE);
    }
}

const WHOLE: (u64, u64) = (0, 0);

/// Whether a lock for reading keeps others from locking the file for writing.
fn is_locked_for_reading(file: &File) -> bool {
    lock_call(file.as_raw_fd(), libc::F_OFD_GETLK, libc::F_WRLCK, WHOLE)
        .is_ok_and(|lock| lock.l_type == libc::F_RDLCK as libc::c_short)
}
