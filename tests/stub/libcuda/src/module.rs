//! Modules and libraries: images that programs load, and the functions in them.
//!
//! An image is looked at only to tell an image from garbage; it is taken to hold every function that
//! is asked for, and no global variable. A library is a module that belongs to no context, a kernel
//! a function of a library: the driver lets programs use them for each other, so they are one here.

use crate::Answer;
use crate::arguments::{Host, In, Out, OutWide, Text};
use crate::context::current;
use crate::function;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::{CStr, c_char, c_void};
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A module or library.
#[derive(Default)]
pub struct Module {
    /// 0 for a library.
    context: AtomicUsize,
    /// Function handles by name.
    functions: Mutex<BTreeMap<String, usize>>,
}

/// What an image can start with: an ELF file, a fat binary, the structure that points to one.
const ELF: [u8; 4] = *b"\x7fELF";
const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_WRAPPER: u32 = 0x4662_43b1;

/// Whether there is an image at an address.
fn verify(image: Host) -> Answer {
    if image.0 == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: an image is at least a C string of a few bytes; bytes are read up to a NUL only.
    let text = unsafe { CStr::from_ptr(image.0 as *const c_char) }.to_bytes();
    // SAFETY: as above; a fat binary's first word holds no NUL.
    let word = |text: &[u8]| text.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let is_binary = text.starts_with(&ELF) || matches!(word(text), Some(FAT_BINARY | FAT_WRAPPER));
    let is_assembly = || text.windows(8).any(|window| window == b".version");
    if is_binary || is_assembly() { Ok(()) } else { Err(CUDA_ERROR_INVALID_IMAGE) }
}

