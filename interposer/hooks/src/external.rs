//! Memory of other APIs, such as Vulkan. Its owner is not in any slice, so the process that imports
//! it is charged. It lasts until the import is destroyed and every buffer and array mapped from it
//! is freed.

use driver_sys::cuda::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUdeviceptr, CUexternalMemory, CUmipmappedArray,
    CUresult,
};
use vgpu_driver::context;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::green;
use vgpu_slice::mapped::EXTERNAL;

around! {
    import(
        memory: *mut CUexternalMemory, description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC
    ) -> Outcome = cuImportExternalMemory, |call| {
        // SAFETY: the program's own argument.
        match (unsafe { description.as_ref() }, context::current()) {
            (Some(described), Some((device, context))) if !memory.is_null() => {
                let owner = green::owner_in(context);
                // SAFETY: read only after the driver has written it.
                EXTERNAL.create(device, owner, described.size, call, || unsafe { *memory } as u64)
            }
            _ => check(call()),
        }
    };
    buffer(
        pointer: *mut CUdeviceptr, memory: CUexternalMemory,
        description: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    ) -> Outcome = cuExternalMemoryGetMappedBuffer, |call| {
        // SAFETY: called only after the driver has written it.
        let address = || unsafe { *pointer };
        // SAFETY: as above.
        EXTERNAL.map(memory as u64, 1, call, address, || unsafe { real::cuMemFree_v2(*pointer) })
    };
    mipmapped_array(
        array: *mut CUmipmappedArray, memory: CUexternalMemory,
        description: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC
    ) -> Outcome = cuExternalMemoryGetMappedMipmappedArray, |call| {
        // SAFETY: called only after the driver has written it.
        let key = || unsafe { key_of(*array) };
        // SAFETY: as above.
        let undo = || unsafe { real::cuMipmappedArrayDestroy(*array) };
        EXTERNAL.map(memory as u64, 1, call, key, undo)
    };
    destroy(memory: CUexternalMemory) -> Outcome
        = cuDestroyExternalMemory, |call| EXTERNAL.release(memory as u64, call);
}

/// Whether a pointer is a buffer that is mapped from external memory.
#[inline]
pub(crate) fn has_buffer(pointer: u64) -> bool {
    EXTERNAL.is_mapped_at(pointer)
}

/// Frees a buffer that is mapped from external memory.
pub(crate) fn free_buffer(pointer: u64, call: impl FnOnce() -> CUresult) -> Outcome {
    EXTERNAL.unmap(pointer, 1, call)
}

/// Whether an array is mapped from external memory.
pub(crate) fn has_array(array: CUmipmappedArray) -> bool {
    EXTERNAL.is_mapped_at(key_of(array))
}

/// Destroys an array that is mapped from external memory.
pub(crate) fn destroy_array(array: CUmipmappedArray, call: impl FnOnce() -> CUresult) -> Outcome {
    EXTERNAL.unmap(key_of(array), 1, call)
}

/// The key of an array among the mappings. It is odd, and no address of a buffer is.
fn key_of(array: CUmipmappedArray) -> u64 {
    array as u64 | 1
}
