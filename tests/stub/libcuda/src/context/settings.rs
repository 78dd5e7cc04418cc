//! The settings of a context, which do nothing here.

use super::current;
use crate::Answer;
use crate::boundary::Out;
use driver_sys::cuda::CUfunc_cache;

/// `cuCtxSetCacheConfig`
pub fn set_cache_config(_config: CUfunc_cache) -> Answer {
    current().map(drop)
}

/// `cuCtxGetStreamPriorityRange`
pub fn stream_priority_range(least: Out<i32>, greatest: Out<i32>) -> Answer {
    current()?;
    least.put_optional(0);
    greatest.put_optional(-5);
    Ok(())
}
