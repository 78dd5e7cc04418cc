//! The pool of graph memory that each device has: what the allocation nodes of all graphs take.
//!
//! The first upload or launch of a graph takes the memory, and the pool keeps it for later launches
//! until it is trimmed. [`crate::graphs`] computes what a launch may take.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use driver_sys::cuda::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CUDA_SUCCESS, CUdevice, CUresult, cuuint64_t,
};
use vgpu_driver::guard::lock;
use vgpu_driver::real;

use crate::cards::{self, MAX_DEVICES};
use crate::current::limited;
use crate::limited::{Card, Limited};
use crate::reported::{Charge, Reported};

/// Whether graph memory was ever charged.
pub(crate) static ANY_CHARGED: AtomicBool = AtomicBool::new(false);

static POOLS: [Mutex<GraphPool>; MAX_DEVICES] = [const { Mutex::new(GraphPool::NEW) }; MAX_DEVICES];

/// The graph memory of a device.
pub(crate) struct GraphPool {
    pub charge: Charge,
    /// By how much launches in progress may let it grow.
    pub growth: u64,
    /// The most bytes that the pool can have when these launches have ended. The bytes that such a
    /// launch has already taken are counted once.
    pub most: u64,
    /// The sum of the needs of all graphs whose memory came into the pool. The pool has less if it
    /// has returned memory to the card, or if graphs share memory.
    pub resident: u64,
    /// Increased when the pool is empty.
    pub epoch: u32,
}

impl GraphPool {
    const NEW: Self = Self { charge: Charge::NONE, growth: 0, most: 0, resident: 0, epoch: 1 };

    /// The most bytes that the pool can have when the launches in progress have ended, if it has
    /// `reserved` bytes now.
    pub fn most(&self, reserved: u64) -> u64 {
        self.most.clamp(reserved, reserved + self.growth)
    }

    /// Sets the charge to what the driver reports, and to what launches in progress may add. Memory
    /// that the driver has already taken is charged beyond the limit, too.
    pub fn follow(&mut self, limited: &Limited, card: &Card) {
        let Some(reserved) = Reserved(card.device).reserved() else { return };
        if reserved == 0 {
            self.epoch = self.epoch.wrapping_add(1).max(1);
            self.resident = 0;
        }
        self.most = self.most(reserved);
        self.charge.set_taken(limited, card, self.most);
    }
}

/// The graph memory of a device, as the driver reports it.
pub(crate) struct Reserved(pub CUdevice);

impl Reported for Reserved {
    fn reserved(&self) -> Option<u64> {
        let mut bytes: cuuint64_t = 0;
        let attribute = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        // SAFETY: a local variable of the attribute's width.
        let result = unsafe {
            real::cuDeviceGetGraphMemAttribute(self.0, attribute, (&raw mut bytes).cast())
        };
        (result == CUDA_SUCCESS).then_some(bytes)
    }

    fn trim(&self) {
        // SAFETY: no pointer.
        unsafe { real::cuDeviceGraphMemTrim(self.0) };
    }
}

/// Whether graphs may hold memory. Most programs have none, and pay only for this load.
#[inline]
pub fn any_charged() -> bool {
    ANY_CHARGED.load(Ordering::Relaxed)
}

pub(crate) fn pool_of(device: CUdevice) -> Option<&'static Mutex<GraphPool>> {
    POOLS.get(usize::try_from(device).ok()?)
}

/// The program returns to a card the graph memory that no graph uses; `call` calls the driver.
pub fn trim(device: CUdevice, call: impl FnOnce() -> CUresult) -> CUresult {
    let charged = limited().filter(|_| any_charged()).and_then(|limited| {
        Some((limited, cards::of_device(limited, device)?, lock(pool_of(device)?)))
    });
    let Some((limited, card, mut pool)) = charged else { return call() };
    let result = call();
    pool.follow(limited, card);
    result
}

/// The primary context of a device has ended, and its graph memory with it.
pub fn device_reset(limited: &Limited, device: CUdevice) {
    let (Some(pool), Some(card)) = (pool_of(device), cards::of_device(limited, device)) else {
        return;
    };
    lock(pool).follow(limited, card);
}

/// Returns to a card the graph memory that no graph uses, unless another thread launches a graph.
/// Only before a refusal, because the next launch has to take it again.
pub(crate) fn trim_if_idle(limited: &Limited, card: &Card) {
    let Some(pool) = pool_of(card.device) else { return };
    let Ok(mut pool) = pool.try_lock() else { return };
    if pool.charge.bytes > 0 {
        Reserved(card.device).trim();
        pool.follow(limited, card);
    }
}
