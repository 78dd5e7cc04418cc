//! Modules and libraries: images that programs load, and the functions and variables in them.
//!
//! Every requested function counts as present in an image; global variables are read from it
//! ([`image`]). The bytes of a variable are on the card of the context and not charged, because the
//! driver takes them with the module and no program requests them. A library is a module without a
//! context, and a kernel is a function of a library. Programs may use either where the other is
//! expected, so they are one type here.

pub mod function;
pub mod image;
pub mod link;
pub mod occupancy;

use crate::Answer;
use crate::boundary::{Host, In, Out, OutWide, Text};
use crate::context::Context;
use crate::context::current;
use crate::memory;
use crate::module::image::Globals;
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use stub_engine::backing::Area;

/// A module or library.
#[derive(Default)]
pub struct Module {
    /// 0 for a library.
    context: AtomicUsize,
    /// Function handles by name.
    functions: Mutex<BTreeMap<String, usize>>,
    globals: Mutex<Variables>,
}

/// The variables of a module.
#[derive(Default)]
struct Variables {
    declared: Globals,
    /// The variables that programs have looked up, by the context's id and their name.
    variables: BTreeMap<(u64, String), Placed>,
}

/// A variable on a card.
struct Placed {
    /// The handle of the context.
    handle: usize,
    space: usize,
    offset: u64,
}

fn insert(driver: &Driver, context: usize, declared: Globals) -> Answer<usize> {
    let created = driver.modules.insert(|module, _| {
        module.context.store(context, Ordering::Relaxed);
        lock(&module.functions).clear();
        *lock(&module.globals) = Variables { declared, variables: BTreeMap::new() };
    });
    created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// The context of a module; `None` for a library.
pub fn context_of(driver: &Driver, module: usize) -> Option<usize> {
    let found = driver.modules.get(module)?.context.load(Ordering::Relaxed);
    (found != 0).then_some(found)
}

fn find(driver: &'static Driver, module: usize) -> Answer<&'static Module> {
    driver.modules.get(module).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`
pub fn load_data(module: Out<CUmodule>, image: Host) -> Answer {
    let (driver, _, context) = current()?;
    let globals = image::globals(image)?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    module.put(handle(insert(driver, context, globals)?))
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

fn read_image(path: Text) -> Answer<Globals> {
    let mut image = std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    image.push(0);
    image::globals(Host(image.as_ptr() as u64))
}

/// `cuModuleLoad`
pub fn load(module: Out<CUmodule>, path: Text) -> Answer {
    let (driver, _, context) = current()?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let globals = read_image(path)?;
    module.put(handle(insert(driver, context, globals)?))
}

fn remove(driver: &Driver, module: usize) -> Answer {
    let found = driver.modules.get(module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    for (_, function) in std::mem::take(&mut *lock(&found.functions)) {
        driver.functions.remove(function);
    }
    let variables = std::mem::take(&mut lock(&found.globals).variables);
    for ((id, _), variable) in variables {
        // The end of a context has already freed its variables.
        let context = driver.contexts.get(variable.handle);
        if context.is_some_and(|context| context.is_active() && context.id() == id) {
            memory::unplace(driver, variable.space, variable.offset)?;
        }
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
            // Another thread may have unloaded it meanwhile.
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

/// The address of a variable in a context, and its size.
fn global(
    driver: &Driver,
    context: &Context,
    context_handle: usize,
    module: &Module,
    name: String,
) -> Answer<(u64, u64)> {
    let mut globals = lock(&module.globals);
    let Variables { declared, variables } = &mut *globals;
    let size = match declared {
        Some(declared) => declared.get(&name).copied().unwrap_or(0),
        None => image::UNKNOWN_SIZE,
    };
    if size == 0 || name.is_empty() {
        return Err(CUDA_ERROR_NOT_FOUND);
    }
    let variable = match variables.entry((context.id(), name)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let space = driver.backing.space(Area::Globals, context.card());
            let space = space.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            let offset = lock(&driver.arenas[space]).allocate(size, context.index());
            let offset = offset.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
            new.insert(Placed { handle: context_handle, space, offset })
        }
    };
    Ok((driver.backing.pointer(variable.space, variable.offset), size))
}

fn put_global(pointer: OutWide, size: OutWide, module: usize, name: Text) -> Answer {
    let (driver, context, context_handle) = current()?;
    let module = find(driver, module)?;
    let (found, bytes) = global(driver, context, context_handle, module, name.get()?)?;
    pointer.put_optional(found);
    size.put_optional(bytes);
    Ok(())
}

/// `cuModuleGetGlobal`
pub fn get_global(pointer: OutWide, size: OutWide, module: CUmodule, name: Text) -> Answer {
    put_global(pointer, size, module as usize, name)
}

/// `cuModuleGetTexRef`, `cuModuleGetSurfRef`
pub fn get_reference<T>(_: Out<T>, module: CUmodule, name: Text) -> Answer {
    let (driver, ..) = current()?;
    find(driver, module as usize)?;
    name.get()?;
    Err(CUDA_ERROR_NOT_FOUND)
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
    let globals = image::globals(image)?;
    if library.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    library.put(handle(insert(driver, 0, globals)?))
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
    let globals = read_image(path)?;
    library.put(handle(insert(driver, 0, globals)?))
}

/// `cuLibraryUnload`
pub fn unload_library(library: CUlibrary) -> Answer {
    remove(driver()?, library as usize)
}

/// `cuLibraryGetModule`: needs a context, because the module would be loaded there.
pub fn library_module(module: Out<CUmodule>, library: CUlibrary) -> Answer {
    let (driver, ..) = current()?;
    find(driver, library as usize)?;
    module.put(library.cast())
}

/// `cuLibraryGetKernel`
pub fn get_kernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> Answer {
    kernel.put(handle(named(driver()?, library as usize, name)?))
}

/// `cuLibraryGetGlobal`
pub fn library_global(pointer: OutWide, size: OutWide, library: CUlibrary, name: Text) -> Answer {
    put_global(pointer, size, library as usize, name)
}

/// `cuLibraryGetManaged`, `cuLibraryGetUnifiedFunction`: images have none.
fn none(library: CUlibrary, name: Text) -> Answer {
    find(driver()?, library as usize)?;
    name.get()?;
    Err(CUDA_ERROR_NOT_FOUND)
}

/// `cuLibraryGetManaged`
pub fn library_managed(_: OutWide, _: OutWide, library: CUlibrary, name: Text) -> Answer {
    none(library, name)
}

/// `cuLibraryGetUnifiedFunction`
pub fn unified_function(_: Out<*mut c_void>, library: CUlibrary, name: Text) -> Answer {
    none(library, name)
}
