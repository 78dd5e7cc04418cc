//! Virtual memory management: lifetimes, bytes, access, refused arguments, and exported memory.

use super::{alone, fails, free_bytes, invalid, ok, report, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ptr::{null_mut, without_provenance_mut};

const GRANULE: usize = 2 << 20;

fn location(kind: CUmemLocationType, id: i32) -> CUmemLocation {
    CUmemLocation { r#type: kind, unnamed1: CUmemLocation_st_unnamed1 { id } }
}

fn properties(kind: CUmemLocationType, id: i32, types: u32) -> CUmemAllocationProp {
    // SAFETY: a structure of numbers and pointers.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.r#type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location(kind, id);
    properties.requestedHandleTypes = types;
    properties
}

fn create_at(bytes: usize, properties: CUmemAllocationProp) -> u64 {
    let mut handle = 0;
    ok!(cuMemCreate(&raw mut handle, bytes, &raw const properties, 0));
    handle
}

fn create(bytes: usize) -> u64 {
    create_at(bytes, properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0))
}

fn reserve(bytes: usize) -> u64 {
    let mut pointer = 0;
    ok!(cuMemAddressReserve(&raw mut pointer, bytes, 0, 0, 0));
    pointer
}

fn access(flags: u32) -> CUmemAccessDesc {
    CUmemAccessDesc { location: location(CU_MEM_LOCATION_TYPE_DEVICE, 0), flags }
}

fn allow(pointer: u64, bytes: usize) {
    let access = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok!(cuMemSetAccess(pointer, bytes, &raw const access, 1));
}

pub fn first_byte(pointer: u64) -> u8 {
    let mut byte = 99u8;
    ok!(cuMemcpyDtoH_v2((&raw mut byte).cast(), pointer, 1));
    byte
}

/// Bytes and number of allocations of a card, in the in-process engine's ledger.
fn held(card: usize) -> (u64, u64) {
    let report: serde_json::Value =
        serde_json::from_str(&report().expect("in process")).expect("JSON");
    let card = &report["cards"][card];
    let number = |value: &serde_json::Value| value.as_u64().expect("number");
    (number(&card["requested"]["now"]), number(&card["allocations"]))
}

#[test]
fn an_allocation_lives_until_its_last_handle_and_mapping_are_gone() {
    alone(&[], || {
        start();
        let handle = create(2 * GRANULE);
        assert_eq!(held(0), (2 * GRANULE as u64, 1));
        let pointer = reserve(8 * GRANULE);
        ok!(cuMemMap(pointer + GRANULE as u64, 2 * GRANULE, 0, handle, 0));
        ok!(cuMemRelease(handle));
        invalid!(cuMemRelease(handle));
        invalid!(cuMemMap(pointer, GRANULE, 0, handle, 0));
        assert_eq!(held(0), (2 * GRANULE as u64, 1), "it is still mapped");
        let mut again = 0;
        let inside: *mut _ = without_provenance_mut(pointer as usize + 2 * GRANULE + 5);
        ok!(cuMemRetainAllocationHandle(&raw mut again, inside));
        assert_eq!(again, handle);
        ok!(cuMemUnmap(pointer + GRANULE as u64, 2 * GRANULE));
        assert_eq!(held(0), (2 * GRANULE as u64, 1), "the handle holds it");
        ok!(cuMemRelease(handle));
        assert_eq!(held(0), (0, 0));
        ok!(cuMemAddressFree(pointer, 8 * GRANULE));
        invalid!(cuMemRetainAllocationHandle(&raw mut again, inside));
    });
}

#[test]
fn the_location_is_charged_whatever_context_is_current() {
    alone(&[("STUB_GPU_PROFILE", "t4,a100")], || {
        ok!(cuInit(0));
        let without_context = create_at(GRANULE, properties(CU_MEM_LOCATION_TYPE_DEVICE, 1, 0));
        assert_eq!((held(0), held(1)), ((0, 0), (GRANULE as u64, 1)));
        start();
        create_at(3 * GRANULE, properties(CU_MEM_LOCATION_TYPE_DEVICE, 1, 0));
        for kind in [
            CU_MEM_LOCATION_TYPE_HOST,
            CU_MEM_LOCATION_TYPE_HOST_NUMA,
            CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
        ] {
            create_at(GRANULE, properties(kind, 0, 0));
        }
        assert_eq!((held(0), held(1)), ((0, 0), (4 * GRANULE as u64, 2)));
        let free = free_bytes();
        let mut handle = 0;
        let own = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
        let too_much = (free / GRANULE + 1) * GRANULE;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&raw mut handle, too_much, &raw const own, 0));
        assert_eq!(free_bytes(), free);
        ok!(cuMemRelease(without_context));
        assert_eq!(held(1), (3 * GRANULE as u64, 1));
    });
}

