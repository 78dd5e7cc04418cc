//! Launches: a kernel computes nothing and only takes time on the engine.
//!
//! Benchmarks measure hooks on this path in single nanoseconds. So without durations and counters a
//! launch is only a few checks.

pub mod old;

use crate::Answer;
use crate::boundary::is_counting;
use crate::boundary::{Host, In};
use crate::capture::take;
use crate::context::{Context, current};
use crate::module::{
    self,
    function::{self, Function},
};
use crate::process::Driver;
use crate::stream::work::{self, Lane, Mark, Work};
use crate::stream::{self, Queue};
use driver_sys::cuda::*;
use std::sync::atomic::Ordering;
use stub_engine::time::FULL;

/// The extent of a launch.
#[derive(Clone, Copy)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

/// A launch that has been checked.
#[derive(Clone, Copy)]
pub struct Kernel {
    pub function: &'static Function,
    /// Nanoseconds that it takes; 0: none.
    pub ns: u64,
    pub grid: [u32; 3],
}

/// The blocks of a grid.
pub fn blocks(grid: &[u32; 3]) -> u64 {
    grid.iter().fold(1, |blocks: u64, size| blocks.saturating_mul((*size).into()))
}

/// Checks a launch, with the durations of now.
#[inline]
pub fn check(driver: &'static Driver, function: CUfunction, shape: &Shape) -> Answer<Kernel> {
    let function = function::find(driver, function)?;
    let threads = shape.block.iter().map(|size| u64::from(*size)).product::<u64>();
    if shape.grid.contains(&0) || threads == 0 || threads > 1024 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let allowed = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
    if i64::from(shape.shared) > i64::from(allowed) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Kernel { function, ns: function.duration(driver, &shape.grid), grid: shape.grid })
}

impl Kernel {
    /// Whether the launch has any visible effect.
    #[inline]
    fn shows(&self) -> bool {
        self.ns > 0 || is_counting()
    }

    /// The engine's work. It takes `most` multiprocessors at most.
    fn work(&self, driver: &Driver, card: usize, most: u32) -> Work {
        let profile = &driver.engine.cards()[card].profile;
        let sm_count = u64::from(profile.sm_count.max(1));
        // A block takes one multiprocessor: a grid with as many blocks fills the card.
        let blocks = blocks(&self.grid);
        let taken = blocks.min(u64::from(most)).min(sm_count);
        let demand = taken * u64::from(FULL) / sm_count;
        // The duration is that on a whole card. A MIG device does the same blocks with fewer
        // multiprocessors.
        let at_once = blocks.min(u64::from(profile.card_sm_count)).max(sm_count);
        let ns = self.ns.saturating_mul(at_once) / sm_count;
        Work::Kernel { name: self.function.number(driver), ns, demand: demand as u32 }
    }
}

fn count(driver: &Driver, card: usize) {
    driver.counters.kernels[card].fetch_add(1, Ordering::Relaxed);
}

/// Submits a checked launch. One that takes no time does not change the stream.
pub fn enqueue(driver: &Driver, queue: Queue, kernel: &Kernel) {
    let card = queue.context().0.card();
    if kernel.shows() {
        count(driver, card);
    }
    if kernel.ns > 0 {
        queue.submit(driver, kernel.work(driver, card, queue.sms()));
    }
}

/// The same in a lane of a graph. Returns its mark; without a duration it has none.
pub fn enqueue_in(driver: &Driver, context: &Context, lane: &Lane, kernel: &Kernel) -> Mark {
    if kernel.shows() {
        count(driver, context.card());
    }
    if kernel.ns == 0 {
        return Mark::NONE;
    }
    work::submit(driver, context, lane, kernel.work(driver, context.card(), u32::MAX))
}

/// The host's part in a collective of streams, in the current context.
pub fn arrive(function: CUfunction) -> Answer {
    let (driver, context, _) = current()?;
    let kernel = check(driver, function, &Shape { grid: [1; 3], block: [1; 3], shared: 0 })?;
    enqueue_in(driver, context, &context.host, &kernel);
    Ok(())
}

/// Checks a launch and submits it. All launches of a program come through here.
pub fn launch(function: CUfunction, shape: &Shape, on: CUstream) -> Answer {
    let (driver, _) = stream::resolve(on)?;
    let kernel = check(driver, function, shape)?;
    if driver.charges_modules {
        load(kernel.function, on)?;
    }
    if !driver.captures.is_idle() && take::kernel(on, function, shape)? {
        return Ok(());
    }
    if driver.charges_modules {
        take_local(kernel.function, on)?;
    }
    if kernel.shows() { launch_shown(&kernel, on) } else { Ok(()) }
}

/// The first launch of a kernel takes its local memory. Not inlined, as below.
#[cold]
fn take_local(function: &Function, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    function.take_local(driver, queue.context().0)
}

/// The first launch of a library's kernel in a context loads the library there. Not inlined, as
/// below.
#[cold]
fn load(function: &Function, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    module::load_kernel(driver, function, queue.context().0)
}

/// Not inlined, and with the stream's handle, so that a launch without visible effect keeps nothing
/// on its stack.
#[inline(never)]
fn launch_shown(kernel: &Kernel, on: CUstream) -> Answer {
    let (driver, queue) = stream::resolve(on)?;
    enqueue(driver, queue, kernel);
    if driver.is_launch_blocking {
        queue.wait(driver);
    }
    Ok(())
}

/// The error for arguments in both forms.
#[cold]
fn refuse_both() -> CUresult {
    crate::context::current().err().unwrap_or(CUDA_ERROR_INVALID_VALUE)
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
        return Err(refuse_both());
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
