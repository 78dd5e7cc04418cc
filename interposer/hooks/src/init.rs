//! cuInit: refuses CUDA if the limits of the slice cannot be enforced, and makes the process a
//! member of its slice.

use driver_sys::cuda::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY, CUDA_SUCCESS, CUresult};
use vgpu_driver::report::Once;
use vgpu_driver::{process, real, symbols};
use vgpu_slice::{Slice, cards, current, numbers};

/// A program in a refused slice sees a machine without a GPU, and one line gives the reason.
pub(crate) unsafe fn init(flags: u32) -> CUresult {
    if let Slice::Refused(reason) = current() {
        report_refusal(reason);
        return CUDA_ERROR_NO_DEVICE;
    }
    cards::note_visible_devices();
    // SAFETY: the program's own argument.
    let result = match numbers::in_slice(|| unsafe { real::cuInit(flags) }) {
        Ok(result) => result,
        Err(reason) => {
            report_refusal(reason);
            return CUDA_ERROR_NO_DEVICE;
        }
    };
    if result == CUDA_ERROR_STUB_LIBRARY {
        symbols::leave_stub_library();
    }
    if result == CUDA_SUCCESS {
        symbols::keep_driver();
        process::note_initialised();
        if let Slice::Limited(limited) = current() {
            limited.join();
        }
    }
    result
}

/// Prints why there is no GPU, once for CUDA and NVML together.
pub(crate) fn report_refusal(reason: &str) {
    static REFUSAL: Once = Once::new();
    REFUSAL.line(reason);
}