#[test]
fn two_mappings_of_an_allocation_have_the_same_bytes() {
    alone(&[], || {
        start();
        let handle = create(GRANULE);
        let pointer = reserve(2 * GRANULE);
        let second = pointer + GRANULE as u64;
        ok!(cuMemMap(pointer, GRANULE, 0, handle, 0));
        ok!(cuMemMap(second, GRANULE, 0, handle, 0));
        invalid!(cuMemsetD8_v2(pointer, 5, 1));
        allow(pointer, 2 * GRANULE);
        ok!(cuMemsetD8_v2(pointer + 7, 5, 1));
        assert_eq!(first_byte(second + 7), 5);
        // A copy may cross mappings, but not leave them.
        ok!(cuMemsetD8_v2(pointer, 6, 2 * GRANULE));
        invalid!(cuMemsetD8_v2(pointer + 1, 6, 2 * GRANULE));
        let read_only = access(CU_MEM_ACCESS_FLAGS_PROT_READ);
        ok!(cuMemSetAccess(second, GRANULE, &raw const read_only, 1));
        assert_eq!(first_byte(second), 6);
        invalid!(cuMemsetD8_v2(second, 5, 1));
        let none = access(CU_MEM_ACCESS_FLAGS_PROT_NONE);
        ok!(cuMemSetAccess(second, GRANULE, &raw const none, 1));
        let mut byte = 0u8;
        let out = (&raw mut byte).cast();
        invalid!(cuMemcpyDtoH_v2(out, second, 1));
        invalid!(cuMemcpy(out as u64, second, 1));
        allow(second, GRANULE);
        assert_eq!(first_byte(second), 6, "the bytes were there all the time");
        let (mut base, mut size) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, second + 9));
        assert_eq!((base, size), (second, GRANULE));
        ok!(cuMemUnmap(pointer, 2 * GRANULE));
        ok!(cuMemRelease(handle));
        // Memory that is allocated next does not contain them.
        let next = create(GRANULE);
        ok!(cuMemMap(pointer, GRANULE, 0, next, 0));
        allow(pointer, GRANULE);
        assert_eq!(first_byte(pointer), 0);
    });
}

