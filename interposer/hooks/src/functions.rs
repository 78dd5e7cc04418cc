//! Handles of kernels: a program needs one before it can launch the kernel. So what the driver
//! takes for the kernel's local memory at its first launch is charged when the program gets the
//! handle.
//!
//! A kernel of a library is charged in the context that is current then, and again in each context
//! for which the program asks for its function. Functions that are enumerated are not charged: the
//! driver may not have loaded them yet.

use std::ffi::c_char;

use driver_sys::cuda::{
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CUDA_SUCCESS, CUfunction, CUkernel, CUlibrary, CUmodule,
    CUresult,
};
use vgpu_driver::context;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::context_limits::charge_local;

pub(crate) unsafe fn of_module(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> Outcome {
    // SAFETY: the program's own arguments; the driver has written the handle.
    unsafe {
        check(real::cuModuleGetFunction(function, module, name))?;
        charge_function(*function)
    }
}

pub(crate) unsafe fn of_kernel(function: *mut CUfunction, kernel: CUkernel) -> Outcome {
    // SAFETY: as above.
    unsafe {
        check(real::cuKernelGetFunction(function, kernel))?;
        charge_function(*function)
    }
}

pub(crate) unsafe fn of_library(
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    // SAFETY: as above.
    unsafe { check(real::cuLibraryGetKernel(kernel, library, name)) }?;
    let Some((device, _)) = context::current() else { return Ok(()) };
    charge(|bytes| unsafe {
        // SAFETY: as above, and a local variable.
        real::cuKernelGetAttribute(bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, *kernel, device)
    })
}

fn charge_function(function: CUfunction) -> Outcome {
    charge(|bytes| unsafe {
        // SAFETY: the driver's handle, and a local variable.
        real::cuFuncGetAttribute(bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function)
    })
}

/// `ask` asks the driver for a kernel's local memory.
fn charge(ask: impl FnOnce(*mut i32) -> CUresult) -> Outcome {
    let mut bytes = 0;
    if ask(&raw mut bytes) != CUDA_SUCCESS {
        return Ok(());
    }
    charge_local(u64::try_from(bytes).unwrap_or(0))
}
