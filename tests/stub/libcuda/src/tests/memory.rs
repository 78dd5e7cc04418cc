//! Device memory: all of it to the last byte, exact copies, and refused ranges.

use super::{allocate, alone, fails, free_bytes, invalid, ok, start};
use crate::process::lock;
use crate::table::*;
use driver_sys::cuda::*;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

fn random(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn memory_is_granted_to_the_last_byte() {
    alone(&[("STUB_GPU_PROFILE", "h200")], || {
        start();
        let free = free_bytes();
        let most = allocate(free - 1);
        let mut pointer = 0;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut pointer, 2));
        let last = allocate(1);
        assert_eq!(free_bytes(), 0);
        ok!(cuMemFree_v2(most));
        assert_eq!(free_bytes(), free - 1);
        ok!(cuMemFree_v2(last));
        invalid!(cuMemAlloc_v2(&raw mut pointer, 0));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut pointer, usize::MAX));
        assert_eq!(free_bytes(), free);
    });
}

/// One thread frees an allocation, or ends its context. Another one waits until its address is free
/// and then reads how much is in use.
#[test]
fn a_free_address_has_no_bytes_in_the_ledger() {
    alone(&[], || {
        let context = start();
        let before = free_bytes();
        let driver = crate::process::driver().expect("initialised");
        for round in 0..300 {
            let mut other = null_mut();
            ok!(cuCtxCreate_v2(&raw mut other, 0, 0));
            let in_use = driver.engine.used(0).expect("card 0");
            let pointer = allocate(8 << 20);
            let (space, offset) = driver.backing.locate(pointer).expect("device memory");
            let is_watching = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let watcher = scope.spawn(|| {
                    is_watching.store(true, Ordering::Relaxed);
                    while lock(&driver.arenas[space]).find(offset).is_some() {
                        std::hint::spin_loop();
                    }
                    driver.engine.used(0).expect("card 0")
                });
                while !is_watching.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                if round % 2 == 0 {
                    ok!(cuMemFree_v2(pointer));
                } else {
                    ok!(cuCtxDestroy_v2(other));
                }
                let seen = watcher.join().expect("the watcher");
                assert!(seen <= in_use, "round {round}: {seen} bytes in use, not {in_use}");
            });
            if round % 2 == 0 {
                ok!(cuCtxDestroy_v2(other));
            }
            ok!(cuCtxSetCurrent(context));
        }
        assert_eq!(free_bytes(), before);
    });
}

#[test]
fn an_invalid_pointer_cannot_be_freed() {
    alone(&[], || {
        start();
        let pointer = allocate(4096);
        assert!(pointer.is_multiple_of(512));
        invalid!(cuMemFree_v2(pointer + 512));
        invalid!(cuMemFree_v2(0x1234));
        ok!(cuMemFree_v2(pointer));
        invalid!(cuMemFree_v2(pointer));
        ok!(cuMemFree_v2(0));
    });
}

#[test]
fn copies_are_exact_and_stay_inside_their_allocation() {
    alone(&[], || {
        start();
        for length in [1, 511, 4096, 3 << 20] {
            let data = random(length, length as u64);
            let mut back = vec![0; length];
            let (first, second) = (allocate(length), allocate(length));
            ok!(cuMemcpyHtoD_v2(first, data.as_ptr().cast(), length));
            ok!(cuMemcpyDtoDAsync_v2(second, first, length, null_mut()));
            ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), second, length));
            assert_eq!(back, data);
            let mut unified = vec![0; length];
            ok!(cuMemcpy(unified.as_mut_ptr() as u64, first, length));
            assert_eq!(unified, data);
            invalid!(cuMemcpyHtoD_v2(first, data.as_ptr().cast(), length + 1));
            invalid!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), first + 1, length));
        }
    });
}

#[test]
fn rows_are_copied_with_their_pitch() {
    alone(&[], || {
        start();
        let (mut pointer, mut pitch) = (0, 0);
        ok!(cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, 100, 7, 4));
        assert_eq!(pitch, 512);
        let data = random(700, 1);
        let mut back = vec![0; 700];
        // SAFETY: a structure of numbers and pointers.
        let mut copy: CUDA_MEMCPY2D = unsafe { zeroed() };
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = data.as_ptr().cast();
        copy.srcPitch = 100;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = pointer;
        copy.dstPitch = pitch;
        (copy.WidthInBytes, copy.Height) = (100, 7);
        ok!(cuMemcpy2D_v2(&raw const copy));
        (copy.srcMemoryType, copy.dstMemoryType) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST);
        (copy.srcDevice, copy.srcPitch) = (pointer, pitch);
        (copy.dstHost, copy.dstPitch) = (back.as_mut_ptr().cast(), 100);
        ok!(cuMemcpy2DAsync_v2(&raw const copy, null_mut()));
        assert_eq!(back, data);
        copy.dstPitch = 99;
        invalid!(cuMemcpy2D_v2(&raw const copy));
    });
}

