//! Virtual memory management: physical memory is charged on the device of its location, from its
//! creation until its last handle, mapping and exported descriptor are gone. Reserved addresses
//! take no memory.

use std::ffi::{c_int, c_void};

use driver_sys::cuda::{
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice,
    CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use vgpu_driver::guard::guard;
use vgpu_driver::location;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::allocations::Owner;
use vgpu_slice::mapped::{self, PHYSICAL};

use crate::bindings;

around! {
    create(
        handle: *mut CUmemGenericAllocationHandle, size: usize,
        properties: *const CUmemAllocationProp, flags: u64
    ) -> Outcome = cuMemCreate, |call| {
        // SAFETY: the program's own argument.
        match unsafe { properties.as_ref() }.and_then(device_of) {
            Some(device) if !handle.is_null() => {
                // SAFETY: read only after the driver has written it.
                PHYSICAL.create(device, Owner::NONE, size as u64, call, || unsafe { *handle })
            }
            _ => check(call()),
        }
    };
    release(handle: CUmemGenericAllocationHandle) -> Outcome = cuMemRelease,
        |call| PHYSICAL.release(handle, call).inspect(|()| bindings::memory_ended());
    retain(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> Outcome
        // SAFETY: read only after the driver has written it.
        = cuMemRetainAllocationHandle, |call| PHYSICAL.retain(call, || unsafe { *handle });
    map(
        address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: u64
    ) -> Outcome = cuMemMap, |call| {
        // SAFETY: what `call` has just mapped.
        let undo = || unsafe { real::cuMemUnmap(address, size) };
        PHYSICAL.map(handle, size as u64, call, || address, undo)
    };
    unmap(address: CUdeviceptr, size: usize) -> Outcome = cuMemUnmap,
        |call| PHYSICAL.unmap(address, size as u64, call).inspect(|()| bindings::memory_ended());
}

fn device_of(properties: &CUmemAllocationProp) -> Option<CUdevice> {
    location::device_of(&properties.location, properties.r#type)
}

pub(crate) unsafe fn export(
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> Outcome {
    // SAFETY: the program's own arguments.
    check(unsafe { real::cuMemExportToShareableHandle(shareable, handle, kind, flags) })?;
    if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
        return Ok(());
    }
    let descriptor = shareable.cast::<c_int>();
    // SAFETY: with this type the driver has written a descriptor.
    let exported = guard(|| PHYSICAL.exported(handle, unsafe { *descriptor }));
    exported.unwrap_or(Err(CUDA_ERROR_OUT_OF_MEMORY)).inspect_err(|_| {
        // SAFETY: the driver's new descriptor, which the program never gets.
        unsafe { libc::close(*descriptor) };
    })
}

pub(crate) unsafe fn import(
    handle: *mut CUmemGenericAllocationHandle,
    shareable: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> Outcome {
    // For this type the argument is the descriptor itself.
    let id = (kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        .then(|| mapped::expect_import(shareable as usize as c_int))
        .flatten();
    // SAFETY: the program's own arguments.
    check(unsafe { real::cuMemImportFromShareableHandle(handle, shareable, kind) })
        .inspect_err(|_| mapped::cancel_import(id))?;
    // SAFETY: the driver has just written it.
    let imported = unsafe { *handle };
    // SAFETY: zero bytes are a valid value of this structure of numbers and pointers.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    // SAFETY: a local variable, and a handle of the driver's.
    let result =
        unsafe { real::cuMemGetAllocationPropertiesFromHandle(&raw mut properties, imported) };
    let device = if result == CUDA_SUCCESS { device_of(&properties) } else { None };
    let Some(device) = device else {
        mapped::cancel_import(id);
        return Ok(());
    };
    PHYSICAL.import(imported, device, id).inspect_err(|_| {
        // SAFETY: the program never gets it.
        unsafe { real::cuMemRelease(imported) };
    })
}
