//! Global variables of modules, and texture objects.

use super::{allocate, alone, fails, free_bytes, invalid, ok, start};
use crate::table::*;
use driver_sys::cuda::*;
use std::ffi::CStr;
use std::ptr::null_mut;

const PTX: &CStr =
    c".version 8.0\n.target sm_80\n.visible .global .align 4 .b8 table[1000];\n.const .u32 limit;\n";

fn module(image: &CStr) -> CUmodule {
    let mut module = null_mut();
    ok!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
    module
}

fn global(module: CUmodule, name: &CStr) -> (CUdeviceptr, usize) {
    let (mut pointer, mut size) = (0, 0);
    ok!(cuModuleGetGlobal_v2(&raw mut pointer, &raw mut size, module, name.as_ptr()));
    (pointer, size)
}

#[test]
fn variables_have_their_declared_size_and_keep_what_is_written() {
    alone(&[], || {
        start();
        let (module, free) = (module(PTX), free_bytes());
        let (table, size) = global(module, c"table");
        assert_eq!((size, global(module, c"limit").1), (1000, 4));
        ok!(cuMemcpyHtoD_v2(table, [7u8; 1000].as_ptr().cast(), 1000));
        let mut back = [0u8; 1000];
        ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), global(module, c"table").0, 1000));
        assert_eq!(back, [7; 1000]);
        invalid!(cuMemsetD8_v2(table, 0, 1001));
        invalid!(cuMemFree_v2(table));
        assert_eq!(free_bytes(), free, "no program asked for them");
        let mut pointer = 0;
        let none = c"none".as_ptr();
        fails!(
            CUDA_ERROR_NOT_FOUND,
            cuModuleGetGlobal_v2(&raw mut pointer, null_mut(), module, none)
        );
        ok!(cuModuleUnload(module));
        invalid!(cuMemsetD8_v2(table, 0, 1));
    });
}

#[test]
fn a_librarys_variable_is_another_one_in_each_context() {
    alone(&[], || {
        let first = start();
        let mut library = null_mut();
        let (options, values) = (null_mut(), null_mut());
        ok!(cuLibraryLoadData(
            &raw mut library,
            PTX.as_ptr().cast(),
            options,
            values,
            0,
            null_mut(),
            null_mut(),
            0
        ));
        let find = || {
            let (mut pointer, mut size) = (0, 0);
            let name = c"table".as_ptr();
            ok!(cuLibraryGetGlobal(&raw mut pointer, &raw mut size, library, name));
            pointer
        };
        let here = find();
        let mut second = null_mut();
        ok!(cuCtxCreate_v2(&raw mut second, 0, 0));
        let there = find();
        assert_ne!(here, there);
        ok!(cuCtxDestroy_v2(second));
        invalid!(cuMemsetD8_v2(there, 0, 1));
        ok!(cuMemsetD8_v2(here, 0, 1));
        ok!(cuLibraryUnload(library));
        invalid!(cuMemsetD8_v2(here, 0, 1));
        ok!(cuCtxDestroy_v2(first));
    });
}

#[test]
fn in_an_image_that_is_not_looked_into_every_name_is_a_variable() {
    alone(&[], || {
        start();
        assert_eq!(global(module(c"\x7fELF"), c"anything").1, 64 << 10);
    });
}

#[test]
fn textures_lie_in_device_memory_and_end_with_their_context() {
    alone(&[], || {
        start();
        // SAFETY: structures of numbers and pointers, here and below.
        let mut resource: CUDA_RESOURCE_DESC = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let texture: CUDA_TEXTURE_DESC = unsafe { std::mem::zeroed() };
        let mut rows = CUDA_RESOURCE_DESC_st_res_pitch2D {
            devPtr: allocate(512 * 4),
            format: CU_AD_FORMAT_UNSIGNED_INT8,
            numChannels: 1,
            width: 500,
            height: 4,
            pitchInBytes: 512,
        };
        resource.resType = CU_RESOURCE_TYPE_PITCH2D;
        let create = |resource: &CUDA_RESOURCE_DESC| {
            let mut object = 0;
            // SAFETY: every pointer is valid.
            let result = unsafe {
                cuTexObjectCreate(&raw mut object, resource, &raw const texture, null_mut())
            };
            (result, object)
        };
        resource.res.pitch2D = rows;
        let (result, object) = create(&resource);
        assert_eq!(result, CUDA_SUCCESS);
        ok!(cuTexObjectDestroy(object));
        invalid!(cuTexObjectDestroy(object));
        for (pitch, height) in [(511, 4), (512, 5), (512, 0)] {
            (rows.pitchInBytes, rows.height) = (pitch, height);
            resource.res.pitch2D = rows;
            assert_eq!(create(&resource).0, CUDA_ERROR_INVALID_VALUE, "{pitch} {height}");
        }
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        assert_eq!(create(&resource).0, CUDA_ERROR_NOT_SUPPORTED);
    });
}
