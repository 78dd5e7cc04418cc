//! The driver's attributes of memory pools.

use driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMPOOL_ATTR_ALLOCATION_TYPE,
    CU_MEMPOOL_ATTR_LOCATION_ID, CU_MEMPOOL_ATTR_LOCATION_TYPE, CUDA_SUCCESS, CUdevice,
    CUmemPool_attribute, CUmemoryPool,
};
use vgpu_driver::{context, real};

/// The device of a pool that the driver made: the device whose default pool it is, or the one that
/// newer drivers report. Managed memory counts for the current device, as it does without a pool.
pub(super) fn device_of(handle: CUmemoryPool) -> Option<CUdevice> {
    let mut count = 0;
    // SAFETY: a local variable.
    if unsafe { real::cuDeviceGetCount(&raw mut count) } != CUDA_SUCCESS {
        return None;
    }
    let is_default = |device: &CUdevice| default_of(*device) == Some(handle);
    (0..count).find(is_default).or_else(|| {
        let location: u32 = attribute(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE)?;
        if location == CU_MEM_LOCATION_TYPE_DEVICE {
            return attribute(handle, CU_MEMPOOL_ATTR_LOCATION_ID);
        }
        let kind: u32 = attribute(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE)?;
        let is_managed = kind == CU_MEM_ALLOCATION_TYPE_MANAGED;
        context::current().filter(|_| is_managed).map(|(device, _)| device)
    })
}

/// The default pool of a device.
pub(super) fn default_of(device: CUdevice) -> Option<CUmemoryPool> {
    let mut default: CUmemoryPool = std::ptr::null_mut();
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, device) };
    (result == CUDA_SUCCESS).then_some(default)
}

/// The pool that a device's allocations come from.
pub fn current_of(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool: CUmemoryPool = std::ptr::null_mut();
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetMemPool(&raw mut pool, device) };
    (result == CUDA_SUCCESS).then_some(pool)
}

/// A numeric attribute of a pool. `T` has the attribute's width.
pub(super) fn attribute<T: Default>(handle: CUmemoryPool, which: CUmemPool_attribute) -> Option<T> {
    // Twice the room, in case a driver writes more.
    let mut value = [T::default(), T::default()];
    // SAFETY: a handle that the driver checks, and a local variable.
    let result = unsafe { real::cuMemPoolGetAttribute(handle, which, value.as_mut_ptr().cast()) };
    let [value, _] = value;
    (result == CUDA_SUCCESS).then_some(value)
}
