//! The directory of a user's slices, if the user has named none.

use crate::slot_lock::keeps_locks;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `/tmp/hami-<uid>`. If the file system of `/tmp` loses locks, as overlayfs does in most containers,
/// it is a directory in `/dev/shm` whose name has the device number of `/tmp` too: containers may
/// share `/dev/shm`, but each has its own `/tmp`. Nothing is created, and another user may have taken
/// the name.
///
/// A `/tmp` that is full or read-only moves nothing: other processes have their account there, and
/// a second one would be a second limit.
pub fn runtime_directory() -> PathBuf {
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    let place = Path::new("/tmp");
    let common = place.join(format!("hami-{user}"));
    let is_ours =
        fs::symlink_metadata(&common).is_ok_and(|found| found.is_dir() && found.uid() == user);
    if keeps_locks(if is_ours { &common } else { place }).unwrap_or(true) {
        return common;
    }
    let device = fs::metadata(place).map_or(0, |found| found.dev());
    PathBuf::from(format!("/dev/shm/hami-{user}-{device:x}"))
}
