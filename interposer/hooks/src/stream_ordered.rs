//! Stream-ordered memory: allocated from pools, freed when the stream reaches the free.
//!
//! [`pools`] decides what is charged. While a stream is being captured, nothing is allocated or
//! freed: the calls become nodes of a graph.

use driver_sys::cuda::{
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUmemPoolProps,
    CUmemoryPool, CUresult, CUstream,
};
use vgpu_driver::real::{self, Outcome, check};
use vgpu_driver::{context, location, process};
use vgpu_slice::allocations::LINEAR;
use vgpu_slice::table::Full;
use vgpu_slice::{Limited, Slice, charging, current, limited, pools};

use crate::form::Form;

pub(crate) unsafe fn alloc_from_pool(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome {
    let request = Allocate { form: Form::Plain, pointer, bytes, stream };
    allocate(request, Some(pool), || pools::Request::allocate(&request, pool))
}

pub(crate) unsafe fn alloc_from_pool_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome {
    let request = Allocate { form: Form::PerThread, pointer, bytes, stream };
    allocate(request, Some(pool), || pools::Request::allocate(&request, pool))
}

around! {
    alloc(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome = cuMemAllocAsync,
        |call| allocate(Allocate { form: Form::Plain, pointer, bytes, stream }, None, call);
    alloc_ptsz(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome
        = cuMemAllocAsync_ptsz,
        |call| allocate(Allocate { form: Form::PerThread, pointer, bytes, stream }, None, call);
    free(pointer: CUdeviceptr, stream: CUstream) -> Outcome
        = cuMemFreeAsync, |call| release(Form::Plain, pointer, stream, call);
    free_ptsz(pointer: CUdeviceptr, stream: CUstream) -> Outcome
        = cuMemFreeAsync_ptsz, |call| release(Form::PerThread, pointer, stream, call);
    pool_destroy(pool: CUmemoryPool) -> Outcome
        = cuMemPoolDestroy, |call| match (limited(), pools::known_as(pool)) {
            (Some(limited), Some(known)) => known.destroy(limited, call),
            _ => check(call()),
        };
    pool_trim(pool: CUmemoryPool, keep: usize) -> CUresult = cuMemPoolTrimTo, |call| {
        let result = call();
        if let (Some(limited), Some(known)) = (limited(), pools::known_as(pool)) {
            known.refresh(limited, pools::Busy::Wait);
        }
        result
    };
}

pub(crate) unsafe fn pool_create(pool: *mut CUmemoryPool, props: *const CUmemPoolProps) -> Outcome {
    // SAFETY: the program's own arguments.
    let call = || check(unsafe { real::cuMemPoolCreate(pool, props) });
    // SAFETY: the program's own argument.
    let device = unsafe { props.as_ref() }
        .and_then(|props| location::device_of(&props.location, props.allocType));
    let (Some(device), Some(_)) = (device, limited()) else { return call() };
    // SAFETY: the driver has just written it.
    let created = pools::create(|| call().map(|()| (unsafe { *pool }, device)))?;
    created.map(|_| ()).map_err(|Full| {
        // SAFETY: the driver has just created it, and the program never gets it.
        unsafe { real::cuMemPoolDestroy(*pool) };
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// The arguments of an allocation.
#[derive(Clone, Copy)]
struct Allocate {
    form: Form,
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
}

impl pools::Request for Allocate {
    fn allocate(&self, pool: CUmemoryPool) -> CUresult {
        let Self { form, pointer, bytes, stream } = *self;
        // SAFETY: the program's own arguments.
        unsafe {
            match form {
                Form::Plain => real::cuMemAllocFromPoolAsync(pointer, bytes, pool, stream),
                Form::PerThread => real::cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream),
            }
        }
    }

    fn pointer(&self) -> u64 {
        // SAFETY: not null, see `allocate`; the driver has written it.
        unsafe { *self.pointer }
    }

    fn undo(&self) -> bool {
        // SAFETY: the driver has just allocated it, and the program does not know of it.
        let free = || unsafe { real::cuMemFree_v2(self.pointer()) };
        // The driver allocates without a current context, but frees only with one.
        in_context_of(self.stream, free) == Some(CUDA_SUCCESS)
    }

    fn wait(&self) {
        self.form.wait(self.stream);
    }
}

fn allocate(
    request: Allocate,
    pool: Option<CUmemoryPool>,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    let limited = match current() {
        Slice::Unlimited => return check(call()),
        Slice::Refused(_) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
        Slice::Limited(limited) => limited,
    };
    let Allocate { form, pointer, bytes, stream } = request;
    // The driver refuses by itself, or records the call in a graph.
    if pointer.is_null() || bytes == 0 || process::is_forked_copy() || form.is_capturing(stream) {
        return check(call());
    }
    // The pool that is charged is the pool that is allocated from, even if the program makes
    // another one current meanwhile.
    let pool = match pool.or_else(|| pools::current_of(device_of(stream)?)).map(pools::find) {
        Some(Ok(Some(pool))) => pool,
        // A pool of host memory, or no pool or stream at all, which the driver refuses.
        Some(Ok(None)) | None => return check(call()),
        Some(Err(Full)) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
    };
    // SAFETY: the program's own variable.
    let before = unsafe { *pointer };
    let outcome = allocate_from(pool, limited, &request);
    if outcome == Err(CUDA_ERROR_OUT_OF_MEMORY) {
        // As after a refusal of the driver, the variable is unchanged.
        // SAFETY: as above.
        unsafe { *pointer = before };
    }
    outcome
}

fn allocate_from(
    pool: &'static pools::Pool,
    limited: &'static Limited,
    request: &Allocate,
) -> Outcome {
    let bytes = request.bytes as u64;
    let allocation = pools::allocate(pool, limited, bytes, request)?;
    charging::remember(limited, &LINEAR, allocation).map_err(|Full| {
        // Memory that cannot be freed stays charged.
        if pools::Request::undo(request) {
            pool.freed(limited, bytes);
        }
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

fn release(
    form: Form,
    pointer: CUdeviceptr,
    stream: CUstream,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    if limited().is_some() && form.is_capturing(stream) {
        return check(call());
    }
    charging::free(&LINEAR, pointer, call)
}

/// The device of a stream. Its context need not be this thread's.
fn device_of(stream: CUstream) -> Option<CUdevice> {
    in_context_of(stream, context::current)?.map(|(device, _)| device)
}

/// Runs `body` in the context of a stream, because a thread without a context may name a stream as
/// well. If the driver does not know the stream, runs it in the current context, if there is one.
fn in_context_of<T>(stream: CUstream, body: impl FnOnce() -> T) -> Option<T> {
    let mut own: CUcontext = std::ptr::null_mut();
    // SAFETY: a handle that the driver checks, and a local variable.
    if unsafe { real::cuStreamGetCtx(stream, &raw mut own) } == CUDA_SUCCESS {
        context::with_current(own as usize, body)
    } else {
        context::current().map(|_| body())
    }
}
