//! Modules and libraries: images that programs load, and the functions and variables in them.
//!
//! Every requested function counts as present in an image; global variables are read from it
//! ([`image`]). A library is a module without a context, and a kernel is a function of a library.
//! Programs may use either where the other is expected, so they are one type here.
//!
//! The driver takes memory for a module, variables included, if the card's profile has a
//! `module_granule`: for a module when it is loaded, for a library when it is first used in a
//! context. Variables on the card are not charged again.

pub mod function;
pub mod image;
pub mod link;
pub mod occupancy;
mod taken;

use crate::Answer;
use crate::boundary::{Host, In, Out, OutWide, Text};
use crate::context::Context;
use crate::context::current;
use crate::memory;
use crate::module::function::Function;
use crate::module::image::{Globals, Image};
use crate::module::taken::Taken;
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
    contents: Mutex<Contents>,
}

/// The variables of a module, and its memory.
#[derive(Default)]
struct Contents {
    /// Bytes of the image and its variables.
    bytes: u64,
    /// What is charged for it, by the context's id.
    taken: BTreeMap<u64, Taken>,
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

/// A module; without a context a library.
fn insert(driver: &Driver, context: Option<(&Context, usize)>, image: Image) -> Answer<usize> {
    let mut contents =
        Contents { bytes: image.bytes(), declared: image.globals, ..Default::default() };
    if let Some((context, _)) = context {
        let taken = Taken::charge(driver, context.card(), contents.bytes)?;
        contents.taken.insert(context.id(), taken);
    }
    let mut contents = Some(contents);
    let created = driver.modules.insert(|module, _| {
        module.context.store(context.map_or(0, |(_, own_handle)| own_handle), Ordering::Relaxed);
        lock(&module.functions).clear();
        *lock(&module.contents) = contents.take().unwrap_or_default();
    });
    let Some(created) = created else {
        release_all(driver, contents.unwrap_or_default());
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    if context.is_some_and(|(context, _)| !context.is_active()) {
        // It has ended meanwhile and may have missed the new module.
        let _ = remove(driver, created);
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    Ok(created)
}

fn release_all(driver: &Driver, contents: Contents) {
    contents.taken.into_values().for_each(|taken| taken.release(driver));
}

impl Module {
    /// Loads a library in a context, unless it is loaded there already.
    fn load_in(&self, driver: &Driver, context: &Context) -> Answer {
        if !driver.charges_modules || self.context.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let mut contents = lock(&self.contents);
        if !context.is_active() {
            // Under the lock: a context that ends later releases what is charged here.
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        let bytes = contents.bytes;
        if let Entry::Vacant(place) = contents.taken.entry(context.id()) {
            place.insert(Taken::charge(driver, context.card(), bytes)?);
        }
        Ok(())
    }

    /// Forgets a context that has ended, and releases what the library has taken in it. Its
    /// variables are already freed.
    fn leave(&self, driver: &Driver, context: &Context) {
        let mut contents = lock(&self.contents);
        contents.variables.retain(|(id, _), _| *id != context.id());
        if let Some(taken) = contents.taken.remove(&context.id()) {
            taken.release(driver);
        }
    }
}

/// Loads the library of a kernel in a context, unless it is loaded there already.
pub fn load_kernel(driver: &'static Driver, kernel: &Function, context: &Context) -> Answer {
    find(driver, kernel.module.load(Ordering::Relaxed))?.load_in(driver, context)
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
    let (driver, context, own_handle) = current()?;
    let image = image::read(image)?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    module.put(handle(insert(driver, Some((context, own_handle)), image)?))
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

fn read_image(path: Text) -> Answer<Image> {
    let mut image = std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    image.push(0);
    image::read(Host(image.as_ptr() as u64))
}

/// `cuModuleLoad`
pub fn load(module: Out<CUmodule>, path: Text) -> Answer {
    let (driver, context, own_handle) = current()?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let image = read_image(path)?;
    module.put(handle(insert(driver, Some((context, own_handle)), image)?))
}

fn remove(driver: &Driver, module: usize) -> Answer {
    let found = driver.modules.get(module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    for (_, function) in std::mem::take(&mut *lock(&found.functions)) {
        driver.functions.remove(function);
    }
    let mut contents = std::mem::take(&mut *lock(&found.contents));
    let variables = std::mem::take(&mut contents.variables);
    release_all(driver, contents);
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

/// Unloads the modules of a context that ends.
pub fn unload_all(driver: &Driver, context: &Context, context_handle: usize) {
    for (own_handle, module) in driver.modules.live() {
        let owner = module.context.load(Ordering::Relaxed);
        if owner == context_handle {
            // Another thread may have unloaded it meanwhile.
            let _ = remove(driver, own_handle);
        } else if owner == 0 {
            module.leave(driver, context);
        }
    }
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
    let mut contents = lock(&module.contents);
    let Contents { declared, variables, .. } = &mut *contents;
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
    module.load_in(driver, context)?;
    let (found, bytes) = global(driver, context, context_handle, module, name.get()?)?;
    pointer.put_optional(found);
    size.put_optional(bytes);
    Ok(())
}

/// `cuModuleGetGlobal`
pub fn get_global(pointer: OutWide, size: OutWide, module: CUmodule, name: Text) -> Answer {
    put_global(pointer, size, module as usize, name)
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
    let image = image::read(image)?;
    if library.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    library.put(handle(insert(driver, None, image)?))
}

/// `cuLibraryUnload`
pub fn unload_library(library: CUlibrary) -> Answer {
    remove(driver()?, library as usize)
}

/// `cuLibraryGetModule`
pub fn library_module(module: Out<CUmodule>, library: CUlibrary) -> Answer {
    let (driver, context, _) = current()?;
    let found = find(driver, library as usize)?;
    if module.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    found.load_in(driver, context)?;
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
