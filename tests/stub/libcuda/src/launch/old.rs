//! The launch functions of CUDA 3: a function keeps its block, and a launch adds the grid.

use crate::Answer;
use crate::boundary::In;
use crate::capture::hooks;
use crate::launch::{Shape, check, enqueue, launch};
use crate::module::{self, function};
use crate::process::driver;
use crate::stream::{self, NULL_STREAM, Queue};
use driver_sys::cuda::*;

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
    found.set_block(block);
    Ok(())
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
    let block = function::find(driver()?, function)?.block();
    launch(function, &Shape { grid: sizes([width, height, 1])?, block, shared: 0 }, on)
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
