//! A driver that checks every argument of a launch, and launches that reach it through the
//! wrappers.

use std::cell::{Cell, RefCell};
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use driver_sys::cuda::{CUDA_SUCCESS, CUfunction, CUlaunchConfig, CUresult, CUstream};
use vgpu_driver::symbols::{REAL, Symbol};

use crate::boundary::exports;

/// The arguments behind the grid, which must arrive unchanged.
const BLOCK: [c_uint; 3] = [0xb10c_0001, 0xb10c_0002, 0xb10c_0003];
const SHARED: c_uint = 0x5a5a_5a5a;
const PARAMETERS: *mut *mut c_void = 0x1111_2222_3333_4444_usize as *mut *mut c_void;
const EXTRA: *mut *mut c_void = 0x5555_6666_7777_8888_usize as *mut *mut c_void;

/// Function and grid.
pub(super) type Kind = (usize, [u32; 3]);

thread_local! {
    static ARRIVED: RefCell<Vec<(usize, Kind)>> = const { RefCell::new(Vec::new()) };
    static HAS_ALL: Cell<bool> = const { Cell::new(true) };
}

fn arrive(stream: CUstream, function: CUfunction, grid: [u32; 3]) -> CUresult {
    ARRIVED.with_borrow_mut(|all| all.push((stream as usize, (function as usize, grid))));
    CUDA_SUCCESS
}

#[allow(clippy::too_many_arguments)]
extern "C" fn launch_kernel(
    function: CUfunction,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let others = ([block_x, block_y, block_z], shared, parameters, extra);
    HAS_ALL.set(HAS_ALL.get() && others == (BLOCK, SHARED, PARAMETERS, EXTRA));
    arrive(stream, function, [x, y, z])
}

extern "C" fn launch_kernel_ex(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    HAS_ALL.set(HAS_ALL.get() && (parameters, extra) == (PARAMETERS, EXTRA));
    // SAFETY: null, or the configuration that the test has made.
    match unsafe { config.as_ref() } {
        Some(one) => arrive(one.hStream, function, [one.gridDimX, one.gridDimY, one.gridDimZ]),
        None => arrive(null_mut(), function, [0; 3]),
    }
}

/// The function that makes a launch.
#[derive(Clone, Copy)]
pub(super) enum By {
    Arguments,
    Config,
    /// The forms in which NULL means the thread's own stream.
    ArgumentsOfThread,
    ConfigOfThread,
}

/// Makes a launch. Returns the streams and kinds that have arrived at the driver; all other
/// arguments must be unchanged.
pub(super) fn launch(by: By, (function, grid): Kind, stream: usize) -> Vec<(usize, Kind)> {
    let [x, y, z] = grid;
    let (function, stream) = (function as CUfunction, stream as CUstream);
    let [block_x, block_y, block_z] = BLOCK;
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: SHARED,
        hStream: stream,
        attrs: null_mut(),
        numAttrs: 0,
    };
    let with_arguments = match by {
        By::ArgumentsOfThread => exports::cuLaunchKernel_ptsz,
        _ => exports::cuLaunchKernel,
    };
    let with_config = match by {
        By::ConfigOfThread => exports::cuLaunchKernelEx_ptsz,
        _ => exports::cuLaunchKernelEx,
    };
    // SAFETY: the driver of this file reads nothing but its arguments and this configuration.
    let result = unsafe {
        match by {
            By::Arguments | By::ArgumentsOfThread => with_arguments(
                function, x, y, z, block_x, block_y, block_z, SHARED, stream, PARAMETERS, EXTRA,
            ),
            By::Config | By::ConfigOfThread => {
                with_config(&raw const config, function, PARAMETERS, EXTRA)
            }
        }
    };
    assert_eq!(result, CUDA_SUCCESS);
    assert!(HAS_ALL.get(), "an argument was changed on the way");
    ARRIVED.take()
}

/// A launch without a configuration.
pub(super) fn launch_nothing() -> Vec<(usize, Kind)> {
    // SAFETY: the driver of this file reads no missing configuration.
    unsafe { exports::cuLaunchKernelEx(std::ptr::null(), null_mut(), PARAMETERS, EXTRA) };
    ARRIVED.take()
}

/// Makes this the driver behind the wrappers.
pub(super) fn install() {
    for (symbol, real) in [
        (Symbol::cuLaunchKernel, launch_kernel as *const () as usize),
        (Symbol::cuLaunchKernelEx, launch_kernel_ex as *const () as usize),
        (Symbol::cuLaunchKernel_ptsz, launch_kernel as *const () as usize),
        (Symbol::cuLaunchKernelEx_ptsz, launch_kernel_ex as *const () as usize),
    ] {
        #[allow(clippy::indexing_slicing)] // there is one per symbol
        REAL[symbol as usize].store(real, Ordering::Relaxed);
    }
}
