//! The linker: it accepts any input and produces an image that can be loaded.

use crate::Answer;
use crate::boundary::{Host, In, Out, Text};
use crate::context::current;
use crate::process::{driver, handle};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A link in progress.
#[derive(Default)]
pub struct Link {
    context: AtomicUsize,
}

/// The header of an ELF file for CUDA (machine 190) without any section.
static IMAGE: [u8; 64] = {
    let mut image = [0; 64];
    let head = *b"\x7fELF\x02\x01\x01\x33\x07";
    let mut index = 0;
    while index < head.len() {
        image[index] = head[index];
        index += 1;
    }
    image[16] = 2;
    image[18] = 190;
    image
};

/// `cuLinkCreate`
pub fn create(
    _count: u32,
    _options: In<CUjit_option>,
    _values: Out<*mut c_void>,
    link: Out<CUlinkState>,
) -> Answer {
    let (driver, _, context) = current()?;
    if link.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let created = driver.links.insert(|link, _| link.context.store(context, Ordering::Relaxed));
    link.put(handle(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?))
}

fn check(link: CUlinkState) -> Answer {
    driver()?.links.get(link as usize).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// `cuLinkAddData`
pub fn add_data(
    link: CUlinkState,
    _kind: CUjitInputType,
    data: Host,
    size: usize,
    _name: Text,
    _count: u32,
    _options: In<CUjit_option>,
    _values: Out<*mut c_void>,
) -> Answer {
    check(link)?;
    if data.0 == 0 || size == 0 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

/// `cuLinkAddFile`
pub fn add_file(
    link: CUlinkState,
    _kind: CUjitInputType,
    path: Text,
    _count: u32,
    _options: In<CUjit_option>,
    _values: Out<*mut c_void>,
) -> Answer {
    check(link)?;
    let exists = std::fs::exists(path.get()?).unwrap_or(false);
    if exists { Ok(()) } else { Err(CUDA_ERROR_FILE_NOT_FOUND) }
}

/// `cuLinkComplete`
pub fn complete(link: CUlinkState, image: Out<*mut c_void>, size: Out<usize>) -> Answer {
    check(link)?;
    size.put_optional(IMAGE.len());
    image.put(IMAGE.as_ptr().cast_mut().cast())
}

/// `cuLinkDestroy`
pub fn destroy(link: CUlinkState) -> Answer {
    let removed = driver()?.links.remove(link as usize);
    if removed { Ok(()) } else { Err(CUDA_ERROR_INVALID_HANDLE) }
}
