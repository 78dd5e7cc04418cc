//! Launches: nothing is computed, the stream's end moves on by the kernel's duration.
//!
//! Hooks on this path are measured in single nanoseconds, so without durations and without a count it
//! is a handful of checks.

use crate::Answer;
use crate::arguments::{Host, In};
use crate::boundary::is_counting;
use crate::function;
use crate::stream;
use driver_sys::cuda::*;

/// The extent of a launch.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

fn launch(function: CUfunction, shape: &Shape, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    let function = function::find(driver, function)?;
    let threads = shape.block.iter().map(|size| u64::from(*size)).product::<u64>();
    if shape.grid.contains(&0) || threads == 0 || threads > 1024 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let allowed = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
    if i64::from(shape.shared) > i64::from(allowed) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let duration = function.duration(driver);
    if duration > 0 || is_counting() {
        let done = if duration > 0 { queue.queue(driver, duration) } else { 0 };
        driver.counters.cards[queue.context().0.card()].launched(duration, done);
    }
    Ok(())
}

/// `cuLaunchKernel`
pub fn kernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    on: CUstream,
    parameters: Host,
    extra: Host,
) -> Answer {
    if parameters.0 != 0 && extra.0 != 0 {
        crate::context::current()?;
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let grid = [grid_x, grid_y, grid_z];
    launch(function, &Shape { grid, block: [block_x, block_y, block_z], shared }, on)
}

/// `cuLaunchCooperativeKernel`
pub fn cooperative(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    on: CUstream,
    _parameters: Host,
) -> Answer {
    let grid = [grid_x, grid_y, grid_z];
    launch(function, &Shape { grid, block: [block_x, block_y, block_z], shared }, on)
}

/// `cuLaunchKernelEx`
pub fn kernel_ex(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    parameters: Host,
    extra: Host,
) -> Answer {
    crate::process::driver()?;
    let config = config.get()?;
    if parameters.0 != 0 && extra.0 != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    };
    launch(function, &shape, config.hStream)
}
