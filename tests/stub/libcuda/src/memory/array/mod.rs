//! Arrays: device memory with a shape, which programs reach by copies.
//!
//! The elements are row by row, without gaps, at addresses that the program never gets. They are
//! allocated and charged as linear memory is. A mipmapped array is one allocation, and its levels
//! are arrays in it.

pub mod lines;
pub mod mipmap;
pub mod shape;

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::{Context, current};
use crate::memory::vmm::bound::Holder;
use crate::memory::{alloc_in, check_at, free_at};
use crate::process::{Driver, handle, lock};
use driver_sys::cuda::*;
use shape::{Descriptor, Shape};
use std::sync::Mutex;
use stub_engine::backing::Area;

/// An array, or a level of a mipmapped array.
#[derive(Default)]
pub struct Array(Mutex<Placed>);

/// An array's elements.
#[derive(Clone, Copy, Default)]
pub struct Placed {
    pub shape: Shape,
    /// The first element's address.
    pub address: u64,
    /// The handle of the context.
    context: usize,
    /// Whether a mipmapped array owns it.
    is_level: bool,
}

/// The array of a handle.
pub fn find(driver: &Driver, array: CUarray) -> Option<Placed> {
    driver.arrays.get(array as usize).map(|array| *lock(&array.0))
}

/// Checks that `bytes` from an element on are in one array, and records a write.
pub fn check(driver: &Driver, address: u64, bytes: u64, is_written: bool) -> Answer {
    let found = driver.backing.locate(address);
    let (space, offset) = found
        .filter(|(space, _)| driver.backing.area_of(*space) == Area::Arrays)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    check_at(driver, space, offset, bytes, is_written)
}

/// The first address of memory for elements.
fn place(driver: &Driver, context: &Context, bytes: u64) -> Answer<u64> {
    let space = driver.backing.space(Area::Arrays, context.card());
    alloc_in(driver, context, space.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?, bytes)
}

/// Frees the memory that begins at this address.
fn unplace(driver: &Driver, address: u64) -> Answer {
    let found = driver.backing.locate(address).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    free_at(driver, found.0, found.1)
}

/// A new handle.
fn insert(driver: &Driver, placed: Placed) -> Option<usize> {
    driver.arrays.insert(|array, _| *lock(&array.0) = placed)
}

/// `cuArrayCreate`, `cuArray3DCreate`
pub fn create<D: Descriptor>(array: Out<CUarray>, descriptor: In<D>) -> Answer {
    let (driver, owner, context) = current()?;
    let shape = descriptor.get()?.shape();
    if array.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    shape.check()?;
    // Nothing reads the elements of a sparse array.
    let address = if shape.is_sparse() { 0 } else { place(driver, owner, shape.bytes()?)? };
    let Some(created) = insert(driver, Placed { shape, address, context, is_level: false }) else {
        unplace(driver, address)?;
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    array.put(handle(created))
}

/// `cuArrayDestroy`: a level ends with its mipmapped array.
pub fn destroy(array: CUarray) -> Answer {
    let (driver, ..) = current()?;
    let found = find(driver, array).filter(|found| !found.is_level);
    let found = found.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if !driver.arrays.remove(array as usize) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if found.shape.is_sparse() {
        lock(&driver.vmm).unbind(driver, Holder::Array(array as usize), |_| true);
        return Ok(());
    }
    unplace(driver, found.address)
}

/// Invalidates the handles of a context, before its memory is freed.
pub fn destroy_all(driver: &Driver, context: usize) {
    mipmap::destroy_all(driver, context);
    for (own_handle, array) in driver.arrays.live() {
        if lock(&array.0).context == context {
            driver.arrays.remove(own_handle);
            lock(&driver.vmm).unbind(driver, Holder::Array(own_handle), |_| true);
        }
    }
}

/// `cuArrayGetDescriptor`, `cuArray3DGetDescriptor`
pub fn describe<D: Descriptor>(descriptor: Out<D>, array: CUarray) -> Answer {
    let (driver, ..) = current()?;
    let found = find(driver, array).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    descriptor.put(D::of(&found.shape))
}
