//! Memory of another API, which a test makes as a file.

use super::{alone, fails, free_bytes, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::null_mut;
use stub_engine::memory_file::MemoryFile;

fn import(descriptor: i32, bytes: u64) -> (CUresult, CUexternalMemory) {
    // SAFETY: structures of numbers and pointers.
    let mut described: CUDA_EXTERNAL_MEMORY_HANDLE_DESC = unsafe { zeroed() };
    described.r#type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    described.handle.fd = descriptor;
    described.size = bytes;
    let mut memory = null_mut();
    // SAFETY: both arguments are valid.
    (unsafe { cuImportExternalMemory(&raw mut memory, &raw const described) }, memory)
}

fn buffer(memory: CUexternalMemory, offset: u64, size: u64) -> (CUresult, u64) {
    // SAFETY: structures of numbers and pointers.
    let mut described: CUDA_EXTERNAL_MEMORY_BUFFER_DESC = unsafe { zeroed() };
    (described.offset, described.size) = (offset, size);
    let mut pointer = 0;
    // SAFETY: both arguments are valid.
    let result =
        unsafe { cuExternalMemoryGetMappedBuffer(&raw mut pointer, memory, &raw const described) };
    (result, pointer)
}

/// A descriptor of a file, which the driver closes.
fn passed(file: &MemoryFile) -> i32 {
    // SAFETY: the descriptor is open.
    unsafe { libc::dup(file.descriptor()) }
}

#[test]
fn external_memory_lives_until_its_buffers_are_freed() {
    alone(&[], || {
        let context = start();
        let before = free_bytes();
        let file = MemoryFile::create("of another API", 1 << 20).expect("file");
        let descriptor = passed(&file);
        assert_eq!(import(descriptor, (1 << 20) + 1).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(import(-1, 4096).0, CUDA_ERROR_INVALID_HANDLE);
        let (result, memory) = import(descriptor, 1_000_000);
        assert_eq!(result, CUDA_SUCCESS);
        // SAFETY: the call takes numbers.
        assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) }, -1, "it is consumed");
        assert_eq!(before - free_bytes(), 1_000_000);
        assert_eq!(buffer(memory, 999_999, 2).0, CUDA_ERROR_INVALID_VALUE);
        let (result, pointer) = buffer(memory, 5000, 100);
        assert_eq!(result, CUDA_SUCCESS);
        ok!(cuMemsetD8_v2(pointer, 7, 100));
        invalid!(cuMemsetD8_v2(pointer, 7, 101));
        let (_, all) = buffer(memory, 0, 1_000_000);
        // Adjacent addresses are another buffer, and so another allocation.
        let (_, whole) = buffer(memory, 0, 4096);
        let (_, next) = buffer(memory, 0, 4096);
        invalid!(cuMemsetD8_v2(whole.min(next), 7, 4097));
        ok!(cuMemFree_v2(whole));
        ok!(cuMemFree_v2(next));
        let mut bytes = [0u8; 102];
        ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), all + 4999, 102));
        assert_eq!((bytes[0], bytes[1], bytes[100], bytes[101]), (0, 7, 7, 0));
        ok!(cuMemFree_v2(all));
        invalid!(cuMemFree_v2(all));
        ok!(cuDestroyExternalMemory(memory));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
        assert_eq!(before - free_bytes(), 1_000_000, "a buffer is still mapped");
        invalid!(cuMemFree_v2(pointer + 1));
        ok!(cuMemFree_v2(pointer));
        assert_eq!(free_bytes(), before);
        // The end of the context ends its external memory.
        let mut other = null_mut();
        ok!(cuCtxCreate_v2(&raw mut other, 0, 0));
        let (_, memory) = import(passed(&file), 4096);
        assert_eq!(buffer(memory, 0, 4096).0, CUDA_SUCCESS);
        ok!(cuCtxDestroy_v2(other));
        ok!(cuCtxSetCurrent(context));
        assert_eq!(free_bytes(), before);
        fails!(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory(memory));
    });
}
