//! A context's limits, and the memory that the driver takes for them.
//!
//! A context has stacks, a heap and a printf buffer of the default sizes from the start, as part of
//! its own bytes. If the card's profile says so, a raised limit takes the difference. A stack exists
//! for each thread that the card can run at once. The first launch of a kernel with more local memory
//! than the stack limit raises that limit, as measured on an H100 and an H200.

use super::{Context, current};
use crate::boundary::Out;
use crate::process::{Driver, lock};
use crate::{Answer, memory};
use driver_sys::cuda::*;
use std::sync::Mutex;
use stub_engine::ledger::Kind;
use stub_engine::profile::Profile;

type Values = [u64; CU_LIMIT_MAX as usize];

/// Stack size, printf buffer, malloc heap, sync depth, pending launches, L2 fetch granularity.
const DEFAULTS: Values = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0, 0, 0];

/// The limits of a context.
#[derive(Default)]
pub struct Limits(Mutex<State>);

#[derive(Default)]
struct State {
    values: Values,
    /// Bytes that are charged for them.
    taken: u64,
}

/// Bytes of the card that these limits take beyond the defaults.
fn bytes(profile: &Profile, values: &Values) -> u64 {
    if !profile.limits_take_memory {
        return 0;
    }
    let more = |limit: CUlimit| values[limit as usize].saturating_sub(DEFAULTS[limit as usize]);
    let threads = profile.attributes.get("max_threads_per_multiprocessor").copied().unwrap_or(0);
    let threads = u64::from(profile.sm_count) * u64::from(threads.unsigned_abs());
    more(CU_LIMIT_STACK_SIZE)
        .saturating_mul(threads)
        .saturating_add(more(CU_LIMIT_PRINTF_FIFO_SIZE))
        .saturating_add(more(CU_LIMIT_MALLOC_HEAP_SIZE))
}

impl Limits {
    /// Sets the defaults, for a new context.
    pub fn reset(&self) {
        *lock(&self.0) = State { values: DEFAULTS, taken: 0 };
    }

    /// Releases the memory of a context that has ended.
    pub fn end(&self, driver: &Driver, card: usize) {
        let taken = std::mem::take(&mut lock(&self.0).taken);
        if taken > 0 {
            driver.engine.release(card, Kind::Local, taken);
        }
    }

    /// A kernel with so much local memory is launched.
    pub fn launched(&self, driver: &Driver, context: &Context, local: u64) -> Answer {
        let takes_memory = driver.engine.cards()[context.card()].profile.limits_take_memory;
        if !takes_memory || local <= self.get(CU_LIMIT_STACK_SIZE)? {
            return Ok(());
        }
        self.set(driver, context, CU_LIMIT_STACK_SIZE, local)
    }

    fn get(&self, limit: CUlimit) -> Answer<u64> {
        let state = lock(&self.0);
        state.values.get(limit as usize).copied().ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    /// Sets a limit, if there is room for it.
    fn set(&self, driver: &Driver, context: &Context, limit: CUlimit, value: u64) -> Answer {
        let mut state = lock(&self.0);
        let mut values = state.values;
        *values.get_mut(limit as usize).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)? = value;
        if !context.is_active() {
            // Under the lock: a context that ends later releases what is charged here.
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        let card = context.card();
        let needed = bytes(&driver.engine.cards()[card].profile, &values);
        if needed > state.taken {
            let more = needed - state.taken;
            driver.engine.charge(card, Kind::Local, more).map_err(memory::refused)?;
        } else if needed < state.taken {
            driver.engine.release(card, Kind::Local, state.taken - needed);
        }
        *state = State { values, taken: needed };
        Ok(())
    }
}

/// `cuCtxGetLimit`
pub fn get(value: Out<usize>, limit: CUlimit) -> Answer {
    let (_, context, _) = current()?;
    value.put(context.limits.get(limit)? as usize)
}

/// `cuCtxSetLimit`
pub fn set(limit: CUlimit, value: usize) -> Answer {
    let (driver, context, _) = current()?;
    context.limits.set(driver, context, limit, value as u64)
}
