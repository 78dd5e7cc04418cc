//! Texture objects over device memory. Kernels do not compute, so nothing reads their descriptions.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::current;
use crate::memory::check;
use crate::process::Driver;
use driver_sys::cuda::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use stub_engine::arena::ALIGNMENT;

/// A texture object: the handle of its context.
#[derive(Default)]
pub struct Texture(AtomicUsize);

/// Pitches are multiples of this, as in the device attribute.
const PITCH_ALIGNMENT: usize = 32;

fn check_resource(driver: &Driver, resource: &CUDA_RESOURCE_DESC) -> Answer {
    let (pointer, bytes) = match resource.resType {
        CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: the type says which field is set.
            let linear = unsafe { resource.res.linear };
            (linear.devPtr, linear.sizeInBytes)
        }
        CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: as above.
            let rows = unsafe { resource.res.pitch2D };
            if !rows.pitchInBytes.is_multiple_of(PITCH_ALIGNMENT) || rows.height == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // The last row may end with its last element; its size depends on the format, so check
            // a byte.
            (rows.devPtr, rows.pitchInBytes * (rows.height - 1) + rows.width)
        }
        CU_RESOURCE_TYPE_ARRAY | CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if bytes == 0 || resource.flags != 0 || !pointer.is_multiple_of(ALIGNMENT) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check(driver, pointer, bytes as u64, false)
}

/// `cuTexObjectCreate`: only arrays can have a view.
pub fn create(
    object: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    texture: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Answer {
    let (driver, _, context) = current()?;
    let resource = resource.get()?;
    texture.get()?;
    if object.is_null() || view.get().is_ok() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check_resource(driver, &resource)?;
    let created = driver.textures.insert(|texture, _| texture.0.store(context, Ordering::Relaxed));
    object.put(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)? as u64)
}

/// `cuTexObjectDestroy`
pub fn destroy(object: CUtexObject) -> Answer {
    let (driver, ..) = current()?;
    if driver.textures.remove(object as usize) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Destroys the texture objects of a context.
pub fn destroy_all(driver: &Driver, context: usize) {
    for (own_handle, texture) in driver.textures.live() {
        if texture.0.load(Ordering::Relaxed) == context {
            driver.textures.remove(own_handle);
        }
    }
}
