//! Images, which programs load as modules: their size and their global variables.
//!
//! Kernels are not computed, but a program copies to and from its module's variables, so these must
//! exist with their size. PTX declares them as text, a cubin in its symbol table. Fat binaries and
//! the images of this linker are not parsed: in them every name is a variable of [`UNKNOWN_SIZE`].

use crate::Answer;
use crate::boundary::Host;
use core::ffi::{CStr, c_char};
use driver_sys::cuda::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_VALUE};
use std::collections::BTreeMap;

/// The first bytes of an image: of an ELF file, of a fat binary, of the structure that points to
/// one.
const ELF: [u8; 4] = *b"\x7fELF";
const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_WRAPPER: u32 = 0x4662_43b1;
/// The offset of the address of the fat binary in that structure.
const FAT_WRAPPER_DATA: u64 = 8;

/// Size of a variable in an image that is not parsed: all of a card's constant memory.
pub const UNKNOWN_SIZE: u64 = 64 << 10;

/// The sizes of the variables by name; `None` for an image that is not parsed.
pub type Globals = Option<BTreeMap<String, u64>>;

/// An image that has been read.
pub struct Image {
    pub globals: Globals,
    /// Its length. Where its form does not have one: the length of what was read.
    length: u64,
}

impl Image {
    /// Bytes of the image and of the variables that it declares.
    pub fn bytes(&self) -> u64 {
        let variables = self.globals.iter().flat_map(BTreeMap::values);
        variables.fold(self.length, |sum, size| sum.saturating_add(*size))
    }
}

