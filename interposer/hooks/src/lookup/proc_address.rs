//! cuGetProcAddress: the driver's own lookup by name and CUDA version.
//!
//! The driver knows which form of a function a program of CUDA 11.3 or 13.0 means, with or without
//! the per-thread default stream. So the driver is called first, and the address that it returns
//! decides which wrapper the program gets. NVIDIA does not document that this address is the
//! exported one. If it is unknown, the header's table of versions decides which form is meant.

use std::ffi::{CStr, c_char, c_void};

use driver_sys::cuda::{
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CUDA_SUCCESS, CUdriverProcAddressQueryResult,
    CUresult, cuuint64_t,
};

use super::wrapper_of;
use crate::boundary::{HOOKS, Hook};

around! {
    get_proc_address_v1(
        name: *const c_char, found: *mut *mut c_void, version: i32, flags: cuuint64_t
    ) -> CUresult = cuGetProcAddress, |call| replaced(call(), (name, version, flags), found);
    get_proc_address(
        name: *const c_char, found: *mut *mut c_void, version: i32, flags: cuuint64_t,
        status: *mut CUdriverProcAddressQueryResult
    ) -> CUresult = cuGetProcAddress_v2, |call| replaced(call(), (name, version, flags), found);
}

/// Replaces the address that the driver has found, if its `result` is a success.
fn replaced(
    result: CUresult,
    (name, version, flags): (*const c_char, i32, cuuint64_t),
    found: *mut *mut c_void,
) -> CUresult {
    if result != CUDA_SUCCESS || found.is_null() || name.is_null() {
        return result;
    }
    // SAFETY: the driver has just written here.
    let address = unsafe { *found } as usize;
    if address == 0 {
        return result;
    }
    let wrapper = wrapper_of(address).or_else(|| {
        // SAFETY: the driver has just read it as a C string.
        let name = unsafe { CStr::from_ptr(name) };
        by_version(name.to_str().ok()?, version, flags)
    });
    if let Some(wrapper) = wrapper {
        // SAFETY: as above.
        unsafe { *found = wrapper as *mut c_void };
    }
    result
}

/// The wrapper for the form of `name` that the header assigns to this version, if it is hooked.
#[cold]
fn by_version(name: &str, version: i32, flags: cuuint64_t) -> Option<usize> {
    let per_thread = flags & cuuint64_t::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    let symbol = driver_sys::form_of(name, version, per_thread)?;
    HOOKS.iter().find(|hook| hook.symbol.name() == symbol).map(Hook::wrapper)
}
