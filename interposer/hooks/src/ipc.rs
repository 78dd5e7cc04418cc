//! Handles by which processes share linear memory. [`vgpu_slice::ipc`] decides who is charged.

use driver_sys::cuda::{CUdeviceptr, CUipcMemHandle};
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::ipc;

pub(crate) unsafe fn get_handle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> Outcome {
    // SAFETY: the program's own arguments.
    check(unsafe { real::cuIpcGetMemHandle(handle, pointer) })?;
    // SAFETY: the driver has just written it.
    ipc::exported(unsafe { &*handle }, pointer);
    Ok(())
}

pub(crate) unsafe fn open(
    pointer: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: u32,
) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuIpcOpenMemHandle_v2(pointer, handle, flags) };
    // SAFETY: read only after the driver has written it.
    ipc::open(&handle, call, || unsafe { *pointer })
}

pub(crate) unsafe fn open_v1(
    pointer: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: u32,
) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::cuIpcOpenMemHandle(pointer, handle, flags) };
    // SAFETY: as above.
    ipc::open(&handle, call, || unsafe { *pointer })
}

pub(crate) unsafe fn close(pointer: CUdeviceptr) -> Outcome {
    // SAFETY: the program's own argument.
    ipc::close(pointer, || unsafe { real::cuIpcCloseMemHandle(pointer) })
}
