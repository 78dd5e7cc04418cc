//! The table: which function of the header is done by which function here.
//!
//! A row is a name and a path. The signature comes from the header, so a row that does not fit does
//! not compile; a name without a row answers `CUDA_ERROR_NOT_SUPPORTED`.

use crate::arguments::FromC;
use crate::boundary;
use crate::{
    context, copy, device, errors, event, fill, function, host, launch, link, lookup, memory,
    module, occupancy, pointer, primary, process, stream,
};
use core::ffi::{c_char, c_void};
use driver_sys::cuda::*;
use driver_sys::{cuda_fn, each_cuda_fn};

macro_rules! driver_and_exports {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        /// A symbol's number: its place in the header, and in the counters.
        #[allow(non_camel_case_types)]
        enum Symbol {
            $($name,)*
        }

        /// The driver API. What is not overridden is not supported.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        trait Driver {
            $(
                /// # Safety
                /// As NVIDIA's documentation of the function says.
                unsafe fn $name($($parameter: $type),*) -> $result {
                    $(let _ = $parameter;)*
                    process::driver().err().unwrap_or(CUDA_ERROR_NOT_SUPPORTED)
                }
            )*
        }

        $(
            #[doc = concat!("`", stringify!($name), "`")]
            ///
            /// # Safety
            /// As NVIDIA's documentation of the function says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($parameter: $type),*) -> $result {
                const PER_THREAD: bool = is_per_thread(stringify!($name));
                boundary::enter(Symbol::$name as usize, PER_THREAD, || {
                    // SAFETY: the caller's promise is handed on.
                    unsafe { <Stub as Driver>::$name($($parameter),*) }
                })
            }
        )*

        /// Every exported function's name and address.
        pub fn exports() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

/// Whether the NULL stream of the function of this name is the thread's own.
const fn is_per_thread(name: &str) -> bool {
    let name = name.as_bytes();
    matches!(name, [.., b'_', b'p', b't', b's' | b'd', b'z' | b's'])
}

/// The one driver there is.
struct Stub;

macro_rules! implemented_row {
    ($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty; $($body:ident)::+) => {
        #[allow(non_snake_case)]
        unsafe fn $name($($parameter: $type),*) -> $result {
            // SAFETY: the caller's pointers are what the header says, for as long as the call runs.
            match $($body)::+($(unsafe { FromC::from_c($parameter) }),*) {
                Ok(()) => CUDA_SUCCESS,
                Err(error) => error,
            }
        }
    };
}

macro_rules! implemented {
    ($($name:ident => $($body:ident)::+;)*) => {
        impl Driver for Stub {
            $(cuda_fn! { $name, implemented_row $($body)::+ })*
        }
    };
}

each_cuda_fn!(driver_and_exports);

