//! Surface objects: arrays that kernels read and write, which are stored and returned.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::current;
use crate::memory::array;
use crate::process::{Driver, handle, lock};
use driver_sys::cuda::*;
use std::sync::Mutex;

/// A surface object.
#[derive(Default)]
pub struct Surface(Mutex<Described>);

#[derive(Clone, Copy, Default)]
struct Described {
    /// The handle of the context.
    context: usize,
    /// The handle of the array.
    array: usize,
}

/// `cuSurfObjectCreate`: of an array that was created for surfaces.
pub fn create(object: Out<CUsurfObject>, resource: In<CUDA_RESOURCE_DESC>) -> Answer {
    let (driver, _, context) = current()?;
    let resource = resource.get()?;
    if object.is_null() || resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the type says which field is set.
    let array = unsafe { resource.res.array.hArray };
    let found = array::find(driver, array).filter(|found| found.shape.is_surface());
    found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let described = Described { context, array: array as usize };
    let created = driver.surfaces.insert(|surface, _| *lock(&surface.0) = described);
    object.put(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)? as u64)
}

/// `cuSurfObjectDestroy`
pub fn destroy(object: CUsurfObject) -> Answer {
    let (driver, ..) = current()?;
    if driver.surfaces.remove(object as usize) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Destroys the surface objects of a context.
pub fn destroy_all(driver: &Driver, context: usize) {
    for (own_handle, surface) in driver.surfaces.live() {
        if lock(&surface.0).context == context {
            driver.surfaces.remove(own_handle);
        }
    }
}

/// `cuSurfObjectGetResourceDesc`
pub fn get_resource(resource: Out<CUDA_RESOURCE_DESC>, object: CUsurfObject) -> Answer {
    let (driver, ..) = current()?;
    let found = driver.surfaces.get(object as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: a structure of numbers and pointers.
    let mut described: CUDA_RESOURCE_DESC = unsafe { core::mem::zeroed() };
    described.resType = CU_RESOURCE_TYPE_ARRAY;
    described.res.array.hArray = handle(lock(&found.0).array);
    resource.put(described)
}
