//! Stream-ordered memory: allocated from pools, freed when the stream gets there.
//!
//! What is charged is the pool's business, see [`crate::pools`]. While a stream is being captured
//! nothing is allocated or freed: the calls become nodes of a graph.

use driver_sys::cuda::{
    CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, CU_STREAM_CAPTURE_STATUS_NONE,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUmemPoolProps,
    CUmemoryPool, CUresult, CUstream,
};

use crate::allocations::Full;
use crate::init;
use crate::memory;
use crate::pools::{self, Take};
use crate::slice::{self, Slice};
use crate::table::real;

pub(crate) unsafe fn alloc(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocAsync(pointer, bytes, stream) };
    allocate(Request { form: Form::Plain, pointer, bytes, stream }, None, driver)
}

pub(crate) unsafe fn alloc_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the program's own arguments.
    let driver = || unsafe { real::cuMemAllocAsync_ptsz(pointer, bytes, stream) };
    allocate(Request { form: Form::PerThread, pointer, bytes, stream }, None, driver)
}

pub(crate) unsafe fn alloc_from_pool(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let request = Request { form: Form::Plain, pointer, bytes, stream };
    allocate(request, Some(pool), || request.take(pool))
}

pub(crate) unsafe fn alloc_from_pool_ptsz(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let request = Request { form: Form::PerThread, pointer, bytes, stream };
    allocate(request, Some(pool), || request.take(pool))
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
    let device = unsafe { props.as_ref() }.and_then(device_for);
    let Some(device) = device.filter(|_| !init::inherited()) else { return driver() };
    let created = pools::create(|| match driver() {
        // SAFETY: the driver has just written it.
        CUDA_SUCCESS => Ok((unsafe { *pool }, device)),
        error => Err(error),
    });
    match created {
        Ok(Ok(_)) => CUDA_SUCCESS,
        Ok(Err(Full)) => {
            // SAFETY: the driver has just made it, and nobody else has seen it.
            unsafe { real::cuMemPoolDestroy(*pool) };
            CUDA_ERROR_OUT_OF_MEMORY
        }
        Err(error) => error,
    }
}

/// The device whose memory a pool will keep, if it is a device's. Managed memory is the current
/// card's, as where it is allocated without a pool.
fn device_for(props: &CUmemPoolProps) -> Option<CUdevice> {
    match (props.location.r#type, props.allocType) {
        // SAFETY: of this type of location the number is the device's.
        (CU_MEM_LOCATION_TYPE_DEVICE, _) => Some(unsafe { props.location.unnamed1.id }),
        (_, CU_MEM_ALLOCATION_TYPE_MANAGED) => memory::current().map(|(device, _)| device),
        _ => None,
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

/// What a program asks for, and where it wants to be told the pointer.
#[derive(Clone, Copy)]
struct Request {
    form: Form,
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
}

impl Take for Request {
    fn take(&self, pool: CUmemoryPool) -> CUresult {
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
        // SAFETY: what the driver has just handed out, and the program does not know of.
        let free = || unsafe { real::cuMemFree_v2(self.pointer()) };
        // The driver allocates without a current context, and frees only in one.
        in_context_of(self.stream, free) == Some(CUDA_SUCCESS)
    }
}

fn allocate(
    request: Request,
    pool: Option<CUmemoryPool>,
    driver: impl FnOnce() -> CUresult,
) -> CUresult {
    let limited = match slice::current() {
        Slice::Open => return driver(),
        Slice::Refused(_) => return CUDA_ERROR_OUT_OF_MEMORY,
        Slice::Limited(limited) => limited,
    };
    let Request { form, pointer, bytes, stream } = request;
    // What the driver refuses by itself it refuses with us.
    if pointer.is_null() || bytes == 0 || init::inherited() || form.is_capturing(stream) {
        return driver();
    }
    // The pool that is charged is the one that is allocated from, also where the program makes
    // another one current meanwhile.
    let pool = match pool.or_else(|| pools::current_of(device_of(stream)?)).map(pools::find) {
        Some(Ok(Some(pool))) => pool,
        // Of host memory, or no pool at all, or no stream: the driver says which.
        Some(Ok(None)) | None => return driver(),
        Some(Err(Full)) => return CUDA_ERROR_OUT_OF_MEMORY,
    };
    // SAFETY: the program's own place for a pointer.
    let before = unsafe { *pointer };
    let result = pool.allocate(limited, bytes as u64, &request);
    if result == CUDA_ERROR_OUT_OF_MEMORY {
        // As where the driver itself refuses, the program finds what it had there.
        // SAFETY: as above.
        unsafe { *pointer = before };
    }
    result
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

/// The device of a stream: its context's, which need not be this thread's.
fn device_of(stream: CUstream) -> Option<CUdevice> {
    in_context_of(stream, memory::current)?.map(|(device, _)| device)
}

/// Does something in the context of a stream; a thread without one may name a stream all the same.
/// `None` where the driver does not know the stream.
fn in_context_of<T>(stream: CUstream, then: impl FnOnce() -> T) -> Option<T> {
    let current = memory::current().map(|(_, context)| context);
    let mut own: CUcontext = std::ptr::null_mut();
    // SAFETY: a handle that the driver checks, and a local variable.
    let known = unsafe { real::cuStreamGetCtx(stream, &raw mut own) } == CUDA_SUCCESS;
    if current.is_some_and(|context| !known || context == own) {
        return Some(then());
    }
    // SAFETY: the stream's context; what is pushed here is popped here.
    unsafe {
        if !known || real::cuCtxPushCurrent_v2(own) != CUDA_SUCCESS {
            return None;
        }
        let done = then();
        real::cuCtxPopCurrent_v2(&raw mut own);
        Some(done)
    }
}
