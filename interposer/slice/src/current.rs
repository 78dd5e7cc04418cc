//! Which slice this process is in. Decided once, at the first CUDA or NVML call.
//!
//! docs/architecture.md describes the three modes ("How the library finds its slice").

use std::path::{Path, PathBuf};

use vgpu_driver::objects;
use vgpu_driver::racy_once::RacyOnce;

use crate::environment;
use crate::layer::Layer;
use crate::limited::{Index, Limited, MAX_LAYERS};
use crate::settings::Settings;

/// The limits of this process.
pub enum Slice {
    /// No limit is set: calls go to the driver.
    Unlimited,
    /// Limits hold.
    Limited(Limited),
    /// Limits are set that cannot be enforced, for this reason. CUDA is refused.
    Refused(String),
}

/// The slice of this process.
#[inline]
pub fn current() -> &'static Slice {
    static SLICE: RacyOnce<Slice> = RacyOnce::new();
    SLICE.get_or_init(|| decide().unwrap_or_else(Slice::Refused))
}

fn decide() -> Result<Slice, String> {
    let settings = Settings::read().map_err(|error| error.to_string())?;
    let mut directories: Vec<PathBuf> = managed_directory().into_iter().collect();
    directories.extend(settings.slices.iter().cloned());
    if directories.len() > MAX_LAYERS {
        return Err(format!(
            "HAMI_SLICE: {} slices inside one another are refused: at most {MAX_LAYERS} hold; end \
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
fn managed_directory() -> Option<PathBuf> {
    let library = objects::path_of(managed_directory as *const () as usize)?;
    let directory = Path::new(&library).parent()?.to_owned();
    // With only one of the two files the slice is damaged, and CUDA is refused.
    let either = directory.join("limits").exists() || directory.join("account").exists();
    either.then_some(directory)
}
