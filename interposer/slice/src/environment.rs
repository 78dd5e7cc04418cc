//! The slice directory of processes that have no limits page: only HAMi's variables limit them, and
//! the processes create the directory themselves.
//!
//! All processes that share a limit must find the same files. `CUDA_DEVICE_MEMORY_SHARED_CACHE`
//! names the place, as for HAMi; without it the files are in the user's runtime directory. A
//! process appends a row for each card that it meets, by UUID, so processes that number the cards
//! differently agree.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use hami_account::{Account, runtime_directory};
use hami_limits::{FileError, LimitsPage, Row, same_card};

use crate::settings::Settings;

/// The slice directory, created with an empty page and account if it is missing.
pub(crate) fn create(settings: &Settings) -> Result<PathBuf, String> {
    let mut directories = directories(settings);
    for directory in &directories {
        make_private(directory)?;
    }
    let directory = directories.pop().ok_or("no directory")?;
    let page = directory.join("limits");
    match LimitsPage::create(&page, None, &[]) {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => {}
        made => drop(made.map_err(|error| unusable(&directory, &error))?),
    }
    let account = directory.join("account");
    match Account::create(&account) {
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => {}
        // Its blocks are allocated, so only the program that creates it needs its size.
        Err(FileError::TooLarge { .. }) if account.exists() => {}
        made => made.map_err(|error| unusable(&directory, &error))?,
    }
    Ok(directory)
}

/// The directories that this process may have to create; the last one is the slice directory.
fn directories(settings: &Settings) -> Vec<PathBuf> {
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    if let Some(file) = &settings.shared_cache {
        let mut name = file.clone().into_os_string();
        name.push(".hami");
        return vec![PathBuf::from(name)];
    }
    // Under sudo the variable may still name the directory of the user who called sudo.
    let session = settings
        .runtime
        .as_ref()
        .filter(|directory| fs::metadata(directory).is_ok_and(|found| found.uid() == user));
    let runtime = session.map_or_else(runtime_directory, |directory| directory.join("hami"));
    let slice = runtime.join("environment");
    vec![runtime, slice]
}

/// Why a file of the slice could not be created.
fn unusable(directory: &Path, error: &FileError) -> String {
    match error {
        // Another place does not help.
        FileError::TooLarge { .. } => {
            format!("cannot keep the account of CUDA_DEVICE_MEMORY_LIMIT: {error}")
        }
        _ => refusal(directory, error),
    }
}

fn refusal(directory: &Path, reason: &dyn Display) -> String {
    format!(
        "cannot keep the account of CUDA_DEVICE_MEMORY_LIMIT in {}: {reason}; name a place in \
         CUDA_DEVICE_MEMORY_SHARED_CACHE that this user can write",
        directory.display()
    )
}

/// Creates a directory that only this user can enter. Fails if another user owns it or can write
/// it, because its files limit the user's programs.
fn make_private(directory: &Path) -> Result<(), String> {
    let refuse = |reason: &dyn Display| Err(refusal(directory, reason));
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return refuse(&error),
        _ => {}
    }
    // SAFETY: geteuid cannot fail.
    let user = unsafe { libc::geteuid() };
    match fs::symlink_metadata(directory) {
        Err(error) => refuse(&error),
        Ok(found) if !found.is_dir() => refuse(&"it is not a directory"),
        Ok(found) if found.uid() != user => refuse(&"it belongs to another user"),
        Ok(found) if found.mode() & 0o022 != 0 => refuse(&"others can write it"),
        Ok(_) => Ok(()),
    }
}

/// The row of a card in the page. Appends one if no process has met the card yet.
pub(crate) fn row_of(page: &Path, uuid: &str) -> Option<usize> {
    let mut page = LimitsPage::open(page).ok()?;
    let find = |rows: &[Row]| rows.iter().position(|row| same_card(&row.uuid, uuid));
    if let Some(row) = find(&page.rows().ok()?) {
        return Some(row);
    }
    // Another process may append the same card now. Then the page refuses ours, and has the card.
    let _ = page.append(Row::new(uuid));
    find(&page.rows().ok()?)
}
