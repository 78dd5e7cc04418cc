//! Contexts, and every thread's stack of them.
//!
//! A context takes memory of its card and owns everything that is created in it: its allocations,
//! streams, events and modules end with it.

pub mod green;
pub mod limits;
pub mod primary;
pub mod resources;
pub mod settings;

use crate::Answer;
use crate::boundary::{In, Out};
use crate::capture::hooks;
use crate::context::limits::Limits;
use crate::memory::pool;
use crate::process::{Driver, driver, handle};
use crate::stream::work::{self, Backlog, Lane};
use driver_sys::cuda::*;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use stub_engine::ledger::Kind;

/// The number of per-thread default streams of a context. More threads share them.
const THREAD_STREAMS: usize = 64;

/// A context. All fields are set again when its slot is reused.
pub struct Context {
    /// Device ordinal.
    pub device: AtomicI32,
    /// The engine's card.
    pub card: AtomicUsize,
    /// Index in the slab: the owner number of its allocations.
    pub index: AtomicU32,
    pub id: AtomicU64,
    pub is_primary: AtomicBool,
    /// The green context that this entry stands for; 0 for a context.
    pub green: AtomicUsize,
    /// A primary context also exists while it is not active.
    is_active: AtomicBool,
    attached: AtomicU32,
    pub limits: Limits,
    /// The default stream.
    pub legacy: Lane,
    /// The per-thread default streams.
    pub threads: [Lane; THREAD_STREAMS],
    /// The host's part in collectives (`stub_arrive`).
    pub host: Lane,
    /// The pending work of all its streams.
    pub backlog: Backlog,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            device: AtomicI32::new(0),
            card: AtomicUsize::new(0),
            index: AtomicU32::new(0),
            id: AtomicU64::new(0),
            is_primary: AtomicBool::new(false),
            green: AtomicUsize::new(0),
            is_active: AtomicBool::new(false),
            attached: AtomicU32::new(0),
            limits: Limits::default(),
            legacy: Lane::default(),
            threads: std::array::from_fn(|_| Lane::default()),
            host: Lane::default(),
            backlog: Backlog::default(),
        }
    }
}

thread_local! {
    /// The top of this thread's stack; 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The stack below the top.
    static BELOW: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The driver, the current context of this thread, and its handle; an error if its card is lost.
#[inline]
pub fn current() -> Answer<(&'static Driver, &'static Context, usize)> {
    let driver = driver()?;
    let top = CURRENT.get();
    if top == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = driver.contexts.get(top).filter(|context| context.is_active());
    let Some(context) = context else { return green::stand_in(driver, top) };
    driver.check_lost(context.card())?;
    Ok((driver, context, top))
}

/// Whether a green context is current, which has this primary context.
#[inline]
pub fn is_green(own_handle: usize) -> bool {
    CURRENT.get() != own_handle
}

/// The context of a handle; NULL means the current one.
pub fn named(context: CUcontext) -> Answer<(&'static Driver, &'static Context, usize)> {
    if context.is_null() {
        return current();
    }
    let driver = driver()?;
    let found = driver.contexts.get(context as usize).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if found.is_stand_in() {
        return green::stand_in(driver, context as usize);
    }
    driver.check_lost(found.card())?;
    Ok((driver, found, context as usize))
}

impl Context {
    pub fn card(&self) -> usize {
        self.card.load(Ordering::Relaxed)
    }

    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    pub fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }

    /// Whether this entry is no context, but stands for one.
    fn is_stand_in(&self) -> bool {
        self.green.load(Ordering::Relaxed) != 0
    }

    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Prepares a slot for a context on a device. It is not active yet.
    pub fn set(&self, driver: &Driver, device: CUdevice, is_primary: bool) {
        self.device.store(device, Ordering::Relaxed);
        self.card.store(driver.devices[device as usize], Ordering::Relaxed);
        self.id.store(driver.new_id(), Ordering::Relaxed);
        self.is_primary.store(is_primary, Ordering::Relaxed);
        self.green.store(0, Ordering::Relaxed);
        self.attached.store(1, Ordering::Relaxed);
    }

    /// Charges the context's memory and makes it active.
    pub fn activate(&self, driver: &Driver) -> Answer {
        driver.check_lost(self.card())?;
        let bytes = driver.engine.cards()[self.card()].profile.context_bytes;
        driver.engine.charge(self.card(), Kind::Context, bytes).map_err(crate::memory::refused)?;
        self.limits.reset();
        self.is_active.store(true, Ordering::Release);
        Ok(())
    }

    /// Destroys everything that was created in the context and releases its memory.
    pub fn deactivate(&self, driver: &Driver, own_handle: usize) {
        if !self.is_active.swap(false, Ordering::AcqRel) {
            return;
        }
        work::wait_for_all(driver, self);
        crate::memory::array::destroy_all(driver, own_handle);
        crate::memory::free_all(driver, self);
        crate::stream::destroy_all(driver, self, own_handle);
        hooks::forget_context(driver, own_handle);
        crate::graph::exec::leave_all(driver, self, own_handle);
        crate::stream::event::destroy_all(driver, own_handle);
        crate::module::unload_all(driver, self, own_handle);
        crate::memory::texture::destroy_all(driver, own_handle);
        work::end_all(driver, self);
        self.limits.end(driver, self.card());
        let bytes = driver.engine.cards()[self.card()].profile.context_bytes;
        driver.engine.release(self.card(), Kind::Context, bytes);
    }
}

