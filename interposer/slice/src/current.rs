//! Which slice this process is in. This is decided once, at the first CUDA or NVML call.
//!
//! docs/architecture.md describes the three modes ("How the library finds its slice").

use std::fmt::Display;
use std::path::{Path, PathBuf};

use vgpu_driver::objects;
use vgpu_driver::process;
use vgpu_driver::racy_once::RacyOnce;

use crate::environment;
use crate::layer::Layer;
use crate::limited::{Index, Limited, MAX_LAYERS};
use crate::settings::Settings;

/// The limits of this process.
pub enum Slice {
    /// No limit is set: calls go to the driver.
    Unlimited,
    /// These limits are enforced.
    Limited(Limited),
    /// Limits are set but cannot be enforced, for this reason. CUDA is refused.
    Refused(String),
}

/// The slice of this process.
#[inline]
pub fn current() -> &'static Slice {
    static SLICE: RacyOnce<Slice> = RacyOnce::new();
    SLICE.get_or_init(|| decide().unwrap_or_else(Slice::Refused))
}

/// The limits in which the calls of this process count; `None` if only the driver is concerned.
pub(crate) fn limited() -> Option<&'static Limited> {
    match current() {
        Slice::Limited(limited) if !process::is_forked_copy() => Some(limited),
        _ => None,
    }
}

fn decide() -> Result<Slice, String> {
    let settings = Settings::read().map_err(|error| error.to_string())?;
    let mut directories: Vec<PathBuf> = managed_directory()?.into_iter().collect();
    directories.extend(settings.slices.iter().cloned());
    if directories.len() > MAX_LAYERS {
        return Err(format!(
            "HAMI_SLICE: {} nested slices are refused: at most {MAX_LAYERS} are supported; end \
             some `hami run`",
            directories.len()
        ));
    }
    let mut layers = Vec::new();
    for directory in &directories {
        layers.push(Layer::open(directory)?);
    }
    if layers.is_empty() {
        if !settings.variables.set_a_limit() {
            return Ok(Slice::Unlimited);
        }
        layers.push(Layer::of_environment(&environment::create(&settings)?)?);
    }
    let index = if directories.is_empty() { Index::OfMachine } else { Index::OfPage };
    Ok(Slice::Limited(Limited::new(layers, settings.variables, index)))
}

/// The directory of the library itself, if a slice is there: this is how a container gets its
/// slice.
///
/// A program may change its root directory, or hide the library's directory, before its first call.
/// Then the library cannot know whether the program has a slice. So CUDA is refused if the library
/// is no longer at its path.
fn managed_directory() -> Result<Option<PathBuf>, String> {
    let Some(library) = objects::path_of(managed_directory as *const () as usize) else {
        return Ok(None);
    };
    let library = Path::new(&library);
    let Some(directory) = library.parent() else { return Ok(None) };
    let is_there = |path: &Path| path.try_exists().map_err(|error| unseen(path, &error));
    // With only one of the two files the slice is damaged, and CUDA is refused.
    if is_there(&directory.join("limits"))? || is_there(&directory.join("account"))? {
        return Ok(Some(directory.to_owned()));
    }
    // A relative path depends on the working directory, so it proves nothing. Containers use an
    // absolute path.
    if library.is_absolute() && !is_there(library)? {
        return Err(unseen(library, &"it is not there any more"));
    }
    Ok(None)
}

fn unseen(path: &Path, reason: &dyn Display) -> String {
    format!(
        "{}: {reason}, so the limits beside the library cannot be found; call CUDA before chroot \
         and before a change of mounts or user",
        path.display()
    )
}
