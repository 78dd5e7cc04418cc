//! Opening a small file and mapping it, inside a program that may close any descriptor.
//!
//! Between two of our calls, another thread of the program may close all descriptors and open a
//! file that gets the number of ours. So the result of a call on a descriptor counts only if the
//! descriptor is still our file afterwards, and only then do we close it.

use crate::file::{self, failed, named};
use std::fs::{self, File, Metadata};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// An open file, until it is mapped. Its descriptor is kept no longer.
pub(crate) struct Opened<'a> {
    file: ManuallyDrop<File>,
    path: &'a Path,
}

/// A mapped file, for the life of this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is only accessed through atomics, and lives until it is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// As [`file::open`], for a file that is then mapped.
pub(crate) fn open(path: &Path, write: bool) -> io::Result<Opened<'_>> {
    let file = file::open(path, write).map_err(|error| named("openat", error))?;
    Ok(Opened { file: ManuallyDrop::new(file), path })
}

impl Opened<'_> {
    /// Maps the first `size` bytes, which the file was found to have.
    pub fn map(self, size: usize, access: libc::c_int) -> io::Result<Mapping> {
        let (shared, fd) = (libc::MAP_SHARED, self.file.as_raw_fd());
        // SAFETY: a new mapping of an open file; no memory of ours is replaced.
        let map = unsafe { libc::mmap(null_mut(), size, access, shared, fd, 0) };
        let mapping = match NonNull::new(map.cast()) {
            Some(start) if map != libc::MAP_FAILED => Mapping { start, size },
            _ => return Err(failed("mmap")),
        };
        if self.is_the_file() {
            Ok(mapping)
        } else {
            Err(io::Error::other("the program closed it in the meantime; try again"))
        }
    }

    fn is_the_file(&self) -> bool {
        let (open, named) = (self.file.metadata(), fs::symlink_metadata(self.path));
        let same = |open: &Metadata, named: &Metadata| {
            (open.dev(), open.ino()) == (named.dev(), named.ino())
        };
        open.is_ok_and(|open| named.is_ok_and(|named| same(&open, &named)))
    }
}

impl Deref for Opened<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if self.is_the_file() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

impl Mapping {
    /// The value at an offset.
    ///
    /// # Safety
    /// The offset must be aligned for `T`, and `T` must end inside the mapping. `T` must consist of
    /// atomics, or of bytes that are never read, because other processes may change it at any time.
    pub unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller's promise; the mapping lives as long as self.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// The addresses of the mapping.
    pub fn range(&self) -> Range<usize> {
        let start = self.start.addr().get();
        start..start + self.size
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}
