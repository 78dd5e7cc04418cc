//! A slice that the processes make themselves, where only HAMi's variables set a limit.
//!
//! All processes that are to share the limit must find the same files: HAMi names a file for that
//! (`CUDA_DEVICE_MEMORY_SHARED_CACHE`), and without it the user's run-time directory serves. Rows are
//! appended as cards are met, by UUID, so that processes which see them in different orders agree.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hami_account::Account;
use hami_limits::{LimitsPage, Row};

use super::level::{Level, Limits};
use crate::settings::Settings;

/// Opens the slice directory, making it if it is not there yet.
pub(super) fn level(settings: &Settings) -> Result<Level, String> {
    let directory = directory(settings);
    make_private(&directory)?;
    let page = directory.join("limits");
    make_once(&page, |path| LimitsPage::create(path, &[]).map(drop).map_err(|e| e.to_string()))?;
    let account = directory.join("account");
    make_once(&account, |path| Account::create(path).map_err(|e| e.to_string()))?;
    Level::with(Limits::Environment(page), &directory)
}

fn directory(settings: &Settings) -> PathBuf {
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    match (&settings.shared_cache, &settings.runtime) {
        (Some(file), _) => {
            let mut name = file.clone().into_os_string();
            name.push(".hami");
            PathBuf::from(name)
        }
        // Under sudo the variable may still name the directory of the user who called it.
        (None, Some(runtime)) if fs::metadata(runtime).is_ok_and(|found| found.uid() == user) => {
            runtime.join("hami/environment")
        }
        (None, _) => PathBuf::from(format!("/tmp/hami-{user}/environment")),
    }
}

/// A directory that only this user can enter: it holds what limits the user's programs.
fn make_private(directory: &Path) -> Result<(), String> {
    let refuse = |reason: String| {
        Err(format!(
            "cannot keep the account of CUDA_DEVICE_MEMORY_LIMIT in {}: {reason}; name a place in \
             CUDA_DEVICE_MEMORY_SHARED_CACHE that this user can write",
            directory.display()
        ))
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    if let Err(error) = made {
        return refuse(error.to_string());
    }
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    match fs::symlink_metadata(directory) {
        Err(error) => refuse(error.to_string()),
        Ok(found) if !found.is_dir() => refuse("it is not a directory".to_owned()),
        Ok(found) if found.uid() != user => refuse("it belongs to another user".to_owned()),
        Ok(found) if found.mode() & 0o022 != 0 => refuse("others can write it".to_owned()),
        Ok(_) => Ok(()),
    }
}

/// Makes a file whole under a name of its own, then gives it its name unless somebody was first.
fn make_once(path: &Path, make: impl Fn(&Path) -> Result<(), String>) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(name);
    // Left by a process of the same number that was killed here.
    let _ = fs::remove_file(&partial);
    make(&partial)?;
    let linked = link(&partial, path);
    let _ = fs::remove_file(&partial);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: two C strings.
    if unsafe { libc::link(from.as_ptr(), to.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The row of a card in the page, appended if no process has met the card yet.
pub(super) fn row_of(page: &Path, uuid: &str) -> Option<usize> {
    let mut page = LimitsPage::open(page).ok()?;
    let find = |rows: &[Row]| rows.iter().position(|row| crate::cards::same(&row.uuid, uuid));
    if let Some(row) = find(&page.rows().ok()?) {
        return Some(row);
    }
    // Another process may append the same card now; then the page refuses ours, and has it.
    let _ = page.append(Row { uuid: uuid.to_owned(), memory_limit: None, share: None });
    find(&page.rows().ok()?)
}