#[test]
fn fills_write_elements_and_only_there() {
    alone(&[], || {
        start();
        let pointer = allocate(64);
        ok!(cuMemsetD8_v2(pointer, 1, 64));
        ok!(cuMemsetD32_v2(pointer + 4, 0x0403_0201, 2));
        ok!(cuMemsetD16Async(pointer + 14, 0x0909, 1, null_mut()));
        ok!(cuMemsetD2D8_v2(pointer + 32, 8, 7, 2, 3));
        let mut back = [0u8; 64];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), pointer, 64));
        let mut expected = [1u8; 64];
        expected[4..12].copy_from_slice(&[1, 2, 3, 4, 1, 2, 3, 4]);
        expected[14..16].fill(9);
        for row in 0..3 {
            expected[32 + 8 * row..34 + 8 * row].fill(7);
        }
        assert_eq!(back, expected);
        invalid!(cuMemsetD32_v2(pointer + 2, 0, 1));
        invalid!(cuMemsetD8_v2(pointer, 0, 65));
    });
}

#[test]
fn the_first_api_has_32_bits() {
    alone(&[], || {
        start();
        let (mut pointer, mut base, mut size, mut free) = (0u32, 0, 0, 0);
        ok!(cuMemAlloc(&raw mut pointer, 1000));
        ok!(cuMemGetAddressRange(&raw mut base, &raw mut size, pointer + 9));
        assert_eq!((base, size), (pointer, 1000));
        ok!(cuMemsetD8(pointer, 5, 1000));
        let mut back = [0u8; 1000];
        ok!(cuMemcpyDtoH(back.as_mut_ptr().cast(), pointer, 1000));
        assert_eq!(back, [5; 1000]);
        ok!(cuMemGetInfo(&raw mut free, null_mut()));
        assert_eq!(free, u32::MAX, "40 GiB do not fit");
        ok!(cuMemFree(pointer));
        invalid!(cuMemFree(pointer));
    });
}

#[test]
fn pointers_know_what_they_are() {
    alone(&[], || {
        let context = start();
        let device = allocate(4096);
        let mut host = null_mut();
        ok!(cuMemHostAlloc(&raw mut host, 100, 0));
        let mut kind = 0u32;
        let out = (&raw mut kind).cast();
        ok!(cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 5));
        assert_eq!(kind, CU_MEMORYTYPE_DEVICE);
        ok!(cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host as u64));
        assert_eq!(kind, CU_MEMORYTYPE_HOST);
        let stack = (&raw const kind) as u64;
        let memory_type = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        invalid!(cuPointerGetAttribute(out, memory_type, stack));
        let (mut owner, mut base, mut managed) = (null_mut::<CUctx_st>(), 0u64, 9u8);
        let mut attributes = [
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
        ];
        let mut outputs =
            [(&raw mut owner).cast(), (&raw mut base).cast(), (&raw mut managed).cast()];
        let (attributes, outputs) = (attributes.as_mut_ptr(), outputs.as_mut_ptr());
        ok!(cuPointerGetAttributes(3, attributes, outputs, device + 5));
        assert_eq!((owner, base, managed), (context, device, 0));
        ok!(cuPointerGetAttributes(3, attributes, outputs, stack));
        assert_eq!((owner, base, managed), (null_mut(), 0, 0));
        ok!(cuMemFreeHost(host));
        invalid!(cuMemFreeHost(host));
    });
}

#[test]
fn a_programs_own_memory_is_registered_once() {
    alone(&[], || {
        start();
        let mut memory = vec![0u8; 8192];
        let pointer = memory.as_mut_ptr().cast();
        let mut device = 0;
        invalid!(cuMemHostGetDevicePointer_v2(&raw mut device, pointer, 0));
        ok!(cuMemHostRegister_v2(pointer, 8192, 0));
        fails!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(pointer, 1, 0));
        ok!(cuMemHostGetDevicePointer_v2(&raw mut device, pointer, 0));
        assert_eq!(device, pointer as u64);
        invalid!(cuMemFreeHost(pointer));
        ok!(cuMemHostUnregister(pointer));
        fails!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pointer));
    });
}
