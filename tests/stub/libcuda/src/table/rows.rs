//! The rows of the table: a function of the header, and who does it.

/// Hands all rows to a macro.
macro_rules! each_row {
    ($then:ident) => {
        $then! {
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
            cuCtxGetLimit => context::settings::get_limit;
            cuCtxSetLimit => context::settings::set_limit;
            cuCtxGetCacheConfig => context::settings::get_cache_config;
            cuCtxSetCacheConfig => context::settings::set_cache_config;
            cuCtxGetSharedMemConfig => context::settings::get_shared_config;
            cuCtxSetSharedMemConfig => context::settings::set_shared_config;
            cuCtxGetStreamPriorityRange => context::settings::stream_priority_range;
            cuCtxResetPersistingL2Cache => context::settings::reset_persisting_l2;
            cuCtxAttach => context::attach;
            cuCtxDetach => context::detach;
            cuCtxEnablePeerAccess => context::settings::enable_peer;
            cuCtxDisablePeerAccess => context::settings::disable_peer;

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

            // Managed memory
            cuMemAllocManaged => managed::alloc;
            cuMemPrefetchAsync => managed::prefetch;
            cuMemPrefetchAsync_ptsz => managed::prefetch;
            cuMemPrefetchAsync_v2 => managed::prefetch_to;
            cuMemPrefetchAsync_v2_ptsz => managed::prefetch_to;
            cuMemAdvise => managed::advise;
            cuMemAdvise_v2 => managed::advise_at;
            cuMemRangeGetAttribute => managed::range_attribute;
            cuMemRangeGetAttributes => managed::range_attributes;
            cuStreamAttachMemAsync => managed::attach;
            cuStreamAttachMemAsync_ptsz => managed::attach;

            // Memory pools
            cuDeviceGetDefaultMemPool => pool::calls::get_default;
            cuDeviceGetMemPool => pool::calls::get_current;
            cuDeviceSetMemPool => pool::calls::set_current;
            cuMemGetDefaultMemPool => pool::calls::get_default_at;
            cuMemGetMemPool => pool::calls::get_current_at;
            cuMemSetMemPool => pool::calls::set_current_at;
            cuMemPoolCreate => pool::calls::create;
            cuMemPoolDestroy => pool::calls::destroy;
            cuMemPoolTrimTo => pool::calls::trim;
            cuMemPoolGetAttribute => pool::attribute::get;
            cuMemPoolSetAttribute => pool::attribute::set;
            cuMemPoolGetAccess => pool::calls::get_access;
            cuMemPoolSetAccess => pool::calls::set_access;
            cuMemAllocAsync => pool::calls::alloc;
            cuMemAllocAsync_ptsz => pool::calls::alloc;
            cuMemAllocFromPoolAsync => pool::calls::alloc_from;
            cuMemAllocFromPoolAsync_ptsz => pool::calls::alloc_from;
            cuMemFreeAsync => pool::calls::free;
            cuMemFreeAsync_ptsz => pool::calls::free;

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
            cuLibraryGetManaged => module::library_managed;
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
            cuLaunchCooperativeKernelMultiDevice => old_launch::cooperative_on_devices;
            cuFuncSetBlockShape => old_launch::set_block;
            cuFuncSetSharedSize => old_launch::set_shared;
            cuParamSetSize => old_launch::set_size;
            cuParamSeti => old_launch::set_integer;
            cuParamSetf => old_launch::set_float;
            cuParamSetv => old_launch::set_bytes;
            cuLaunch => old_launch::one;
            cuLaunchGrid => old_launch::grid;
            cuLaunchGridAsync => old_launch::grid_async;

            // Texture objects
            cuTexObjectCreate => texture::create;
            cuTexObjectDestroy => texture::destroy;
            cuTexObjectGetResourceDesc => texture::get_resource;
            cuTexObjectGetTextureDesc => texture::get_texture;
            cuTexObjectGetResourceViewDesc => texture::get_view;

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
    };
}

pub(super) use each_row;
