//! The directory of a user's slices, if the user has named none.

use crate::slot_lock::keeps_locks;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `/tmp/hami-<uid>`, and `/dev/shm/hami-<uid>` where `/tmp` cannot hold an account: in a container
/// it is often on overlayfs. Nothing is created, and another user may have taken the name.
pub fn runtime_directory() -> PathBuf {
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    let name = format!("hami-{user}");
    let can_hold = |place: &&str| {
        let directory = Path::new(place).join(&name);
        let is_ours = fs::symlink_metadata(&directory)
            .is_ok_and(|found| found.is_dir() && found.uid() == user);
        match keeps_locks(if is_ours { &directory } else { Path::new(place) }) {
            Ok(keeps) => keeps,
            // A full disk moves nothing: other processes have their account there.
            Err(error) => !matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ),
        }
    };
    let place = ["/tmp", "/dev/shm"].into_iter().find(can_hold).unwrap_or("/tmp");
    Path::new(place).join(name)
}
