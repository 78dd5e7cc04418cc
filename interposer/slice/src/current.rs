//! Which slice this process is in. This is decided once, at the first CUDA or NVML call.
//!
//! docs/architecture.md describes the three modes ("How the library finds its slice").

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vgpu_driver::objects;
use vgpu_driver::process;
use vgpu_driver::racy_once::RacyOnce;

use crate::environment;
use crate::layer::Layer;
use crate::limited::{Index, Limited, MAX_LAYERS};
use crate::machine;
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
pub fn limited() -> Option<&'static Limited> {
    match current() {
        Slice::Limited(limited) if !process::is_forked_copy() => Some(limited),
        _ => None,
    }
}

fn decide() -> Result<Slice, String> {
    let settings = Settings::read().map_err(|error| error.to_string())?;
    let directories = directories()?;
    if directories.len() > MAX_LAYERS {
        return Err(format!(
            "{} nested slices are refused: at most {MAX_LAYERS} are supported; end some `hami run`",
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
    let chosen = chosen(&directories)?;
    Ok(Slice::Limited(Limited::new(layers, settings.variables, index, chosen)))
}

/// The directories of the slices of this process, outermost first.
///
/// A program may preload a copy of the library. Then its calls come to the copy first, and the
/// other one is never asked. So the slices beside the other one count as well.
fn directories() -> Result<Vec<PathBuf>, String> {
    let library = objects::path_of(directories as *const () as usize);
    let others =
        objects::paths_named(NAME).into_iter().filter(|path| Some(path) != library.as_ref());
    let (mut found, mut runtime) = (Vec::new(), None);
    for path in others.chain(library.clone()) {
        let path = Path::new(&path);
        for directory in beside(path)? {
            if !found.contains(&directory) {
                found.push(directory);
            }
        }
        runtime = runtime.or(machine::runtime(path)?);
    }
    if let Some(runtime) = runtime
        && let Some(slice) = machine::default_slice(&runtime, &found)?
    {
        found.insert(0, slice);
    }
    Ok(found)
}

/// The slices beside a library, outermost first. They are in the directory of its file, which is
/// how a container gets its slice, and in the directory of the path by which it was loaded. In a
/// slice of `hami run` that path is a link to the file.
///
/// The directory of the file comes first, so a link elsewhere cannot leave a container's slice.
fn beside(library: &Path) -> Result<Vec<PathBuf>, String> {
    let file = match library.canonicalize() {
        Ok(file) => file,
        // A program may change its root directory, or hide the library, before its first call.
        // Then the library cannot know whether the program has a slice, and CUDA is refused.
        Err(error) if library.is_absolute() => return Err(unseen(library, &error)),
        // A relative path depends on the working directory, so it proves nothing. Containers and
        // `hami run` use absolute paths.
        Err(_) => return Ok(Vec::new()),
    };
    let (Some(own), Some(named)) = (file.parent(), library.parent()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    if is_slice(own)? {
        found.push(own.to_owned());
    }
    if named.canonicalize().map_err(|error| unseen(named, &error))? != own {
        match fs::read(named.join(LAYERS)) {
            Ok(lines) => found.extend(lines_of(&lines)),
            Err(_) if is_slice(named)? => found.push(named.to_owned()),
            Err(_) => {}
        }
    }
    // Only slices load this copy, so the one that this program was started in is not there any
    // more.
    if found.is_empty() && is_there(&own.join(KEPT))? {
        return Err(format!(
            "{}: the slice of this program cannot be found: it was removed, or this program cannot \
             see it; start the program again with `hami run`",
            library.display()
        ));
    }
    Ok(found)
}

/// The cards that `hami run --device` has chosen, in its order. The innermost choice counts.
fn chosen(directories: &[PathBuf]) -> Result<Option<Vec<String>>, String> {
    for path in directories.iter().rev().map(|directory| directory.join(CHOSEN)) {
        match fs::read_to_string(&path) {
            Ok(lines) => return Ok(Some(lines.lines().map(String::from).collect())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unseen(&path, &error)),
        }
    }
    Ok(None)
}

/// The file name of the library, in a container and in a slice.
const NAME: &str = "libvgpu.so";

/// A file in a slice's directory that lists the slices of its programs, outermost first, if there
/// are others around it.
const LAYERS: &str = "layers";

/// A file in a slice's directory that lists the cards that were chosen for it, by UUID.
const CHOSEN: &str = "chosen-cards";

/// A file beside the copies of the library that are kept for slices.
const KEPT: &str = "kept-for-slices";

fn lines_of(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| PathBuf::from(OsStr::from_bytes(line)))
}

/// Whether a directory is a slice. With only one of the two files it is damaged, and CUDA is
/// refused.
fn is_slice(directory: &Path) -> Result<bool, String> {
    Ok(is_there(&directory.join("limits"))? || is_there(&directory.join("account"))?)
}

fn is_there(path: &Path) -> Result<bool, String> {
    path.try_exists().map_err(|error| unseen(path, &error))
}

fn unseen(path: &Path, reason: &dyn Display) -> String {
    format!(
        "{}: {reason}, so the limits beside the library cannot be found; if its slice was not \
         removed, call CUDA before chroot and before a change of mounts or user",
        path.display()
    )
}