fn insert(driver: &Driver, context: usize) -> Answer<usize> {
    let created = driver.modules.insert(|module, _| {
        module.context.store(context, Ordering::Relaxed);
        lock(&module.functions).clear();
    });
    created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

fn find(driver: &'static Driver, module: usize) -> Answer<&'static Module> {
    driver.modules.get(module).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`
pub fn load_data(module: Out<CUmodule>, image: Host) -> Answer {
    let (driver, _, context) = current()?;
    verify(image)?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    module.put(handle(insert(driver, context)?))
}

/// `cuModuleLoadDataEx`
pub fn load_data_ex(
    module: Out<CUmodule>,
    image: Host,
    _count: u32,
    _options: In<CUjit_option>,
    _values: Out<*mut c_void>,
) -> Answer {
    load_data(module, image)
}

fn read_image(path: Text) -> Answer {
    let mut image = std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    image.push(0);
    verify(Host(image.as_ptr() as u64))
}

/// `cuModuleLoad`
pub fn load(module: Out<CUmodule>, path: Text) -> Answer {
    let (driver, _, context) = current()?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    read_image(path)?;
    module.put(handle(insert(driver, context)?))
}

fn remove(driver: &Driver, module: usize) -> Answer {
    let found = driver.modules.get(module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    for (_, function) in std::mem::take(&mut *lock(&found.functions)) {
        driver.functions.remove(function);
    }
    driver.modules.remove(module);
    Ok(())
}

/// `cuModuleUnload`
pub fn unload(module: CUmodule) -> Answer {
    let (driver, ..) = current()?;
    remove(driver, module as usize)
}

/// Unloads the modules of a context.
pub fn unload_all(driver: &Driver, context: usize) {
    for (own_handle, module) in driver.modules.live() {
        if module.context.load(Ordering::Relaxed) == context {
            // Unloaded meanwhile by another thread is unloaded all the same.
            let _ = remove(driver, own_handle);
        }
    }
}

/// `cuModuleGetLoadingMode`
pub fn loading_mode(mode: Out<CUmoduleLoadingMode>) -> Answer {
    driver()?;
    mode.put(CU_MODULE_LAZY_LOADING)
}

fn named(driver: &'static Driver, module: usize, name: Text) -> Answer<usize> {
    let found = find(driver, module)?;
    let name = name.get()?;
    if name.is_empty() {
        return Err(CUDA_ERROR_NOT_FOUND);
    }
    let mut functions = lock(&found.functions);
    if let Some(known) = functions.get(&name) {
        return Ok(*known);
    }
    let created = function::insert(driver, module, &name)?;
    functions.insert(name, created);
    Ok(created)
}

/// `cuModuleGetFunction`
pub fn get_function(function: Out<CUfunction>, module: CUmodule, name: Text) -> Answer {
    let (driver, ..) = current()?;
    function.put(handle(named(driver, module as usize, name)?))
}

/// `cuModuleGetGlobal`
pub fn get_global(_: OutWide, _: OutWide, module: CUmodule, name: Text) -> Answer {
    let (driver, ..) = current()?;
    find(driver, module as usize)?;
    name.get()?;
    Err(CUDA_ERROR_NOT_FOUND)
}

/// `cuModuleGetTexRef`, `cuModuleGetSurfRef`
pub fn get_reference<T>(_: Out<T>, module: CUmodule, name: Text) -> Answer {
    get_global(OutWide::none(), OutWide::none(), module, name)
}

/// `cuModuleGetFunctionCount`, `cuLibraryGetKernelCount`
pub fn count<M>(count: Out<u32>, module: *mut M) -> Answer {
    let found = find(driver()?, module as usize)?;
    count.put(lock(&found.functions).len() as u32)
}

/// `cuModuleEnumerateFunctions`, `cuLibraryEnumerateKernels`
pub fn enumerate<F, M>(functions: Out<*mut F>, room: u32, module: *mut M) -> Answer {
    let found = find(driver()?, module as usize)?;
    if functions.is_null() || room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (index, known) in lock(&found.functions).values().take(room as usize).enumerate() {
        functions.put_at(index, handle(*known));
    }
    Ok(())
}

/// `cuLibraryLoadData`
pub fn load_library(
    library: Out<CUlibrary>,
    image: Host,
    _jit_options: In<CUjit_option>,
    _jit_values: Out<*mut c_void>,
    _jit_count: u32,
    _options: In<CUlibraryOption>,
    _values: Out<*mut c_void>,
    _count: u32,
) -> Answer {
    let driver = driver()?;
    verify(image)?;
    if library.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    library.put(handle(insert(driver, 0)?))
}

/// `cuLibraryLoadFromFile`
pub fn load_library_file(
    library: Out<CUlibrary>,
    path: Text,
    _jit_options: In<CUjit_option>,
    _jit_values: Out<*mut c_void>,
    _jit_count: u32,
    _options: In<CUlibraryOption>,
    _values: Out<*mut c_void>,
    _count: u32,
) -> Answer {
    let driver = driver()?;
    if library.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    read_image(path)?;
    library.put(handle(insert(driver, 0)?))
}

/// `cuLibraryUnload`
pub fn unload_library(library: CUlibrary) -> Answer {
    remove(driver()?, library as usize)
}

/// `cuLibraryGetModule`: needs a context, for there the module would be loaded.
pub fn library_module(module: Out<CUmodule>, library: CUlibrary) -> Answer {
    let (driver, ..) = current()?;
    find(driver, library as usize)?;
    module.put(library.cast())
}

/// `cuLibraryGetKernel`
pub fn get_kernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> Answer {
    kernel.put(handle(named(driver()?, library as usize, name)?))
}

/// `cuLibraryGetGlobal`, `cuLibraryGetManaged`
pub fn library_global(_: OutWide, _: OutWide, library: CUlibrary, name: Text) -> Answer {
    find(driver()?, library as usize)?;
    name.get()?;
    Err(CUDA_ERROR_NOT_FOUND)
}

/// `cuLibraryGetUnifiedFunction`
pub fn unified_function(_: Out<*mut c_void>, library: CUlibrary, name: Text) -> Answer {
    library_global(OutWide::none(), OutWide::none(), library, name)
}