implemented! {
    // Driver
    cuInit => process::init;
    cuDriverGetVersion => device::driver_version;
    cuGetErrorName => errors::name;
    cuGetErrorString => errors::string;
    cuGetProcAddress => lookup::proc_address;
    cuGetProcAddress_v2 => lookup::proc_address_v2;
    cuGetExportTable => lookup::export_table;

    // Devices
    cuDeviceGet => device::get;
    cuDeviceGetCount => device::count;
    cuDeviceGetName => device::name;
    cuDeviceGetUuid => device::uuid;
    cuDeviceGetUuid_v2 => device::uuid;
    cuDeviceTotalMem => device::total_memory;
    cuDeviceTotalMem_v2 => device::total_memory;
    cuDeviceGetAttribute => device::attribute;
    cuDeviceGetProperties => device::properties;
    cuDeviceComputeCapability => device::compute_capability;
    cuDeviceGetPCIBusId => device::pci_bus_id;
    cuDeviceGetByPCIBusId => device::by_pci_bus_id;
    cuDeviceCanAccessPeer => device::can_access_peer;
    cuDeviceGetP2PAttribute => device::peer_attribute;
    cuDeviceGetExecAffinitySupport => device::exec_affinity_support;

    // Primary contexts
    cuDevicePrimaryCtxRetain => primary::retain;
    cuDevicePrimaryCtxRelease => primary::release;
    cuDevicePrimaryCtxRelease_v2 => primary::release;
    cuDevicePrimaryCtxReset => primary::reset;
    cuDevicePrimaryCtxReset_v2 => primary::reset;
    cuDevicePrimaryCtxSetFlags => primary::set_flags;
    cuDevicePrimaryCtxSetFlags_v2 => primary::set_flags;
    cuDevicePrimaryCtxGetState => primary::get_state;

    // Contexts
    cuCtxCreate => context::create;
    cuCtxCreate_v2 => context::create;
    cuCtxCreate_v3 => context::create_v3;
    cuCtxCreate_v4 => context::create_v4;
    cuCtxDestroy => context::destroy;
    cuCtxDestroy_v2 => context::destroy;
    cuCtxPushCurrent => context::push;
    cuCtxPushCurrent_v2 => context::push;
    cuCtxPopCurrent => context::pop;
    cuCtxPopCurrent_v2 => context::pop;
    cuCtxSetCurrent => context::set_current;
    cuCtxGetCurrent => context::get_current;
    cuCtxGetDevice => context::get_device;
    cuCtxGetDevice_v2 => context::get_device_of;
    cuCtxGetFlags => context::get_flags;
    cuCtxSetFlags => context::set_flags;
    cuCtxGetId => context::get_id;
    cuCtxGetApiVersion => context::get_api_version;
    cuCtxSynchronize => context::synchronize;
    cuCtxSynchronize_v2 => context::synchronize_of;
    cuCtxGetLimit => context::get_limit;
    cuCtxSetLimit => context::set_limit;
    cuCtxGetCacheConfig => context::get_cache_config;
    cuCtxSetCacheConfig => context::set_cache_config;
    cuCtxGetSharedMemConfig => context::get_shared_config;
    cuCtxSetSharedMemConfig => context::set_shared_config;
    cuCtxGetStreamPriorityRange => context::stream_priority_range;
    cuCtxResetPersistingL2Cache => context::reset_persisting_l2;
    cuCtxAttach => context::attach;
    cuCtxDetach => context::detach;
    cuCtxEnablePeerAccess => context::enable_peer;
    cuCtxDisablePeerAccess => context::disable_peer;

    // Memory
    cuMemAlloc => memory::alloc;
    cuMemAlloc_v2 => memory::alloc;
    cuMemAllocPitch => memory::alloc_pitch;
    cuMemAllocPitch_v2 => memory::alloc_pitch;
    cuMemFree => memory::free;
    cuMemFree_v2 => memory::free;
    cuMemGetInfo => memory::info;
    cuMemGetInfo_v2 => memory::info;
    cuMemGetAddressRange => memory::address_range;
    cuMemGetAddressRange_v2 => memory::address_range;

    // Host memory
    cuMemAllocHost => host::alloc_plain;
    cuMemAllocHost_v2 => host::alloc_plain;
    cuMemHostAlloc => host::alloc;
    cuMemFreeHost => host::free;
    cuMemHostRegister => host::register;
    cuMemHostRegister_v2 => host::register;
    cuMemHostUnregister => host::unregister;
    cuMemHostGetDevicePointer => host::device_pointer;
    cuMemHostGetDevicePointer_v2 => host::device_pointer;
    cuMemHostGetFlags => host::flags;

    // Copies
    cuMemcpy => copy::unified;
    cuMemcpy_ptds => copy::unified;
    cuMemcpyAsync => copy::unified_async;
    cuMemcpyAsync_ptsz => copy::unified_async;
    cuMemcpyHtoD => copy::to_device;
    cuMemcpyHtoD_v2 => copy::to_device;
    cuMemcpyHtoD_v2_ptds => copy::to_device;
    cuMemcpyDtoH => copy::to_host;
    cuMemcpyDtoH_v2 => copy::to_host;
    cuMemcpyDtoH_v2_ptds => copy::to_host;
    cuMemcpyDtoD => copy::on_device;
    cuMemcpyDtoD_v2 => copy::on_device;
    cuMemcpyDtoD_v2_ptds => copy::on_device;
    cuMemcpyHtoDAsync => copy::to_device_async;
    cuMemcpyHtoDAsync_v2 => copy::to_device_async;
    cuMemcpyHtoDAsync_v2_ptsz => copy::to_device_async;
    cuMemcpyDtoHAsync => copy::to_host_async;
    cuMemcpyDtoHAsync_v2 => copy::to_host_async;
    cuMemcpyDtoHAsync_v2_ptsz => copy::to_host_async;
    cuMemcpyDtoDAsync => copy::on_device_async;
    cuMemcpyDtoDAsync_v2 => copy::on_device_async;
    cuMemcpyDtoDAsync_v2_ptsz => copy::on_device_async;
    cuMemcpyPeer => copy::peer;
    cuMemcpyPeer_ptds => copy::peer;
    cuMemcpyPeerAsync => copy::peer_async;
    cuMemcpyPeerAsync_ptsz => copy::peer_async;
    cuMemcpy2D_v2 => copy::rows;
    cuMemcpy2D_v2_ptds => copy::rows;
    cuMemcpy2DUnaligned_v2 => copy::rows;
    cuMemcpy2DUnaligned_v2_ptds => copy::rows;
    cuMemcpy2DAsync_v2 => copy::rows_async;
    cuMemcpy2DAsync_v2_ptsz => copy::rows_async;

    // Fills
    cuMemsetD8 => fill::d8;
    cuMemsetD8_v2 => fill::d8;
    cuMemsetD8_v2_ptds => fill::d8;
    cuMemsetD8Async => fill::d8_async;
    cuMemsetD8Async_ptsz => fill::d8_async;
    cuMemsetD2D8 => fill::d2d8;
    cuMemsetD2D8_v2 => fill::d2d8;
    cuMemsetD2D8_v2_ptds => fill::d2d8;
    cuMemsetD2D8Async => fill::d2d8_async;
    cuMemsetD2D8Async_ptsz => fill::d2d8_async;
    cuMemsetD16 => fill::d16;
    cuMemsetD16_v2 => fill::d16;
    cuMemsetD16_v2_ptds => fill::d16;
    cuMemsetD16Async => fill::d16_async;
    cuMemsetD16Async_ptsz => fill::d16_async;
    cuMemsetD2D16 => fill::d2d16;
    cuMemsetD2D16_v2 => fill::d2d16;
    cuMemsetD2D16_v2_ptds => fill::d2d16;
    cuMemsetD2D16Async => fill::d2d16_async;
    cuMemsetD2D16Async_ptsz => fill::d2d16_async;
    cuMemsetD32 => fill::d32;
    cuMemsetD32_v2 => fill::d32;
    cuMemsetD32_v2_ptds => fill::d32;
    cuMemsetD32Async => fill::d32_async;
    cuMemsetD32Async_ptsz => fill::d32_async;
    cuMemsetD2D32 => fill::d2d32;
    cuMemsetD2D32_v2 => fill::d2d32;
    cuMemsetD2D32_v2_ptds => fill::d2d32;
    cuMemsetD2D32Async => fill::d2d32_async;
    cuMemsetD2D32Async_ptsz => fill::d2d32_async;

    // Streams
    cuStreamCreate => stream::create;
    cuStreamCreateWithPriority => stream::create_with_priority;
    cuStreamDestroy => stream::destroy;
    cuStreamDestroy_v2 => stream::destroy;
    cuStreamQuery => stream::query;
    cuStreamQuery_ptsz => stream::query;
    cuStreamSynchronize => stream::synchronize;
    cuStreamSynchronize_ptsz => stream::synchronize;
    cuStreamWaitEvent => stream::wait_event;
    cuStreamWaitEvent_ptsz => stream::wait_event;
    cuStreamGetPriority => stream::get_priority;
    cuStreamGetPriority_ptsz => stream::get_priority;
    cuStreamGetFlags => stream::get_flags;
    cuStreamGetFlags_ptsz => stream::get_flags;
    cuStreamGetId => stream::get_id;
    cuStreamGetId_ptsz => stream::get_id;
    cuStreamGetCtx => stream::get_context;
    cuStreamGetCtx_ptsz => stream::get_context;
    cuStreamGetCtx_v2 => stream::get_contexts;
    cuStreamGetCtx_v2_ptsz => stream::get_contexts;
    cuStreamGetDevice => stream::get_device;
    cuStreamGetDevice_ptsz => stream::get_device;
    cuStreamIsCapturing => stream::is_capturing;
    cuStreamIsCapturing_ptsz => stream::is_capturing;
    cuStreamGetCaptureInfo => stream::capture_info;
    cuStreamGetCaptureInfo_ptsz => stream::capture_info;
    cuStreamGetCaptureInfo_v2 => stream::capture_info_v2;
    cuStreamGetCaptureInfo_v2_ptsz => stream::capture_info_v2;
    cuStreamGetCaptureInfo_v3 => stream::capture_info_v3;
    cuStreamGetCaptureInfo_v3_ptsz => stream::capture_info_v3;
    cuStreamAddCallback => stream::add_callback;
    cuStreamAddCallback_ptsz => stream::add_callback;
    cuLaunchHostFunc => stream::launch_host;
    cuLaunchHostFunc_ptsz => stream::launch_host;
    cuLaunchHostFunc_v2 => stream::launch_host_v2;
    cuLaunchHostFunc_v2_ptsz => stream::launch_host_v2;
    cuThreadExchangeStreamCaptureMode => stream::exchange_capture_mode;

    // Events
    cuEventCreate => event::create;
    cuEventDestroy => event::destroy;
    cuEventDestroy_v2 => event::destroy;
    cuEventRecord => event::record;
    cuEventRecord_ptsz => event::record;
    cuEventRecordWithFlags => event::record_with_flags;
    cuEventRecordWithFlags_ptsz => event::record_with_flags;
    cuEventQuery => event::query;
    cuEventSynchronize => event::synchronize;
    cuEventElapsedTime => event::elapsed_time;
    cuEventElapsedTime_v2 => event::elapsed_time;

    // Modules and libraries
    cuModuleLoad => module::load;
    cuModuleLoadData => module::load_data;
    cuModuleLoadDataEx => module::load_data_ex;
    cuModuleLoadFatBinary => module::load_data;
    cuModuleUnload => module::unload;
    cuModuleGetLoadingMode => module::loading_mode;
    cuModuleGetFunction => module::get_function;
    cuModuleGetFunctionCount => module::count;
    cuModuleEnumerateFunctions => module::enumerate;
    cuModuleGetGlobal => module::get_global;
    cuModuleGetGlobal_v2 => module::get_global;
    cuModuleGetTexRef => module::get_reference;
    cuModuleGetSurfRef => module::get_reference;
    cuLibraryLoadData => module::load_library;
    cuLibraryLoadFromFile => module::load_library_file;
    cuLibraryUnload => module::unload_library;
    cuLibraryGetModule => module::library_module;
    cuLibraryGetKernel => module::get_kernel;
    cuLibraryGetKernelCount => module::count;
    cuLibraryEnumerateKernels => module::enumerate;
    cuLibraryGetGlobal => module::library_global;
    cuLibraryGetManaged => module::library_global;
    cuLibraryGetUnifiedFunction => module::unified_function;
    cuLinkCreate => link::create;
    cuLinkCreate_v2 => link::create;
    cuLinkAddData => link::add_data;
    cuLinkAddData_v2 => link::add_data;
    cuLinkAddFile => link::add_file;
    cuLinkAddFile_v2 => link::add_file;
    cuLinkComplete => link::complete;
    cuLinkDestroy => link::destroy;

    // Functions and launches
    cuFuncGetAttribute => function::get_attribute;
    cuFuncSetAttribute => function::set_attribute;
    cuFuncSetCacheConfig => function::set_config;
    cuFuncSetSharedMemConfig => function::set_config;
    cuFuncGetModule => function::module;
    cuFuncGetName => function::name;
    cuFuncIsLoaded => function::is_loaded;
    cuFuncLoad => function::load;
    cuKernelGetFunction => function::of_kernel;
    cuKernelGetLibrary => function::module;
    cuKernelGetName => function::name;
    cuKernelGetAttribute => function::kernel_attribute;
    cuKernelSetAttribute => function::set_kernel_attribute;
    cuKernelSetCacheConfig => function::set_kernel_config;
    cuLaunchKernel => launch::kernel;
    cuLaunchKernel_ptsz => launch::kernel;
    cuLaunchKernelEx => launch::kernel_ex;
    cuLaunchKernelEx_ptsz => launch::kernel_ex;
    cuLaunchCooperativeKernel => launch::cooperative;
    cuLaunchCooperativeKernel_ptsz => launch::cooperative;

    // Pointers and occupancy
    cuPointerGetAttribute => pointer::get_attribute;
    cuPointerGetAttributes => pointer::get_attributes;
    cuPointerSetAttribute => pointer::set_attribute;
    cuOccupancyMaxActiveBlocksPerMultiprocessor => occupancy::active_blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => occupancy::active_blocks_with_flags;
    cuOccupancyMaxPotentialBlockSize => occupancy::potential_block_size;
    cuOccupancyMaxPotentialBlockSizeWithFlags => occupancy::potential_block_size_with_flags;
    cuOccupancyAvailableDynamicSMemPerBlock => occupancy::available_shared;
    cuOccupancyMaxActiveClusters => occupancy::active_clusters;
}
