//! The loaded objects of this process, read from the loader's own lists.
//!
//! This finds the library that an address belongs to. Most of it runs while the program looks up a
//! symbol, so it calls no function of the C library by its name; see [`crate::libdl`].

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::libdl;
use hami_limits::elf::Dynamic;

/// Whether an address is in an object with this SONAME.
pub fn is_in(address: usize, soname: &CStr) -> bool {
    is_in_any(address, |object| object.is_named(soname))
}

/// Whether an address is in an object for which `is_it` is true.
pub(crate) fn is_in_any(address: usize, is_it: impl Fn(&Object<'_>) -> bool) -> bool {
    let mut found = false;
    each_object(|object| found |= object.contains(address) && is_it(object));
    found
}

/// A handle of the loaded object with this SONAME. If there are several, `inside` selects the one
/// that contains this address. The object stays loaded until the handle is closed.
pub fn open_loaded(soname: &CStr, inside: Option<usize>) -> Option<*mut c_void> {
    open_first(|object| {
        inside.is_none_or(|address| object.contains(address)) && object.is_named(soname)
    })
}

/// A handle of a loaded object with this SONAME that does not contain this address.
pub fn open_other(soname: &CStr, outside: Option<usize>) -> Option<*mut c_void> {
    open_first(|object| {
        outside.is_none_or(|address| !object.contains(address)) && object.is_named(soname)
    })
}

/// A handle of the program itself: the global scope.
pub fn open_program() -> *mut c_void {
    // SAFETY: NULL is the program.
    unsafe { libdl::dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// A handle of the loaded object that contains an address. `None` for the program itself: the
/// loader lists it without a path, and it has no scope but the global one.
pub fn open_containing(address: usize) -> Option<*mut c_void> {
    open_first(|object| object.contains(address))
}

/// Whether an object defines a function of this name and is, in the order of search, behind the
/// object that contains the address `first` and before the one that contains `last`.
pub fn defined_between(first: usize, last: usize, name: &str) -> bool {
    let (mut inside, mut found) = (false, false);
    each_object(|object| {
        if object.contains(last) {
            inside = false;
        }
        found |= inside && object.function(name.as_bytes()).is_some();
        if object.contains(first) {
            inside = true;
        }
    });
    found
}

/// Makes `to` the address at which each loaded object with this SONAME finds the function `name` of
/// another object. Returns whether one of them imports that function.
///
/// The visit is under the loader's lock, so one thread at a time writes.
pub fn rebind(soname: &CStr, name: &[u8], to: usize) -> bool {
    let mut is_bound = false;
    each_object(|object| {
        let Some(dynamic) = object.dynamic().filter(|_| object.is_named(soname)) else { return };
        dynamic.each_import(name, |pointer| is_bound |= object.write(pointer, to));
    });
    is_bound
}

/// The path of the loaded object that contains an address.
pub fn path_of(address: usize) -> Option<OsString> {
    let mut path = None;
    each_object(|object| {
        if object.contains(address) {
            // SAFETY: a C string of the loader.
            let text = unsafe { CStr::from_ptr(object.path) };
            path = Some(OsStr::from_bytes(text.to_bytes()).to_owned());
        }
    });
    path
}

/// The paths of the loaded objects with this file name.
pub fn paths_named(name: &str) -> Vec<OsString> {
    let mut paths = Vec::new();
    each_object(|object| {
        // SAFETY: a C string of the loader.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(object.path) }.to_bytes());
        if Path::new(path).file_name() == Some(OsStr::new(name)) {
            paths.push(path.to_owned());
        }
    });
    paths
}

/// A handle of the first object for which `is_it` is true.
fn open_first(is_it: impl Fn(&Object<'_>) -> bool) -> Option<*mut c_void> {
    // Threads may have small stacks, and most paths are short.
    match open_short::<256>(&is_it) {
        Err(TooLong) => open_short::<{ libc::PATH_MAX as usize }>(&is_it).unwrap_or_default(),
        Ok(handle) => handle,
    }
}

/// The path of an object does not fit into the buffer.
struct TooLong;

/// [`open_first`], if the path has fewer than `ROOM` bytes.
#[inline(never)] // or the caller's stack frame would contain the largest buffer
fn open_short<const ROOM: usize>(
    is_it: &dyn Fn(&Object<'_>) -> bool,
) -> Result<Option<*mut c_void>, TooLong> {
    // The path is copied: no object may be opened during the visit, and after the visit this object
    // may be unloaded.
    let mut path = [const { MaybeUninit::<c_char>::uninit() }; ROOM];
    let mut copied = Ok(None);
    each_object(|object| {
        // The program itself has an empty path, so it cannot be opened by its path.
        // SAFETY: a C string of the loader.
        if matches!(copied, Ok(None)) && is_it(object) && unsafe { *object.path } != 0 {
            // SAFETY: as above.
            copied = unsafe { copy(object.path, &mut path) }.map(Some);
        }
    });
    if copied?.is_none() {
        return Ok(None);
    }
    // SAFETY: `copy` wrote a C string; RTLD_NOLOAD loads nothing.
    let handle =
        unsafe { libdl::dlopen(path.as_ptr().cast(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    Ok((!handle.is_null()).then_some(handle))
}

/// Copies a C string.
///
/// The reads are volatile, because the compiler would turn plain reads into a call of `strcpy`.
///
/// # Safety
///
/// `text` is a C string.
unsafe fn copy(text: *const c_char, room: &mut [MaybeUninit<c_char>]) -> Result<(), TooLong> {
    for (at, to) in room.iter_mut().enumerate() {
        // SAFETY: the string did not end before this byte.
        let byte = unsafe { text.add(at).read_volatile() };
        to.write(byte);
        if byte == 0 {
            return Ok(());
        }
    }
    Err(TooLong)
}

/// One loaded object, as the loader describes it.
pub(crate) struct Object<'a> {
    base: usize,
    path: *const c_char,
    headers: &'a [libc::Elf64_Phdr],
}

impl Object<'_> {
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            address >= start && address - start < header.p_memsz as usize
        })
    }

    fn dynamic(&self) -> Option<Dynamic> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let entries = self.base.wrapping_add(header.p_vaddr as usize);
        // SAFETY: the headers are those of the object that is loaded there.
        Some(unsafe { Dynamic::new(self.base, entries as *const [u64; 2]) })
    }

    pub(crate) fn is_named(&self, soname: &CStr) -> bool {
        self.dynamic().is_some_and(|dynamic| dynamic.is_named(soname.to_bytes()))
    }

    /// Writes a pointer of the object, also where the loader has made its page read-only. Returns
    /// whether the pointer has this value now.
    fn write(&self, pointer: usize, value: usize) -> bool {
        // SAFETY: an aligned pointer of the object.
        let cell = unsafe { AtomicUsize::from_ptr(pointer as *mut usize) };
        if cell.load(Ordering::Relaxed) == value {
            return true;
        }
        // SAFETY: sysconf reads a constant.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let page = pointer & !(size - 1);
        // The loader protects whole pages only.
        let is_read_only =
            self.headers.iter().filter(|header| header.p_type == libc::PT_GNU_RELRO).any(
                |header| {
                    let start = self.base.wrapping_add(header.p_vaddr as usize);
                    let end = (start + header.p_memsz as usize) & !(size - 1);
                    page >= start & !(size - 1) && page < end
                },
            );
        // SAFETY: a page of the object that holds only data.
        let protect = |access| unsafe { libc::mprotect(page as *mut c_void, size, access) } == 0;
        if is_read_only && !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        cell.store(value, Ordering::Relaxed);
        if is_read_only {
            protect(libc::PROT_READ);
        }
        true
    }

    fn function(&self, name: &[u8]) -> Option<usize> {
        self.dynamic()?.function(name)
    }
}

/// Calls `visit` for every loaded object, under the loader's own lock.
fn each_object(mut visit: impl FnMut(&Object<'_>)) {
    let mut visit: &mut dyn FnMut(&Object<'_>) = &mut visit;
    // SAFETY: `adapter` gets back exactly this pointer, and only during the call.
    unsafe { libdl::dl_iterate_phdr(adapter, (&raw mut visit).cast()) };
}

unsafe extern "C" fn adapter(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: the loader hands over a valid description and the pointer from `each_object`.
    unsafe {
        let visit = &mut *visit.cast::<&mut dyn FnMut(&Object<'_>)>();
        let info = &*info;
        if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
            return 0;
        }
        visit(&Object {
            base: info.dlpi_addr as usize,
            path: info.dlpi_name,
            headers: std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        });
    }
    0
}