#[test]
fn wrong_arguments_of_virtual_memory_are_refused() {
    alone(&[], || {
        ok!(cuInit(0));
        let (mut handle, mut size, mut start) = (0, 0, 0);
        let good = properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
        for option in [CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED] {
            ok!(cuMemGetAllocationGranularity(&raw mut size, &raw const good, option));
            assert_eq!(size, GRANULE);
        }
        let out = &raw mut handle;
        for (bytes, flags) in [(0, 0), (GRANULE + 4096, 0), (GRANULE, 1)] {
            invalid!(cuMemCreate(out, bytes, &raw const good, flags));
        }
        let create_with = |kind, id, types| {
            let wrong = properties(kind, id, types);
            // SAFETY: every argument is valid memory.
            unsafe { cuMemCreate(&mut 0, GRANULE, &raw const wrong, 0) }
        };
        let device = CU_MEM_LOCATION_TYPE_DEVICE;
        assert_eq!(create_with(device, 1, 0), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(create_with(0, 0, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(create_with(device, 0, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_NOT_SUPPORTED);
        let out = &raw mut start;
        for (bytes, alignment, flags) in
            [(0, 0, 0), (GRANULE + 1, 0, 0), (GRANULE, 3, 0), (GRANULE, 0, 1)]
        {
            invalid!(cuMemAddressReserve(out, bytes, alignment, 0, flags));
        }
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(out, 1 << 60, 0, 0, 0));
        ok!(cuMemAddressReserve(out, 4 * GRANULE, 1 << 30, 0, 0));
        assert!(start.is_multiple_of(1 << 30));
        let handle = create(2 * GRANULE);
        let step = GRANULE as u64;
        ok!(cuMemMap(start, 2 * GRANULE, 0, handle, 0));
        for (at, bytes, flags) in [
            (start + step, 2 * GRANULE, 0),
            (start + 3 * step, 2 * GRANULE, 0),
            (start + 2 * step, 2 * GRANULE, 1),
            (start + 2 * step, 4096, 0),
            (start + 2 * step + 4096, 2 * GRANULE, 0),
        ] {
            invalid!(cuMemMap(at, bytes, 0, handle, flags));
        }
        for (bytes, offset) in [(GRANULE, 0), (GRANULE, GRANULE), (2 * GRANULE, GRANULE)] {
            fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(start + 2 * step, bytes, offset, handle, 0));
        }
        invalid!(cuMemMap(start + 2 * step, GRANULE, 0, 12345, 0));
        invalid!(cuMemUnmap(start, GRANULE));
        invalid!(cuMemUnmap(start, 3 * GRANULE));
        invalid!(cuMemUnmap(start + 2 * step, GRANULE));
        invalid!(cuMemAddressFree(start, 4 * GRANULE));
        let desc = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        invalid!(cuMemSetAccess(start, GRANULE, &raw const desc, 1));
        invalid!(cuMemSetAccess(start, 4 * GRANULE, &raw const desc, 1));
        ok!(cuMemUnmap(start, 2 * GRANULE));
        invalid!(cuMemAddressFree(start, GRANULE));
        ok!(cuMemAddressFree(start, 4 * GRANULE));
        invalid!(cuMemAddressFree(start, 4 * GRANULE));
    });
}

#[test]
fn an_exported_allocation_is_found_from_its_descriptor() {
    alone(&[], || {
        start();
        let handle = create_at(GRANULE, properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 1));
        let (mut descriptor, mut imported) = (-1i32, 0);
        let out = (&raw mut descriptor).cast();
        let posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        ok!(cuMemExportToShareableHandle(out, handle, posix, 0));
        let passed = || without_provenance_mut(descriptor as usize);
        ok!(cuMemImportFromShareableHandle(&raw mut imported, passed(), posix));
        assert_ne!(imported, handle);
        assert_eq!(held(0), (GRANULE as u64, 1), "counted once");
        let (first, second) = (reserve(GRANULE), reserve(GRANULE));
        ok!(cuMemMap(first, GRANULE, 0, handle, 0));
        ok!(cuMemMap(second, GRANULE, 0, imported, 0));
        allow(first, GRANULE);
        allow(second, GRANULE);
        ok!(cuMemsetD8_v2(first, 8, GRANULE));
        assert_eq!(first_byte(second), 8);
        ok!(cuMemRelease(handle));
        ok!(cuMemRelease(imported));
        ok!(cuMemUnmap(first, GRANULE));
        assert_eq!(held(0), (GRANULE as u64, 1), "still mapped");
        ok!(cuMemUnmap(second, GRANULE));
        assert_eq!(held(0), (GRANULE as u64, 1), "a descriptor keeps it");
        ok!(cuMemImportFromShareableHandle(&raw mut imported, passed(), posix));
        assert_eq!(held(0), (GRANULE as u64, 1));
        // SAFETY: a structure of numbers and pointers.
        let mut found: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        ok!(cuMemGetAllocationPropertiesFromHandle(&raw mut found, imported));
        assert_eq!((found.requestedHandleTypes, found.location.r#type), (0, 1));
        ok!(cuMemRelease(imported));
        // SAFETY: nothing else uses the descriptor.
        unsafe { libc::close(descriptor) };
        assert_eq!(held(0), (0, 0), "the last descriptor is closed");
        let imported = create_at(GRANULE, properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 1));
        let private = create(GRANULE);
        invalid!(cuMemExportToShareableHandle(out, private, posix, 0));
        let fabric = CU_MEM_HANDLE_TYPE_FABRIC;
        fails!(CUDA_ERROR_NOT_SUPPORTED, cuMemExportToShareableHandle(out, imported, fabric, 0));
        let no_memory = without_provenance_mut(0);
        let mut none = 0;
        let out = &raw mut none;
        invalid!(cuMemImportFromShareableHandle(out, no_memory, posix));
    });
}

#[test]
fn thousands_of_allocations_need_no_descriptors() {
    alone(&[], || {
        start();
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: the limit of this process, which runs one test.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        let count = 6000;
        let pointer = reserve(count * GRANULE);
        for index in 0..count {
            let handle = create(GRANULE);
            let at = pointer + (index * GRANULE) as u64;
            ok!(cuMemMap(at, GRANULE, 0, handle, 0));
            allow(at, GRANULE);
            ok!(cuMemRelease(handle));
        }
        ok!(cuMemsetD8_v2(pointer + (5999 * GRANULE) as u64, 3, 1));
        assert_eq!(held(0), ((count * GRANULE) as u64, count as u64));
        ok!(cuMemUnmap(pointer, count * GRANULE));
        assert_eq!(held(0), (0, 0));
    });
}

#[test]
fn a_mapped_pointer_has_attributes() {
    alone(&[], || {
        let handle = {
            start();
            create_at(GRANULE, properties(CU_MEM_LOCATION_TYPE_DEVICE, 0, 1))
        };
        let pointer = reserve(GRANULE);
        let (mut context, mut ordinal, mut types) = (null_mut::<CUctx_st>(), 9i32, 9u64);
        let (mut kind, mut allowed) = (9u32, 9u32);
        let attributes = [
            (CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut context).cast()),
            (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut ordinal).cast()),
            (CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, (&raw mut types).cast()),
            (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast()),
            (CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, (&raw mut allowed).cast()),
        ];
        for (attribute, out) in attributes {
            invalid!(cuPointerGetAttribute(out, attribute, pointer));
        }
        ok!(cuMemMap(pointer, GRANULE, 0, handle, 0));
        for (attribute, out) in attributes {
            ok!(cuPointerGetAttribute(out, attribute, pointer + 3));
        }
        assert_eq!((context, ordinal, types, kind, allowed), (null_mut(), 0, 1, 2, 0));
        fails!(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(null_mut(), null_mut(), pointer));
        allow(pointer, GRANULE);
        ok!(cuMemGetAddressRange_v2(null_mut(), null_mut(), pointer));
        let (attribute, out) = attributes[4];
        ok!(cuPointerGetAttribute(out, attribute, pointer));
        assert_eq!(allowed, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
        invalid!(cuMemFree_v2(pointer));
    });
}
