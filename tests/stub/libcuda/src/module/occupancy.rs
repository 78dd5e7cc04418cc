//! Occupancy: how many blocks fit on a multiprocessor, by the threads, registers and shared memory
//! of the card's profile.

use crate::Answer;
use crate::boundary::Out;
use crate::context::current;
use crate::device::attribute_of;
use crate::module::function::{self, Function};
use crate::process::Driver;
use driver_sys::cuda::*;

/// The resources of one multiprocessor.
struct Multiprocessor {
    threads: i32,
    blocks: i32,
    registers: i32,
    shared: i32,
    reserved_per_block: i32,
    count: i32,
}

fn of(driver: &'static Driver, card: usize) -> Answer<Multiprocessor> {
    let card = &driver.engine.cards()[card];
    let get = |attribute| attribute_of(card, attribute);
    Ok(Multiprocessor {
        threads: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        blocks: get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        registers: get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        shared: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        reserved_per_block: get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
        count: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

impl Multiprocessor {
    /// How many blocks of this size fit at once.
    fn blocks(&self, function: &Function, block: i32, dynamic: i64) -> Answer<i32> {
        let largest = function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        if block > largest {
            return Ok(0);
        }
        // Threads are allocated in warps of 32.
        let threads = (block + 31) / 32 * 32;
        let registers = threads * function.attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        let fixed = function.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let shared = i64::from(fixed) + dynamic + i64::from(self.reserved_per_block);
        let by_shared = if shared == 0 { i64::MAX } else { i64::from(self.shared) / shared };
        let others = (self.threads / threads).min(self.blocks).min(self.registers / registers);
        Ok(i64::from(others).min(by_shared) as i32)
    }
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessor`
pub fn active_blocks(blocks: Out<i32>, function: CUfunction, block: i32, dynamic: usize) -> Answer {
    let (driver, context, _) = current()?;
    let function = function::find(driver, function)?;
    if block <= 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let multiprocessor = of(driver, context.card())?;
    blocks.put(multiprocessor.blocks(function, block, dynamic as i64)?)
}

/// `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`
pub fn active_blocks_with_flags(
    blocks: Out<i32>,
    function: CUfunction,
    block: i32,
    dynamic: usize,
    _flags: u32,
) -> Answer {
    active_blocks(blocks, function, block, dynamic)
}

/// `cuOccupancyMaxPotentialBlockSize`
pub fn potential_block_size(
    grid: Out<i32>,
    block: Out<i32>,
    function: CUfunction,
    dynamic_by_block: CUoccupancyB2DSize,
    dynamic: usize,
    limit: i32,
) -> Answer {
    let (driver, context, _) = current()?;
    let function = function::find(driver, function)?;
    let multiprocessor = of(driver, context.card())?;
    let largest = function.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    let limit = if limit == 0 { largest } else { limit.min(largest) };
    let mut best = (0, 0, 0);
    for size in (1..=limit / 32).rev().map(|warps| warps * 32) {
        let dynamic = match dynamic_by_block {
            // SAFETY: the program's own function.
            Some(by_block) => unsafe { by_block(size) },
            None => dynamic,
        };
        let blocks = multiprocessor.blocks(function, size, dynamic as i64)?;
        if blocks * size > best.0 {
            best = (blocks * size, size, blocks);
        }
    }
    block.put(best.1)?;
    grid.put(best.2 * multiprocessor.count)
}

/// `cuOccupancyMaxPotentialBlockSizeWithFlags`
pub fn potential_block_size_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: CUfunction,
    dynamic_by_block: CUoccupancyB2DSize,
    dynamic: usize,
    limit: i32,
    _flags: u32,
) -> Answer {
    potential_block_size(grid, block, function, dynamic_by_block, dynamic, limit)
}