/// Refuses flags that select two ways of waiting.
pub fn check_flags(flags: u32) -> Answer {
    let ways = (flags & CU_CTX_SCHED_MASK).count_ones();
    if ways > 1 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// `cuCtxCreate`, `cuCtxCreate_v2`
pub fn create(context: Out<CUcontext>, flags: u32, device: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    check_flags(flags)?;
    if context.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let created = insert(driver, device, false)?;
    let made = driver.contexts.get(created).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = made.activate(driver) {
        driver.contexts.remove(created);
        return Err(error);
    }
    push_handle(created);
    context.put(handle(created))
}

/// A context that is not active yet.
pub fn insert(driver: &Driver, device: CUdevice, is_primary: bool) -> Answer<usize> {
    let created = driver
        .contexts
        .insert(|context, own_handle| {
            context.set(driver, device, is_primary);
            let index = driver.contexts.index(own_handle).unwrap_or_default();
            context.index.store(index as u32, Ordering::Relaxed);
        })
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(created)
}

/// `cuCtxCreate_v3`
pub fn create_v3(
    context: Out<CUcontext>,
    _affinities: In<CUexecAffinityParam>,
    affinity_count: i32,
    flags: u32,
    device: CUdevice,
) -> Answer {
    driver()?;
    if affinity_count != 0 {
        return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    create(context, flags, device)
}

/// `cuCtxCreate_v4`
pub fn create_v4(
    context: Out<CUcontext>,
    parameters: In<CUctxCreateParams>,
    flags: u32,
    device: CUdevice,
) -> Answer {
    driver()?;
    if let Ok(parameters) = parameters.get()
        && (parameters.numExecAffinityParams != 0 || !parameters.cigParams.is_null())
    {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    create(context, flags, device)
}

/// `cuCtxDestroy`
pub fn destroy(context: CUcontext) -> Answer {
    let driver = driver()?;
    let found = driver.contexts.get(context as usize).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if found.is_primary.load(Ordering::Relaxed) || found.is_stand_in() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    found.deactivate(driver, context as usize);
    driver.contexts.remove(context as usize);
    if CURRENT.get() == context as usize {
        pop_handle();
    }
    Ok(())
}

/// `cuCtxAttach`
pub fn attach(context: Out<CUcontext>, flags: u32) -> Answer {
    let (_, found, top) = current()?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    context.put(handle(top))?;
    found.attached.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// `cuCtxDetach`
pub fn detach(context: CUcontext) -> Answer {
    let (_, found, top) = current()?;
    if context as usize != top {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if found.attached.fetch_sub(1, Ordering::Relaxed) > 1 { Ok(()) } else { destroy(context) }
}

fn push_handle(context: usize) {
    let below = CURRENT.replace(context);
    if below != 0 {
        // The stack of a thread that ends is already destroyed.
        let _ = BELOW.try_with(|stack| stack.borrow_mut().push(below));
    }
}

fn pop_handle() {
    let below = BELOW.try_with(|stack| stack.borrow_mut().pop()).ok().flatten();
    CURRENT.set(below.unwrap_or(0));
}

/// `cuCtxPushCurrent`
pub fn push(context: CUcontext) -> Answer {
    let driver = driver()?;
    if context.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    driver.contexts.get(context as usize).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    push_handle(context as usize);
    Ok(())
}

/// `cuCtxPopCurrent`
pub fn pop(context: Out<CUcontext>) -> Answer {
    driver()?;
    let top = CURRENT.get();
    if top == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    context.put_optional(handle(top));
    pop_handle();
    Ok(())
}

/// `cuCtxSetCurrent`
pub fn set_current(context: CUcontext) -> Answer {
    let driver = driver()?;
    if context.is_null() {
        pop_handle();
        return Ok(());
    }
    driver.contexts.get(context as usize).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    CURRENT.set(context as usize);
    Ok(())
}

/// `cuCtxGetCurrent`
pub fn get_current(context: Out<CUcontext>) -> Answer {
    driver()?;
    context.put(handle(CURRENT.get()))
}

/// `cuCtxGetDevice`
pub fn get_device(device: Out<CUdevice>) -> Answer {
    device.put(current()?.1.device.load(Ordering::Relaxed))
}

/// `cuCtxGetApiVersion`
pub fn get_api_version(context: CUcontext, version: Out<u32>) -> Answer {
    named(context)?;
    version.put(3020)
}

/// `cuCtxSynchronize`
pub fn synchronize() -> Answer {
    let (driver, context, own_handle) = current()?;
    hooks::before_wait_for_context(driver, own_handle)?;
    work::wait_for_all(driver, context);
    pool::release_spare(driver);
    Ok(())
}

/// `cuCtxSynchronize_v2`
pub fn synchronize_of(context: CUcontext) -> Answer {
    let (driver, context, own_handle) = named(context)?;
    hooks::before_wait_for_context(driver, own_handle)?;
    work::wait_for_all(driver, context);
    pool::release_spare(driver);
    Ok(())
}
