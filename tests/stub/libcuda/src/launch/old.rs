//! The launch functions of CUDA 3: a function keeps its block, its shared memory and its
//! parameters, and a launch adds the grid.

use crate::Answer;
use crate::boundary::{Host, In};
use crate::capture::{hooks, take::LaunchOptions};
use crate::launch::{Shape, check, enqueue, launch};
use crate::module::{self, function};
use crate::process::driver;
use crate::stream::{self, NULL_STREAM, Queue};
use driver_sys::cuda::*;

/// The state of a function. A block without threads was never set and cannot be launched.
#[derive(Clone, Copy, Default)]
pub struct Kept {
    block: [u32; 3],
    shared: u32,
}

/// Sizes of a grid or block, which are signed in these functions.
fn sizes(sizes: [i32; 3]) -> Answer<[u32; 3]> {
    if sizes.iter().any(|size| *size <= 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(sizes.map(i32::cast_unsigned))
}

/// `cuFuncSetBlockShape`
pub fn set_block(function: CUfunction, x: i32, y: i32, z: i32) -> Answer {
    let found = function::find(driver()?, function)?;
    let block = sizes([x, y, z])?;
    found.keep(|kept| kept.block = block);
    Ok(())
}

/// `cuFuncSetSharedSize`
pub fn set_shared(function: CUfunction, bytes: u32) -> Answer {
    function::find(driver()?, function)?.keep(|kept| kept.shared = bytes);
    Ok(())
}

/// `cuParamSetSize`: does nothing, because no kernel reads parameters.
pub fn set_size(function: CUfunction, _bytes: u32) -> Answer {
    function::find(driver()?, function).map(drop)
}

/// `cuParamSeti`
pub fn set_integer(function: CUfunction, _offset: i32, _value: u32) -> Answer {
    function::find(driver()?, function).map(drop)
}

/// `cuParamSetf`
pub fn set_float(function: CUfunction, _offset: i32, _value: f32) -> Answer {
    function::find(driver()?, function).map(drop)
}

/// `cuParamSetv`
pub fn set_bytes(function: CUfunction, _offset: i32, bytes: Host, _count: u32) -> Answer {
    function::find(driver()?, function)?;
    if bytes.0 == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// `cuLaunch`: a grid of one block.
pub fn one(function: CUfunction) -> Answer {
    grid(function, 1, 1)
}

/// `cuLaunchGrid`
pub fn grid(function: CUfunction, width: i32, height: i32) -> Answer {
    grid_async(function, width, height, NULL_STREAM)
}

/// `cuLaunchGridAsync`
pub fn grid_async(function: CUfunction, width: i32, height: i32, on: CUstream) -> Answer {
    let Kept { block, shared } = function::find(driver()?, function)?.kept();
    launch(
        function,
        &Shape { grid: sizes([width, height, 1])?, block, shared },
        on,
        &LaunchOptions::nothing(),
    )
}

/// `cuLaunchCooperativeKernelMultiDevice`: all or none, each on a stream of a different device.
pub fn cooperative_on_devices(list: In<CUDA_LAUNCH_PARAMS>, count: u32, flags: u32) -> Answer {
    let driver = driver()?;
    let is_too_many = count as usize > driver.devices.len();
    if count == 0 || is_too_many || flags & !0x3 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut launches: Vec<(Queue, _)> = Vec::new();
    for index in 0..count as usize {
        let launch = list.get_at(index)?;
        let (_, queue) = stream::resolve(launch.hStream)?;
        let card = queue.context().0.card();
        let is_taken = launches.iter().any(|(other, _)| other.context().0.card() == card);
        if !stream::is_made(launch.hStream) || is_taken {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let shape = Shape {
            grid: [launch.gridDimX, launch.gridDimY, launch.gridDimZ],
            block: [launch.blockDimX, launch.blockDimY, launch.blockDimZ],
            shared: launch.sharedMemBytes,
        };
        // A node cannot have several kernels.
        hooks::refuse(driver, queue)?;
        let kernel = check(driver, launch.function, &shape)?;
        module::load_kernel(driver, kernel.function, queue.context().0)?;
        kernel.function.take_local(driver, queue.context().0)?;
        launches.push((queue, kernel));
    }
    for (queue, kernel) in &launches {
        enqueue(driver, *queue, kernel);
    }
    Ok(())
}
