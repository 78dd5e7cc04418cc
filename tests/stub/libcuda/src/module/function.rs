//! Functions and kernels: a name, a few attributes, and the duration of a launch.

use crate::Answer;
use crate::boundary::Out;
use crate::context::Context;
use crate::launch::blocks;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_char;
use driver_sys::cuda::*;
use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const ATTRIBUTES: usize = CU_FUNC_ATTRIBUTE_MAX as usize;

/// A function of a module, or a kernel of a library.
#[derive(Default)]
pub struct Function {
    pub module: AtomicUsize,
    rare: Mutex<Box<Rare>>,
    attributes: [AtomicI32; ATTRIBUTES],
    /// Nanoseconds per launch, or per block and one, by the durations of this version.
    cost: AtomicU64,
    version: AtomicU64,
    /// The engine's number for its name; 0: not known yet.
    number: AtomicU32,
}

/// The part that a launch does not read. With it a function would not fit into 128 bytes of its
/// slab, and the check of a handle would need a division.
#[derive(Default)]
struct Rare {
    name: CString,
    /// For the launch functions of CUDA 3. A block without threads cannot be launched.
    block: [u32; 3],
}

const _: () = assert!(size_of::<Function>() <= 120);

/// The bit of a function's cost for nanoseconds per block.
const PER_BLOCK: u64 = 1 << 63;

/// Creates a function.
pub fn insert(driver: &Driver, module: usize, name: &str) -> Answer<usize> {
    let local = local_bytes(name);
    let name = CString::new(name).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let created = driver.functions.insert(|function, _| {
        function.module.store(module, Ordering::Relaxed);
        **lock(&function.rare) = Rare { name, block: [0; 3] };
        function.version.store(0, Ordering::Relaxed);
        function.number.store(0, Ordering::Relaxed);
        for attribute in &function.attributes {
            attribute.store(0, Ordering::Relaxed);
        }
        let set = |attribute: u32, value| {
            function.attributes[attribute as usize].store(value, Ordering::Relaxed);
        };
        set(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
        set(CU_FUNC_ATTRIBUTE_NUM_REGS, 32);
        set(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, local);
        set(CU_FUNC_ATTRIBUTE_PTX_VERSION, 70);
        set(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 70);
        set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 48 << 10);
        set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1);
    });
    created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The local memory of a kernel: the number behind `local` in its name.
fn local_bytes(name: &str) -> i32 {
    let digits = name.split_once("local").map_or("", |(_, rest)| rest);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The function of a handle.
#[inline]
pub fn find<F>(driver: &'static Driver, function: *mut F) -> Answer<&'static Function> {
    driver.functions.get(function as usize).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

impl Function {
    /// Nanoseconds that a launch of this grid takes.
    #[inline]
    pub fn duration(&self, driver: &Driver, grid: &[u32; 3]) -> u64 {
        let version = driver.counters.durations_version.load(Ordering::Relaxed);
        if self.version.load(Ordering::Acquire) != version {
            self.refresh(driver, version);
        }
        let cost = self.cost.load(Ordering::Relaxed);
        if cost & PER_BLOCK == 0 { cost } else { Self::grown(cost, grid) }
    }

    #[cold]
    fn grown(cost: u64, grid: &[u32; 3]) -> u64 {
        (cost & !PER_BLOCK).saturating_mul(blocks(grid))
    }

    #[cold]
    fn refresh(&self, driver: &Driver, version: u64) {
        let mut durations = lock(&driver.durations);
        if durations.0 != version {
            *durations = (version, driver.engine.durations());
        }
        let cost = durations.1.of(&lock(&self.rare).name.to_string_lossy());
        let flag = if cost.is_per_block { PER_BLOCK } else { 0 };
        self.cost.store(cost.ns.min(PER_BLOCK - 1) | flag, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }

    /// The engine's number for its name.
    pub fn number(&self, driver: &Driver) -> u32 {
        let known = self.number.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let number = driver.engine.kernel(&lock(&self.rare).name.to_string_lossy());
        self.number.store(number, Ordering::Relaxed);
        number
    }

    /// The block for the launch functions of CUDA 3.
    pub fn block(&self) -> [u32; 3] {
        lock(&self.rare).block
    }

    pub fn set_block(&self, block: [u32; 3]) {
        lock(&self.rare).block = block;
    }

    pub fn attribute(&self, attribute: CUfunction_attribute) -> Answer<i32> {
        let found = self.attributes.get(attribute as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(found.load(Ordering::Relaxed))
    }

    /// Takes the local memory of a launch in a context.
    pub fn take_local(&self, driver: &Driver, context: &Context) -> Answer {
        let local = self.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        context.limits.launched(driver, context, u64::from(local.unsigned_abs()))
    }

    fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> Answer {
        let is_settable = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            || (CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                ..=CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
                .contains(&attribute);
        if !is_settable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.attributes[attribute as usize].store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// `cuFuncGetAttribute`
pub fn get_attribute(
    value: Out<i32>,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Answer {
    value.put(find(driver()?, function)?.attribute(attribute)?)
}

/// `cuFuncSetAttribute`
pub fn set_attribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) -> Answer {
    find(driver()?, function)?.set_attribute(attribute, value)
}

/// `cuKernelGetAttribute`
pub fn kernel_attribute(
    value: Out<i32>,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    value.put(find(driver, kernel)?.attribute(attribute)?)
}

/// `cuKernelSetAttribute`
pub fn set_kernel_attribute(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    find(driver, kernel)?.set_attribute(attribute, value)
}

/// `cuFuncSetCacheConfig`, `cuFuncSetSharedMemConfig`
pub fn set_config(function: CUfunction, _config: u32) -> Answer {
    find(driver()?, function).map(drop)
}

/// `cuKernelSetCacheConfig`
pub fn set_kernel_config(kernel: CUkernel, _config: CUfunc_cache, device: CUdevice) -> Answer {
    let driver = driver()?;
    driver.card(device)?;
    find(driver, kernel).map(drop)
}

/// `cuFuncGetModule`, `cuKernelGetLibrary`
pub fn module<M, F>(module: Out<*mut M>, function: *mut F) -> Answer {
    let found = find(driver()?, function)?;
    module.put(handle(found.module.load(Ordering::Relaxed)))
}

/// `cuFuncGetName`, `cuKernelGetName`
pub fn name<F>(name: Out<*const c_char>, function: *mut F) -> Answer {
    let found = find(driver()?, function)?;
    // The string is replaced only when the destroyed handle is reused.
    name.put(lock(&found.rare).name.as_ptr())
}

/// `cuKernelGetFunction`
pub fn of_kernel(function: Out<CUfunction>, kernel: CUkernel) -> Answer {
    let (driver, context, _) = crate::context::current()?;
    let found = find(driver, kernel)?;
    if function.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    crate::module::load_kernel(driver, found, context)?;
    function.put(kernel.cast())
}

/// `cuFuncIsLoaded`
pub fn is_loaded(state: Out<CUfunctionLoadingState>, function: CUfunction) -> Answer {
    find(driver()?, function)?;
    state.put(CU_FUNCTION_LOADING_STATE_LOADED)
}

/// `cuFuncLoad`
pub fn load(function: CUfunction) -> Answer {
    find(driver()?, function).map(drop)
}
