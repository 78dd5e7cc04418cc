//! Finding what a program of the container will find at a path, from outside of the container.
//!
//! The kernel would follow symbolic links to the node's files, so each component is opened by
//! itself, and links are followed here. Since Linux 5.6 `openat2` does the same
//! (`RESOLVE_IN_ROOT | RESOLVE_NO_XDEV`), but older kernels are still in use.

use crate::{c_string, cannot_open};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// The most symbolic links on a path, as for the kernel.
const LINKS: usize = 40;

/// A place in the container: its path there, and the file or directory, opened with `O_PATH`.
pub struct Place {
    path: PathBuf,
    file: File,
}

impl Place {
    /// The root directory of the container, which is at a path of the node.
    pub fn root(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path)?;
        Ok(Self { path: "/".into(), file })
    }

    /// The file or directory.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn open(&self, name: &OsStr) -> io::Result<Self> {
        let name_there = c_string(Path::new(name))?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open, and the name ends with a zero.
        let opened = unsafe { libc::openat(self.file.as_raw_fd(), name_there.as_ptr(), flags) };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else has it.
        let file = unsafe { File::from_raw_fd(opened) };
        Ok(Self { path: self.path.join(name), file })
    }

    /// The target of a symbolic link; None = it is no link.
    fn link(&self) -> io::Result<Option<PathBuf>> {
        if !self.file.metadata()?.is_symlink() {
            return Ok(None);
        }
        let mut target = vec![0_u8; libc::PATH_MAX as usize];
        // SAFETY: the descriptor is open, the empty name ends with a zero, and the buffer is as
        // long as the call says.
        let length = unsafe {
            libc::readlinkat(
                self.file.as_raw_fd(),
                c"".as_ptr(),
                target.as_mut_ptr().cast(),
                target.len(),
            )
        };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        target.truncate(length);
        Ok(Some(OsStr::from_bytes(&target).into()))
    }

    /// The mount that it is in.
    fn mount(&self) -> io::Result<u64> {
        let path = format!("/proc/self/fdinfo/{}", self.file.as_raw_fd());
        let text = fs::read_to_string(&path)?;
        text.lines()
            .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
            .ok_or_else(|| io::Error::other(format!("{path} has no mnt_id")))
    }
}

/// The file or directory at a path in the container.
///
/// # Errors
///
/// It cannot be opened, it is a symbolic link, or a directory on the way is in another mount than
/// the last of these checked places that the path is in.
pub fn walk(checked: &[Place], target: &Path) -> Result<Place, String> {
    let (base, inside) = checked
        .iter()
        .rev()
        .find_map(|place| Some((place, target.strip_prefix(&place.path).ok()?)))
        .ok_or_else(|| format!("{} is not an absolute path", target.display()))?;
    let cannot = |error: io::Error| cannot_open(target, &error);
    let mount = base.mount().map_err(cannot)?;
    let mut rest: VecDeque<_> = names(inside).collect();
    let mut above: Vec<Place> = Vec::new();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            above.pop();
            continue;
        }
        let here = above.last().unwrap_or(base);
        let next = here.open(&name).map_err(cannot)?;
        let is_last = rest.is_empty();
        match next.link().map_err(cannot)? {
            Some(_) if is_last => {
                return Err(format!(
                    "{} is a symbolic link in the container; take an image without it",
                    next.path.display()
                ));
            }
            Some(to) => {
                links += 1;
                if links > LINKS {
                    return Err(cannot(io::Error::from_raw_os_error(libc::ELOOP)));
                }
                if to.is_absolute() {
                    above.clear();
                }
                for name in names(&to).collect::<Vec<_>>().into_iter().rev() {
                    rest.push_front(name);
                }
            }
            None if is_last => return Ok(Place { path: target.into(), file: next.file }),
            None if next.mount().map_err(cannot)? != mount => {
                return Err(format!(
                    "{} is in the mount at {}; mount no volume there, also not through a symbolic \
                     link",
                    target.display(),
                    next.path.display()
                ));
            }
            None => above.push(next),
        }
    }
    Err(format!("{} leads to a directory above it", target.display()))
}

/// The components of a path that name something.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}
