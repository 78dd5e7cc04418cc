//! Managed memory, and the attributes of pointers of every kind.

use super::{allocate, alone, fails, free_bytes, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::null_mut;

fn managed(bytes: usize) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(cuMemAllocManaged(&raw mut pointer, bytes, CU_MEM_ATTACH_GLOBAL));
    pointer
}

fn attribute<T: Default>(attribute: CUpointer_attribute, pointer: CUdeviceptr) -> T {
    let mut value = T::default();
    ok!(cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer));
    value
}

#[test]
fn managed_memory_is_read_and_written_by_both_sides_and_takes_no_room() {
    alone(&[("STUB_GPU_PROFILE", "t4")], || {
        let context = start();
        let free = free_bytes();
        let pointer = managed(20 << 30);
        assert_eq!(free_bytes(), free, "more than the card has, and none of it there");
        // SAFETY: managed memory is the program's to write.
        unsafe { (pointer as *mut u8).add(5).write(77) };
        let mut back = [0u8; 2];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), pointer + 5, 2));
        assert_eq!(back, [77, 0]);
        ok!(cuMemsetD8_v2(pointer, 9, 4));
        // SAFETY: as above.
        assert_eq!(unsafe { *(pointer as *const u32) }, 0x0909_0909);
        let report = super::report().expect("in process");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        let card = &report["cards"][0];
        for kind in ["requested", "managed", "held"] {
            assert_eq!(card[kind]["now"], 20u64 << 30, "{kind}");
        }
        assert_eq!(card["used"], card["context"]["now"]);
        ok!(cuMemFree_v2(pointer));
        invalid!(cuMemFree_v2(pointer));
        let again = managed(20 << 30);
        assert_eq!(again, pointer);
        // SAFETY: as above.
        assert_eq!(unsafe { *(again as *const u64) }, 0, "its pages were released");
        let mut none = 0;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&raw mut none, 1 << 44, 1));
        ok!(cuMemFree_v2(again));
        let report = super::report().expect("in process");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["cards"][0]["held"]["peak"], 20u64 << 30, "what failed never was");
        managed(1);
        ok!(cuCtxDestroy_v2(context));
        let report = super::report().expect("in process");
        assert!(report.contains(r#""allocations":0"#), "{report}");
    });
}

#[test]
fn invalid_requests_for_managed_memory_are_refused() {
    alone(&[], || {
        start();
        let mut pointer = 0;
        for flags in [0, 3, CU_MEM_ATTACH_SINGLE] {
            invalid!(cuMemAllocManaged(&raw mut pointer, 1, flags));
        }
        invalid!(cuMemAllocManaged(&raw mut pointer, 0, 1));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged(&raw mut pointer, usize::MAX, 1));
        let (linear, pointer) = (allocate(100), managed(100));
        invalid!(cuMemPrefetchAsync(linear, 100, 0, null_mut()));
        invalid!(cuMemPrefetchAsync(pointer, 101, 0, null_mut()));
        fails!(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(pointer, 100, 1, null_mut()));
        ok!(cuMemPrefetchAsync(pointer, 100, -1, null_mut()));
    });
}

#[test]
fn pointers_of_every_kind_say_what_they_are() {
    alone(&[], || {
        let context = start();
        let (mut pooled, mut host, mut own) = (0, null_mut(), vec![0u8; 64]);
        ok!(cuMemAllocAsync(&raw mut pooled, 100, null_mut()));
        ok!(cuMemHostAlloc(&raw mut host, 100, 0));
        ok!(cuMemHostRegister_v2(own.as_mut_ptr().cast(), 64, 0));
        let mut pool = null_mut::<CUmemPoolHandle_st>();
        ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
        let (device, at_host) = (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST);
        // Pointer, memory type, managed, pool, context, whether the host can use it.
        let kinds = [
            (allocate(100), device, 0u8, 0, context as usize, false),
            (managed(100), device, 1, 0, context as usize, true),
            (pooled, device, 0, pool as usize, 0, false),
            (host as u64, at_host, 0, 0, context as usize, true),
            (own.as_ptr() as u64, at_host, 0, 0, context as usize, true),
        ];
        for (pointer, kind, is_managed, pool, context, on_host) in kinds {
            let inside = pointer + 9;
            assert_eq!(attribute::<u32>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), kind);
            assert_eq!(attribute::<u8>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), is_managed);
            assert_eq!(attribute::<usize>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside), pool);
            assert_eq!(attribute::<usize>(CU_POINTER_ATTRIBUTE_CONTEXT, inside), context);
            assert_eq!(attribute::<u64>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), pointer);
            assert_eq!(attribute::<u64>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
            assert_eq!(attribute::<i32>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
            assert_eq!(attribute::<u8>(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
            let mut address = 0u64;
            let out = (&raw mut address).cast();
            let host_pointer = CU_POINTER_ATTRIBUTE_HOST_POINTER;
            // SAFETY: the out is a valid one.
            let answer = unsafe { cuPointerGetAttribute(out, host_pointer, inside) };
            let expected = if on_host { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE };
            assert_eq!((answer, address), (expected, if on_host { inside } else { 0 }));
        }
    });
}
