//! Mipmapped arrays: levels of halving extents, each of which is an array.

use super::shape::Descriptor;
use super::{Placed, insert, place, unplace};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::current;
use crate::process::{Driver, handle, lock};
use driver_sys::cuda::*;
use std::sync::Mutex;

/// A mipmapped array.
#[derive(Default)]
pub struct Mipmap(Mutex<Levels>);

#[derive(Clone, Default)]
struct Levels {
    /// The first level's address.
    address: u64,
    /// The handle of the context.
    context: usize,
    /// The handles of the levels.
    arrays: Vec<usize>,
}

fn find(driver: &Driver, mipmap: CUmipmappedArray) -> Answer<Levels> {
    let found = driver.mipmaps.get(mipmap as usize).map(|mipmap| lock(&mipmap.0).clone());
    found.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Creates the handles of a mipmapped array and its levels; `None` when there are too many.
fn insert_all(driver: &Driver, placed: &[Placed]) -> Option<usize> {
    let mut levels = Levels::default();
    for level in placed {
        (levels.address, levels.context) = (placed[0].address, level.context);
        match insert(driver, *level) {
            Some(created) => levels.arrays.push(created),
            None => break,
        }
    }
    let is_complete = levels.arrays.len() == placed.len();
    let created =
        is_complete.then(|| driver.mipmaps.insert(|mipmap, _| lock(&mipmap.0).clone_from(&levels)));
    let created = created.flatten();
    if created.is_none() {
        remove_levels(driver, &levels);
    }
    created
}

fn remove_levels(driver: &Driver, levels: &Levels) {
    for array in &levels.arrays {
        driver.arrays.remove(*array);
    }
}

/// `cuMipmappedArrayCreate`
pub fn create(
    mipmap: Out<CUmipmappedArray>,
    descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
    level_count: u32,
) -> Answer {
    let (driver, owner, context) = current()?;
    let shape = descriptor.get()?.shape();
    if mipmap.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    shape.check()?;
    if shape.is_sparse() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut bytes = 0;
    let mut placed = Vec::new();
    for level in 0..shape.levels(level_count) {
        let shape = shape.level(level);
        placed.push(Placed { shape, address: bytes, context, is_level: true });
        bytes += shape.bytes()?;
    }
    let base = place(driver, owner, bytes)?;
    for level in &mut placed {
        level.address += base;
    }
    let Some(created) = insert_all(driver, &placed) else {
        unplace(driver, base)?;
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    mipmap.put(handle(created))
}

/// `cuMipmappedArrayGetLevel`
pub fn level(array: Out<CUarray>, mipmap: CUmipmappedArray, level: u32) -> Answer {
    let (driver, ..) = current()?;
    let levels = find(driver, mipmap)?;
    let found = levels.arrays.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    array.put(handle(*found))
}

/// `cuMipmappedArrayDestroy`
pub fn destroy(mipmap: CUmipmappedArray) -> Answer {
    let (driver, ..) = current()?;
    let levels = find(driver, mipmap)?;
    if !driver.mipmaps.remove(mipmap as usize) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    remove_levels(driver, &levels);
    unplace(driver, levels.address)
}

/// Invalidates the handles of a context; the levels are arrays of the same context.
pub fn destroy_all(driver: &Driver, context: usize) {
    for (own_handle, mipmap) in driver.mipmaps.live() {
        if lock(&mipmap.0).context == context {
            driver.mipmaps.remove(own_handle);
        }
    }
}
