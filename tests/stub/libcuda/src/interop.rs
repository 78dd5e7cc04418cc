//! What a driver exports beside cuda.h: the profiler's functions and those that share memory with
//! OpenGL, EGL and VDPAU.
//!
//! There is no profiler and no graphics: to start and stop the one succeeds, the others are not
//! supported. No argument is looked at, so none is declared.

use crate::context::current;
use driver_sys::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult};

/// The answer of the function of this name.
fn answer(name: &str) -> CUresult {
    match current() {
        Ok(_) if name.starts_with("cuProfilerSt") => CUDA_SUCCESS,
        Ok(_) => CUDA_ERROR_NOT_SUPPORTED,
        Err(error) => error,
    }
}

macro_rules! exports {
    ($($name:ident)*) => { $(
        #[doc = concat!("`", stringify!($name), "`")]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name() -> CUresult {
            answer(stringify!($name))
        }
    )* };
}

stub_engine::each_interop_fn!(exports);
