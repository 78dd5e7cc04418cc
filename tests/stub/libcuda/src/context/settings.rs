//! The settings of a context: cache preferences, access to peers.

use super::{current, named};
use crate::Answer;
use crate::boundary::Out;
use driver_sys::cuda::*;
use std::sync::atomic::Ordering;

/// `cuCtxGetCacheConfig`
pub fn get_cache_config(config: Out<CUfunc_cache>) -> Answer {
    config.put(current()?.1.cache_config.load(Ordering::Relaxed))
}

/// `cuCtxSetCacheConfig`
pub fn set_cache_config(config: CUfunc_cache) -> Answer {
    current()?.1.cache_config.store(config, Ordering::Relaxed);
    Ok(())
}

/// `cuCtxGetSharedMemConfig`
pub fn get_shared_config(config: Out<CUsharedconfig>) -> Answer {
    config.put(current()?.1.shared_config.load(Ordering::Relaxed))
}

/// `cuCtxSetSharedMemConfig`
pub fn set_shared_config(config: CUsharedconfig) -> Answer {
    current()?.1.shared_config.store(config, Ordering::Relaxed);
    Ok(())
}

/// `cuCtxGetStreamPriorityRange`
pub fn stream_priority_range(least: Out<i32>, greatest: Out<i32>) -> Answer {
    current()?;
    least.put_optional(0);
    greatest.put_optional(-5);
    Ok(())
}

/// `cuCtxResetPersistingL2Cache`
pub fn reset_persisting_l2() -> Answer {
    current().map(drop)
}

/// `cuCtxEnablePeerAccess`
pub fn enable_peer(peer: CUcontext, flags: u32) -> Answer {
    current()?;
    named(peer)?;
    if flags == 0 { Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// `cuCtxDisablePeerAccess`
pub fn disable_peer(peer: CUcontext) -> Answer {
    current()?;
    named(peer)?;
    Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
}
