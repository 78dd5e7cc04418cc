//! The loaded objects of this process, read from the loader's own lists.
//!
//! This finds the C library's own dlsym, and the library that an address belongs to, without a call
//! to dlsym, which this library exports itself.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// Finds `name` in libc (or, before glibc 2.34, libdl) by its GNU hash table.
pub fn find_in_libc(name: &str) -> Option<usize> {
    let mut found = None;
    each_object(|object| {
        let Some(soname) = object.soname() else { return };
        if found.is_none() && matches!(soname.to_bytes(), b"libc.so.6" | b"libdl.so.2") {
            found = object.function(name);
        }
    });
    found
}

/// Whether an address is in an object with this SONAME.
pub fn is_in(address: usize, soname: &CStr) -> bool {
    let mut found = false;
    each_object(|object| found |= object.contains(address) && object.soname() == Some(soname));
    found
}

/// A handle of the loaded object with this SONAME; with `inside`, of the one that holds that
/// address. The handle is never closed, so the object stays loaded.
pub fn open_loaded(soname: &CStr, inside: Option<usize>) -> Option<*mut c_void> {
    let mut path = None;
    each_object(|object| {
        let here = inside.is_none_or(|address| object.contains(address));
        if path.is_none() && here && object.soname() == Some(soname) {
            path = Some(object.path.to_owned());
        }
    });
    open_by_path(&path?)
}

/// A handle of the program itself: the global scope.
pub fn open_program() -> *mut c_void {
    // SAFETY: NULL is the program.
    unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// Loads a library by its SONAME, if it is not loaded, for the rest of the process's life.
pub fn load(soname: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; loading runs the start-up code of the driver's library.
    let handle = unsafe { libc::dlopen(soname.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    (!handle.is_null()).then_some(handle)
}

/// A handle of the loaded object that holds an address.
pub fn open_containing(address: usize) -> Option<*mut c_void> {
    let mut path = None;
    each_object(|object| {
        if object.contains(address) {
            path = Some(object.path.to_owned());
        }
    });
    // The program itself has no path here, and no scope besides the global one.
    let path = path.filter(|path| !path.is_empty())?;
    open_by_path(&path)
}

/// Whether an object between those that hold two addresses, in the order of search, has a function
/// of this name.
pub fn defined_between(first: usize, last: usize, name: &str) -> bool {
    let (mut inside, mut found) = (false, false);
    each_object(|object| {
        if object.contains(last) {
            inside = false;
        }
        found |= inside && object.function(name).is_some();
        if object.contains(first) {
            inside = true;
        }
    });
    found
}

/// The path of the loaded object that holds an address.
pub fn path_of(address: usize) -> Option<OsString> {
    let mut path = None;
    each_object(|object| {
        if object.contains(address) {
            path = Some(OsStr::from_bytes(object.path.to_bytes()).to_owned());
        }
    });
    path
}

fn open_by_path(path: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; RTLD_NOLOAD loads nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

/// One loaded object, as the loader describes it.
struct Object<'a> {
    base: usize,
    path: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

// Tags of the dynamic section that the libc crate does not name.
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

impl Object<'_> {
    fn contains(&self, address: usize) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            address >= start && address - start < header.p_memsz as usize
        })
    }

    /// A value of the dynamic section.
    fn dynamic(&self, tag: u64) -> Option<usize> {
        let header = self.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = self.base.wrapping_add(header.p_vaddr as usize) as *const [u64; 2];
        loop {
            // SAFETY: the loader keeps the dynamic section mapped; it ends with DT_NULL.
            let [found, value] = unsafe { *entry };
            if found == DT_NULL {
                return None;
            }
            if found == tag {
                return Some(value as usize);
            }
            // SAFETY: not yet at the end.
            entry = unsafe { entry.add(1) };
        }
    }

    /// An address of the dynamic section. The loader has made it absolute, except in the vDSO.
    fn address(&self, tag: u64) -> Option<usize> {
        let value = self.dynamic(tag)?;
        Some(if value < self.base { self.base + value } else { value })
    }

    fn soname(&self) -> Option<&CStr> {
        let text = self.address(DT_STRTAB)? + self.dynamic(DT_SONAME)?;
        // SAFETY: the string table is mapped as long as the object, which outlives this visit.
        Some(unsafe { CStr::from_ptr(text as *const c_char) })
    }

    /// A defined function by name, through DT_GNU_HASH.
    fn function(&self, name: &str) -> Option<usize> {
        let strings = self.address(DT_STRTAB)?;
        let symbols = self.address(DT_SYMTAB)? as *const libc::Elf64_Sym;
        let table = self.address(DT_GNU_HASH)? as *const u32;
        // SAFETY: the layout of DT_GNU_HASH: bucket count, first hashed symbol, bloom size, shift,
        // the bloom filter (64-bit words), the buckets, the chains; all mapped with the object.
        unsafe {
            let (buckets, first, bloom) = (*table, *table.add(1), *table.add(2));
            let bucket = table.add(4 + bloom as usize * 2);
            let chain = bucket.add(buckets as usize);
            let hash = gnu_hash(name);
            if buckets == 0 {
                return None;
            }
            let mut index = *bucket.add((hash % buckets) as usize);
            while index >= first {
                let entry = *chain.add((index - first) as usize);
                let symbol = &*symbols.add(index as usize);
                let text = CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char);
                if (entry | 1) == (hash | 1)
                    && text.to_bytes() == name.as_bytes()
                    && symbol.st_shndx != 0
                {
                    return Some(self.base.wrapping_add(symbol.st_value as usize));
                }
                if entry & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
        None
    }
}

fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// Calls `visit` for every loaded object, under the loader's own lock.
fn each_object(mut visit: impl FnMut(&Object<'_>)) {
    let mut visit: &mut dyn FnMut(&Object<'_>) = &mut visit;
    // SAFETY: `adapter` gets back exactly this pointer, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(adapter), (&raw mut visit).cast()) };
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
            path: CStr::from_ptr(info.dlpi_name),
            headers: std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        });
    }
    0
}
