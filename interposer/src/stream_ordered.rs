//! Stream-ordered memory: allocated from pools, freed when the stream gets there.
//!
//! What is charged is the pool's business, see [`crate::pools`]. While a stream is being captured
//! nothing is allocated or freed: the calls become nodes of a graph.

use driver_sys::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUresult,
    CUstream,
};

use crate::allocations::Full;
use crate::init;
use crate::memory;
use crate::pools::{self, Pool};
use crate::slice::{self, Slice};
use crate::table::real;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocAsync(pointer, bytes, stream) };
    allocate(Form::Plain, pointer, bytes, stream, None, driver)
}

pub(crate) unsafe fn alloc_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocAsync_ptsz(pointer, bytes, stream) };
    allocate(Form::PerThread, pointer, bytes, stream, None, driver)
}

pub(crate) unsafe fn alloc_from_pool(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream) };
    allocate(Form::Plain, pointer, bytes, stream, Some(pool), driver)
}

pub(crate) unsafe fn alloc_from_pool_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream) };
    allocate(Form::PerThread, pointer, bytes, stream, Some(pool), driver)
}

pub(crate) unsafe fn free(pointer: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    release(Form::Plain, pointer, stream, || unsafe { real::cuMemFreeAsync(pointer, stream) })
}

pub(crate) unsafe fn free_ptsz(pointer: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    release(Form::PerThread, pointer, stream, || unsafe {
        real::cuMemFreeAsync_ptsz(pointer, stream)
    })
}

pub(crate) unsafe fn pool_create(
    pool: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemPoolCreate(pool, props) };
    let Slice::Limited(_) = slice::current() else { return driver() };
    // SAFETY: not null; the program passes what the header says.
    let Some(props) = (unsafe { props.as_ref() }) else { return driver() };
    if init::inherited() || props.location.r#type != CU_MEM_LOCATION_TYPE_DEVICE {
        return driver();
    }
    // SAFETY: every form of the union is a number.
    let device = unsafe { props.location.unnamed1.id };
    let entered = pools::enter(|| match driver() {
        // SAFETY: the driver has just written it.
        CUDA_SUCCESS => Ok((unsafe { *pool }, device)),
        error => Err(error),
    });
    match entered {
        Ok(Ok(_)) => CUDA_SUCCESS,
        Ok(Err(Full)) => {
            // SAFETY: the driver has just made it, and nobody else has seen it.
            unsafe { real::cuMemPoolDestroy(*pool) };
            CUDA_ERROR_OUT_OF_MEMORY
        }
        Err(error) => error,
    }
}

pub(crate) unsafe fn pool_destroy(pool: CUmemoryPool) -> CUresult {
    // SAFETY: the program's own argument.
    let driver = || unsafe { real::cuMemPoolDestroy(pool) };
    match (slice::current(), init::inherited(), pools::known_as(pool)) {
        (Slice::Limited(limited), false, Some(known)) => known.destroy(limited, driver),
        _ => driver(),
    }
}

pub(crate) unsafe fn pool_trim(pool: CUmemoryPool, keep: usize) -> CUresult {
    // SAFETY: the program's own arguments.
    let result = unsafe { real::cuMemPoolTrimTo(pool, keep) };
    if let (Slice::Limited(limited), false, Some(known)) =
        (slice::current(), init::inherited(), pools::known_as(pool))
    {
        known.refresh(limited);
    }
    result
}

/// The two forms of the calls that name a stream: they differ in what the null stream is.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    PerThread,
}

impl Form {
    fn is_capturing(self, stream: CUstream) -> bool {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a handle that the driver checks, and a local variable.
        let result = unsafe {
            match self {
                Self::Plain => real::cuStreamIsCapturing(stream, &raw mut status),
                Self::PerThread => real::cuStreamIsCapturing_ptsz(stream, &raw mut status),
            }
        };
        result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE
    }
}

fn allocate(
    form: Form,
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    pool: Option<CUmemoryPool>,
    driver: impl FnOnce() -> CUresult,
) -> CUresult {
    let limited = match slice::current() {
        Slice::Open => return driver(),
        Slice::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        Slice::Limited(limited) => limited,
    };
    // What the driver refuses by itself it refuses with us.
    if pointer.is_null() || bytes == 0 || init::inherited() || form.is_capturing(stream) {
        return driver();
    }
    let Some(pool) = pool.or_else(|| pool_of(stream)) else { return driver() };
    let pool: &'static Pool = match pools::find(pool) {
        Ok(Some(pool)) => pool,
        // Of host memory, or no pool at all.
        Ok(None) => return driver(),
        Err(Full) => return CUDA_ERROR_OUT_OF_MEMORY,
    };
    // SAFETY: not null, and the program's own place for a pointer.
    let before = unsafe { *pointer };
    // SAFETY: read only after the driver has written it.
    let got = || unsafe { *pointer };
    // As where the driver itself refuses, the program finds what it had there.
    // SAFETY: as above.
    let undo = || unsafe { *pointer = before };
    pool.allocate(limited, bytes as u64, driver, got, undo)
}

fn release(
    form: Form,
    pointer: CUdeviceptr,
    stream: CUstream,
    driver: impl FnOnce() -> CUresult,
) -> CUresult {
    if matches!(slice::current(), Slice::Limited(_))
        && !init::inherited()
        && form.is_capturing(stream)
    {
        return driver();
    }
    memory::uncharged(pointer, driver)
}

/// The pool that a stream's allocations come from: the current one of its device.
fn pool_of(stream: CUstream) -> Option<CUmemoryPool> {
    let device = device_of(stream)?;
    let mut pool: CUmemoryPool = std::ptr::null_mut();
    // SAFETY: a local variable.
    let result = unsafe { real::cuDeviceGetMemPool(&raw mut pool, device) };
    (result == CUDA_SUCCESS).then_some(pool)
}

/// The device of a stream: its context's, which need not be this thread's; a thread without one may
/// name a stream all the same.
fn device_of(stream: CUstream) -> Option<CUdevice> {
    let current = memory::current();
    let mut own: CUcontext = std::ptr::null_mut();
    // SAFETY: a handle that the driver checks, and a local variable.
    let result = unsafe { real::cuStreamGetCtx(stream, &raw mut own) };
    let is_elsewhere = current.is_none_or(|(_, context)| context != own);
    if result != CUDA_SUCCESS || !is_elsewhere {
        return current.map(|(device, _)| device);
    }
    // SAFETY: the stream's context; what is pushed here is popped here.
    unsafe {
        if real::cuCtxPushCurrent_v2(own) != CUDA_SUCCESS {
            return None;
        }
        let there = memory::current();
        real::cuCtxPopCurrent_v2(&raw mut own);
        there.map(|(device, _)| device)
    }
}
