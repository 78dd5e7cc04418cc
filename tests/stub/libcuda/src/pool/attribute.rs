//! What a pool can be asked and told.

use crate::Answer;
use crate::boundary::Out;
use crate::process::{driver, lock};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::sync::atomic::Ordering;

/// `cuMemPoolGetAttribute`
pub fn get(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    let found = driver()?.pools.find(pool)?;
    let book = lock(&found.book);
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value.cast().put(found.reuse[attribute as usize - 1].load(Ordering::Relaxed))
        }
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            value.cast().put(found.threshold.load(Ordering::Relaxed))
        }
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => value.cast().put(book.reserved.now),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => value.cast().put(book.reserved.peak),
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => value.cast().put(book.used.now),
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => value.cast().put(book.used.peak),
        CU_MEMPOOL_ATTR_ALLOCATION_TYPE => value.cast().put(CU_MEM_ALLOCATION_TYPE_PINNED),
        CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES => value.cast().put(CU_MEM_HANDLE_TYPE_NONE),
        CU_MEMPOOL_ATTR_LOCATION_ID => value.cast().put(found.ordinal.load(Ordering::Relaxed)),
        CU_MEMPOOL_ATTR_LOCATION_TYPE => value.cast().put(CU_MEM_LOCATION_TYPE_DEVICE),
        CU_MEMPOOL_ATTR_MAX_POOL_SIZE => value.cast().put(found.largest.load(Ordering::Relaxed)),
        CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED => value.cast().put(0i32),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuMemPoolSetAttribute`: the peaks can only be told to start again.
pub fn set(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    let driver = driver()?;
    let found = driver.pools.find(pool)?;
    let level = |book: &mut stub_engine::pool::Pool| match attribute {
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => book.reserved.forget_peak(),
        _ => book.used.forget_peak(),
    };
    match attribute {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let wish: i32 = value.cast().read()?;
            found.reuse[attribute as usize - 1].store(i32::from(wish != 0), Ordering::Relaxed);
        }
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            found.threshold.store(value.cast().read()?, Ordering::Relaxed);
            driver.pools.has_spare.store(true, Ordering::Release);
        }
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            if value.cast::<u64>().read()? != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            level(&mut lock(&found.book));
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