/// Reads the image at an address.
pub fn read(image: Host) -> Answer<Image> {
    if image.0 == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: an image is at least a C string of a few bytes; bytes are read up to a NUL only.
    let text = unsafe { CStr::from_ptr(image.0 as *const c_char) }.to_bytes();
    let word = text.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let length = text.len() as u64;
    // SAFETY: what has one of these marks is a whole structure, and what names its class and byte
    // order is a whole file.
    unsafe {
        match word {
            Some(FAT_BINARY) => return Ok(Image { globals: None, length: of_fat_binary(image.0) }),
            Some(FAT_WRAPPER) => {
                let start: u64 = peek(image.0 + FAT_WRAPPER_DATA);
                let is_known = start != 0 && peek::<u32>(start) == FAT_BINARY;
                let length = if is_known { of_fat_binary(start) } else { length };
                return Ok(Image { globals: None, length });
            }
            _ if text.starts_with(&ELF) && text.get(4..6) == Some(&[2, 1]) => {
                return Ok(Image { globals: in_elf(image.0), length: of_elf(image.0) });
            }
            _ => {}
        }
    }
    if text.starts_with(&ELF) {
        return Ok(Image { globals: None, length });
    }
    let text = String::from_utf8_lossy(text);
    if !text.contains(".version") {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    Ok(Image { globals: Some(in_ptx(&text)), length })
}

/// The length of a fat binary: its header's and, from the header, that of the rest.
///
/// # Safety
/// There is a complete header of a fat binary at `start`.
unsafe fn of_fat_binary(start: u64) -> u64 {
    // SAFETY: by this function's contract; the header's own length is at 6, the other one at 8.
    unsafe { peek::<u64>(start + 8).saturating_add(peek::<u16>(start + 6).into()) }
}

/// The variables that PTX declares, one statement each: `.visible .const .align 4 .b8 name[1024];`
fn in_ptx(text: &str) -> BTreeMap<String, u64> {
    text.lines().filter_map(declaration).collect()
}

fn declaration(line: &str) -> Option<(String, u64)> {
    let mut words = line.trim().split([' ', '\t']).filter(|word| !word.is_empty());
    let mut word = words.next()?;
    while matches!(word, ".visible" | ".weak" | ".common") {
        word = words.next()?;
    }
    if !matches!(word, ".global" | ".const") {
        return None;
    }
    word = words.next()?;
    while word == ".align" || word.starts_with(".attribute") {
        word = if word == ".align" { words.nth(1)? } else { words.next()? };
    }
    let bits: u64 =
        word.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()?;
    let rest = words.next()?;
    let (name, sizes) = rest.split_once('[').unwrap_or((rest, ""));
    let name = name.trim_end_matches([';', '=']);
    let sizes = sizes.split(']').next().unwrap_or("");
    let count: u64 = if sizes.is_empty() { 1 } else { sizes.parse().ok()? };
    Some((name.to_owned(), (bits / 8).checked_mul(count)?))
}

/// Reads a number of this type at an address.
///
/// # Safety
/// There is a number of this type at the address.
unsafe fn peek<T: Copy>(address: u64) -> T {
    // SAFETY: by this function's contract; no alignment is asked for.
    unsafe { (address as *const T).read_unaligned() }
}

/// Fields of an ELF file of 64 bits, by offset.
const SEGMENTS: u64 = 32;
const SEGMENT_SIZE: u64 = 54;
const SEGMENT_COUNT: u64 = 56;
const HEADER: u64 = 64;
const SECTIONS: u64 = 40;
const SECTION_SIZE: u64 = 58;
const SECTION_COUNT: u64 = 60;
const SYMBOL: u64 = 24;
const SYMBOL_TABLE: u32 = 2;
const NO_BITS: u32 = 8;
const OBJECT: u8 = 1;

/// The length of an ELF file: up to the end of its last table or section.
///
/// # Safety
/// There is a complete ELF file of 64 bits at `file`.
unsafe fn of_elf(file: u64) -> u64 {
    // SAFETY: the header's own offsets lead to what is read here. A section's type is at 4, its
    // offset at 24, its size at 32.
    unsafe {
        let table = |at, size, count| {
            let (size, count) = (peek::<u16>(file + size), peek::<u16>(file + count));
            (peek::<u64>(file + at), u64::from(size), u64::from(count))
        };
        let (segments, segment, segment_count) = table(SEGMENTS, SEGMENT_SIZE, SEGMENT_COUNT);
        let (sections, section, section_count) = table(SECTIONS, SECTION_SIZE, SECTION_COUNT);
        let section_end = |index| {
            let header = file + sections + index * section;
            let size = if peek::<u32>(header + 4) == NO_BITS { 0 } else { peek(header + 32) };
            peek::<u64>(header + 24).saturating_add(size)
        };
        let tables =
            [HEADER, segments + segment * segment_count, sections + section * section_count];
        tables.into_iter().chain((0..section_count).map(section_end)).max().unwrap_or(HEADER)
    }
}

/// The variables in a cubin's symbol table; `None` where it has no sections.
///
/// # Safety
/// There is a complete ELF file of 64 bits at `file`.
unsafe fn in_elf(file: u64) -> Globals {
    // SAFETY: the header's own offsets lead to what is read here and below.
    let (sections, size, count) = unsafe {
        let size = u64::from(peek::<u16>(file + SECTION_SIZE));
        (peek::<u64>(file + SECTIONS), size, u64::from(peek::<u16>(file + SECTION_COUNT)))
    };
    let section = |index: u64| file + sections + index * size;
    // SAFETY: as above.
    let table =
        (0..count).find(|index| unsafe { peek::<u32>(section(*index) + 4) } == SYMBOL_TABLE)?;
    // SAFETY: as above; a section's offset is at 24, its size at 32, the number of the one with its
    // strings at 40.
    let (start, bytes, strings) = unsafe {
        let strings = section(u64::from(peek::<u32>(section(table) + 40)));
        let start = file + peek::<u64>(section(table) + 24);
        (start, peek::<u64>(section(table) + 32), file + peek::<u64>(strings + 24))
    };
    let symbols = (0..bytes / SYMBOL).map(|index| start + index * SYMBOL);
    let object = |symbol: u64| {
        // SAFETY: as above; a symbol's name is at 0, its type in the low half of the byte at 4, its
        // size at 16; names end with NUL.
        unsafe {
            let name = CStr::from_ptr((strings + u64::from(peek::<u32>(symbol))) as *const c_char);
            let is_object = peek::<u8>(symbol + 4) & 0xf == OBJECT;
            is_object.then(|| (name.to_string_lossy().into_owned(), peek::<u64>(symbol + 16)))
        }
    };
    Some(symbols.filter_map(object).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_ptx_have_the_size_they_are_declared_with() {
        let text = "//\n.version 8.8\n.target sm_80\n.global .align 4 .b8 buffer[1000];\n\
            .visible .const .align 8 .u64 limit;\n.visible .global .align 4 .f32 start = 0f00000000;\n\
            .visible .entry k(\n.param .u64 k_param_0\n)\n{\n.reg .b32 %r<3>;\n}\0";
        let image = read(Host(text.as_ptr() as u64)).expect("an image");
        assert_eq!(image.bytes(), text.len() as u64 - 1 + 1000 + 8 + 4);
        let found = image.globals.expect("looked into");
        let expected = [("buffer", 1000), ("limit", 8), ("start", 4)];
        let expected = expected.map(|(name, size)| (name.to_owned(), size));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_elf_file_is_as_long_as_its_headers_say() {
        let mut file = std::fs::read(std::env::current_exe().expect("path")).expect("file");
        let length = file.len() as u64;
        file.extend([1; 100]);
        assert_eq!(read(Host(file.as_ptr() as u64)).expect("an image").length, length);
    }
}
