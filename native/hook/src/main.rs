//! The hook that checks a container before its program starts: does it see its limits?
//!
//! ```text
//! hami-hook [ro|rw SOURCE TARGET]...                   with the container's state on standard input (OCI)
//! hami-hook limit required|wanted SOCKET SLOT
//! ```
//!
//! The second form is [`limit`].
//!
//! The node agent names this program in the CDI device of each container, as a hook of the stage
//! `createContainer`. At that stage the runtime has made all mounts and has not started the
//! container's program. The hook runs in the mount namespace of the container, before its root
//! directory becomes `/`: so it sees the files of the node and those of the container.
//!
//! A pod may mount a volume at any path, also through symbolic links that no text shows. So the hook
//! does not judge paths: it looks what is at `TARGET` in the container, and requires that
//!
//! * it is the file or directory at `SOURCE` of the node, and can be written only with `rw`;
//! * the container's programs reach it without leaving the root file system of the container, apart
//!   from targets that were checked before. A directory on the way that is in a volume can be
//!   replaced by another container that has the volume, and the kernel then removes our mount.
//!
//! Otherwise the hook prints one line and fails, and the runtime does not start the container.
//!
//! The program is static, because it runs on nodes with any C library. `walk` finds a target.

mod limit;
mod walk;

use crate::limit::limit;
use crate::walk::{Place, walk};
use serde::Deserialize;
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most bytes of the state: it has some hundred.
const STATE_BYTES: u64 = 1 << 20;

const STATE: &str = "the container's state on standard input";

/// The part of the container's state that the hook reads.
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

/// The part of `config.json` in the bundle that the hook reads.
#[derive(Deserialize)]
struct Configuration {
    root: Root,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

/// A bind mount of the CDI device.
struct Bind {
    is_writable: bool,
    source: PathBuf,
    target: PathBuf,
}

fn main() -> ExitCode {
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hami-py: the container would start without its GPU limits: {why}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<(), String> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let state = state()?;
    if let Some((first, rest)) = words.split_first()
        && first == "limit"
    {
        return limit(rest, &state);
    }
    let binds = binds(words.into_iter())?;
    let root = root(&state)?;
    let mut checked = vec![Place::root(&root).map_err(|error| cannot_open(&root, &error))?];
    for bind in &binds {
        let found = walk(&checked, &bind.target)?;
        compare(bind, found.file())?;
        checked.push(found);
    }
    Ok(())
}

fn binds(mut words: impl Iterator<Item = OsString>) -> Result<Vec<Bind>, String> {
    let mut binds = Vec::new();
    while let Some(mode) = words.next() {
        let is_writable = mode == "rw";
        let (Some(source), Some(target), true) =
            (words.next(), words.next(), is_writable || mode == "ro")
        else {
            return Err("the hook's arguments are not [ro|rw SOURCE TARGET]...".into());
        };
        binds.push(Bind { is_writable, source: source.into(), target: target.into() });
    }
    Ok(binds)
}

/// The container's state, as JSON.
fn state() -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    io::stdin()
        .take(STATE_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| format!("{STATE}: {error}"))?;
    Ok(text)
}

/// The container's root directory, as a path of the node.
fn root(state: &[u8]) -> Result<PathBuf, String> {
    let state: State =
        serde_json::from_slice(state).map_err(|error| format!("{STATE}: {error}"))?;
    let path = state.bundle.join("config.json");
    let text = fs::read(&path).map_err(|error| cannot_open(&path, &error))?;
    let configuration: Configuration =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let root = state.bundle.join(configuration.root.path);
    if root.is_absolute() { Ok(root) } else { Err(format!("{STATE} has no absolute path")) }
}

/// Compare what the container has at the target of a bind mount with the bind mount.
fn compare(bind: &Bind, found: &File) -> Result<(), String> {
    let target = bind.target.display();
    let wanted = fs::metadata(&bind.source).map_err(|error| cannot_open(&bind.source, &error))?;
    let seen = found.metadata().map_err(|error| cannot_open(&bind.target, &error))?;
    if (seen.dev(), seen.ino()) != (wanted.dev(), wanted.ino()) {
        return Err(format!(
            "{target} is not what hami-py has mounted there; mount no volume at or above {target}, \
             also not through a symbolic link"
        ));
    }
    let flags = mount_flags(found).map_err(|error| cannot_open(&bind.target, &error))?;
    if (flags & libc::ST_RDONLY == 0) != bind.is_writable {
        let what = if bind.is_writable { "cannot be written" } else { "can be written" };
        return Err(format!("{target} {what}; mount nothing of hami-py's directories in a pod"));
    }
    Ok(())
}

/// The flags of the mount that a file is in.
fn mount_flags(file: &File) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open, and the kernel writes one `statvfs`.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded.
    Ok(unsafe { found.assume_init() }.f_flag)
}

fn cannot_open(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
