//! The dynamic section of a loaded object: its name, its functions and its imports.
//!
//! The preload library runs this code while the program looks up a symbol. So nothing here calls a
//! function of the C library.

use std::ffi::c_char;

// Tags that the libc crate does not name.
const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_SONAME: u64 = 14;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The relocations that hold the address of a symbol: `R_*_64` or `ABS64`, `GLOB_DAT`, `JUMP_SLOT`.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u32; 3] = [1, 6, 7];
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u32; 3] = [257, 1025, 1026];

/// The dynamic section of a loaded object. The object stays loaded while this is used.
#[derive(Debug)]
pub struct Dynamic {
    base: usize,
    entries: *const [u64; 2],
}

impl Dynamic {
    /// # Safety
    ///
    /// The dynamic section of an object that is loaded at `base`.
    pub unsafe fn new(base: usize, entries: *const [u64; 2]) -> Self {
        Self { base, entries }
    }

    fn value(&self, tag: u64) -> Option<usize> {
        let mut entry = self.entries;
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

    /// A value that is an address. The loader has made it absolute, except in the vDSO.
    fn address(&self, tag: u64) -> Option<usize> {
        let value = self.value(tag)?;
        Some(if value < self.base { self.base + value } else { value })
    }

    /// Whether this is the object's SONAME.
    pub fn is_named(&self, soname: &[u8]) -> bool {
        let (Some(strings), Some(name)) = (self.address(DT_STRTAB), self.value(DT_SONAME)) else {
            return false;
        };
        // SAFETY: a C string in the string table, which is mapped as long as the object.
        unsafe { is(c_string(strings + name), soname) }
    }

    /// The address of a function that the object defines, found by `DT_GNU_HASH`.
    pub fn function(&self, name: &[u8]) -> Option<usize> {
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
                if (entry | 1) == (hash | 1)
                    && is(c_string(strings + symbol.st_name as usize), name)
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

    /// Calls `visit` with the address of each pointer to the function `name` that the object
    /// imports from other objects.
    pub fn each_import(&self, name: &[u8], mut visit: impl FnMut(usize)) {
        let (Some(strings), Some(symbols)) = (self.address(DT_STRTAB), self.address(DT_SYMTAB))
        else {
            return;
        };
        let symbols = symbols as *const libc::Elf64_Sym;
        // SAFETY: an index of a relocation is one of the symbol table, which is mapped with the
        // object.
        let is_import = |index: usize| unsafe {
            let symbol = &*symbols.add(index);
            symbol.st_shndx == 0 && is(c_string(strings + symbol.st_name as usize), name)
        };
        for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let (Some(table), Some(size)) = (self.address(table), self.value(size)) else {
                continue;
            };
            let table = table as *const libc::Elf64_Rela;
            for at in 0..size / size_of::<libc::Elf64_Rela>() {
                // SAFETY: the table has this many entries, and is mapped with the object.
                let entry = unsafe { &*table.add(at) };
                let (index, kind) = ((entry.r_info >> 32) as usize, entry.r_info as u32);
                if ADDRESSES.contains(&kind) && is_import(index) {
                    visit(self.base.wrapping_add(entry.r_offset as usize));
                }
            }
        }
    }
}

fn c_string(address: usize) -> *const c_char {
    address as *const c_char
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// Whether a C string is `name`, which has no zero byte.
///
/// The reads are volatile, because the compiler would turn plain reads into a call of `strlen` or
/// `bcmp`.
///
/// # Safety
///
/// `text` is a C string.
pub unsafe fn is(text: *const c_char, name: &[u8]) -> bool {
    // SAFETY: the first difference, at the latest the end of `text`, is the last byte that is read.
    let byte = |at| unsafe { text.cast::<u8>().add(at).read_volatile() };
    name.iter().enumerate().all(|(at, expected)| byte(at) == *expected) && byte(name.len()) == 0
}
