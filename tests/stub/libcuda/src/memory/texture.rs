//! Texture objects: descriptions of device memory and arrays for kernels, which are stored and
//! returned.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::current;
use crate::memory::{array, check};
use crate::process::{Driver, lock};
use driver_sys::cuda::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use stub_engine::arena::ALIGNMENT;

/// A texture object.
#[derive(Default)]
pub struct Texture {
    context: AtomicUsize,
    described: Mutex<Option<Described>>,
}

#[derive(Clone, Copy)]
struct Described {
    resource: CUDA_RESOURCE_DESC,
    texture: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

// SAFETY: the pointers in a description are only copied.
unsafe impl Send for Described {}

/// Pitches are multiples of this, as in the device attribute.
const PITCH_ALIGNMENT: usize = 32;

fn check_handle(resource: &CUDA_RESOURCE_DESC, is_valid: bool) -> Answer {
    if is_valid && resource.flags == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Only arrays can be viewed in another way.
fn check_view(described: &Described) -> Answer {
    let is_array = matches!(
        described.resource.resType,
        CU_RESOURCE_TYPE_ARRAY | CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    );
    match described.view {
        None => Ok(()),
        Some(view)
            if is_array
                && view.format <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7
                && view.firstMipmapLevel <= view.lastMipmapLevel
                && view.firstLayer <= view.lastLayer =>
        {
            Ok(())
        }
        Some(_) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

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
        CU_RESOURCE_TYPE_ARRAY => {
            // SAFETY: as above.
            let array = unsafe { resource.res.array.hArray };
            return check_handle(resource, array::find(driver, array).is_some());
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: as above.
            let mipmap = unsafe { resource.res.mipmap.hMipmappedArray };
            return check_handle(resource, array::mipmap::is_valid(driver, mipmap));
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if bytes == 0 || resource.flags != 0 || !pointer.is_multiple_of(ALIGNMENT) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check(driver, pointer, bytes as u64, false)
}

/// `cuTexObjectCreate`
pub fn create(
    object: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    texture: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Answer {
    let (driver, _, context) = current()?;
    let described =
        Described { resource: resource.get()?, texture: texture.get()?, view: view.get().ok() };
    if object.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    check_resource(driver, &described.resource)?;
    check_view(&described)?;
    let created = driver.textures.insert(|texture, _| {
        texture.context.store(context, Ordering::Relaxed);
        *lock(&texture.described) = Some(described);
    });
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
        if texture.context.load(Ordering::Relaxed) == context {
            driver.textures.remove(own_handle);
        }
    }
}

fn find(object: CUtexObject) -> Answer<Described> {
    let (driver, ..) = current()?;
    let found = driver.textures.get(object as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    lock(&found.described).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuTexObjectGetResourceDesc`
pub fn get_resource(resource: Out<CUDA_RESOURCE_DESC>, object: CUtexObject) -> Answer {
    resource.put(find(object)?.resource)
}

/// `cuTexObjectGetTextureDesc`
pub fn get_texture(texture: Out<CUDA_TEXTURE_DESC>, object: CUtexObject) -> Answer {
    texture.put(find(object)?.texture)
}

/// `cuTexObjectGetResourceViewDesc`
pub fn get_view(view: Out<CUDA_RESOURCE_VIEW_DESC>, object: CUtexObject) -> Answer {
    view.put(find(object)?.view.ok_or(CUDA_ERROR_INVALID_VALUE)?)
}
