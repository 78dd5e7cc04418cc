//! Handles by which processes share linear memory. [`vgpu_slice::ipc`] decides who is charged.

use driver_sys::cuda::{CUdeviceptr, CUipcMemHandle};
use vgpu_driver::real::{Outcome, check};
use vgpu_slice::ipc;

around! {
    get_handle(handle: *mut CUipcMemHandle, pointer: CUdeviceptr) -> Outcome
        = cuIpcGetMemHandle, |call| {
            check(call())?;
            // SAFETY: the driver has just written it.
            ipc::exported(unsafe { &*handle }, pointer);
            Ok(())
        };
    open(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> Outcome
        // SAFETY: read only after the driver has written it.
        = cuIpcOpenMemHandle_v2, |call| ipc::open(&handle, call, || unsafe { *pointer });
    open_v1(pointer: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) -> Outcome
        // SAFETY: as above.
        = cuIpcOpenMemHandle, |call| ipc::open(&handle, call, || unsafe { *pointer });
    close(pointer: CUdeviceptr) -> Outcome = cuIpcCloseMemHandle, |call| ipc::close(pointer, call);
}
