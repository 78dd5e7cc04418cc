//! The table: which function of cuda.h is done by which function here. See [`stub_engine::table`].
//!
//! To add a symbol, add a row. A function of the header without a row returns
//! `CUDA_ERROR_NOT_SUPPORTED`.

use crate::capture::{calls as captures, hooks as capture};
use crate::context::{self, green, primary, resources};
use crate::launch::{self, old as old_launch};
use crate::memory::array::{self, lines, mipmap};
use crate::memory::vmm::{addresses, bound, physical, share};
use crate::memory::{
    self, copy, external, fill, graph_pool, host, ipc, managed, pointer, pool, texture, volume,
};
use crate::module::{self, function, link, occupancy};
use crate::stream::{self, event};
use crate::{device, errors, graph, lookup, process};
use core::ffi::{c_char, c_void};
use driver_sys::cuda::*;
use driver_sys::{cuda_fn, each_cuda_fn};
use stub_engine::{exports, row, table};

each_cuda_fn!(exports);

table! {
    cuda_fn;

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
    cuDeviceGetUuid | cuDeviceGetUuid_v2 => device::uuid;
    cuDeviceTotalMem | cuDeviceTotalMem_v2 => device::total_memory;
    cuDeviceGetAttribute => device::attribute;
    cuDeviceComputeCapability => device::compute_capability;
    cuDeviceGetPCIBusId => device::pci_bus_id;
    cuDeviceCanAccessPeer => device::can_access_peer;

    // Primary contexts
    cuDevicePrimaryCtxRetain => primary::retain;
    cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2 => primary::release;
    cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2 => primary::reset;
    cuDevicePrimaryCtxSetFlags | cuDevicePrimaryCtxSetFlags_v2 => primary::set_flags;
    cuDevicePrimaryCtxGetState => primary::get_state;

    // Contexts
    cuCtxCreate | cuCtxCreate_v2 => context::create;
    cuCtxCreate_v3 => context::create_v3;
    cuCtxCreate_v4 => context::create_v4;
    cuCtxDestroy | cuCtxDestroy_v2 => context::destroy;
    cuCtxPushCurrent | cuCtxPushCurrent_v2 => context::push;
    cuCtxPopCurrent | cuCtxPopCurrent_v2 => context::pop;
    cuCtxSetCurrent => context::set_current;
    cuCtxGetCurrent => context::get_current;
    cuCtxGetDevice => context::get_device;
    cuCtxGetApiVersion => context::get_api_version;
    cuCtxSynchronize => context::synchronize;
    cuCtxSynchronize_v2 => context::synchronize_of;
    cuCtxGetLimit => context::limits::get;
    cuCtxSetLimit => context::limits::set;
    cuCtxSetCacheConfig => context::settings::set_cache_config;
    cuCtxGetStreamPriorityRange => context::settings::stream_priority_range;
    cuCtxAttach => context::attach;
    cuCtxDetach => context::detach;

    // Green contexts
    cuDeviceGetDevResource => resources::of_device;
    cuDevSmResourceSplitByCount => resources::split_by_count;
    cuDevResourceGenerateDesc => resources::describe;
    cuGreenCtxCreate => green::create;
    cuGreenCtxDestroy => green::destroy;
    cuCtxFromGreenCtx => green::as_context;
    cuGreenCtxGetDevResource => green::get_resource;
    cuGreenCtxStreamCreate => green::create_stream;

    // Memory
    cuMemAlloc | cuMemAlloc_v2 => memory::alloc, if capture::check_safe;
    cuMemAllocPitch | cuMemAllocPitch_v2 => memory::alloc_pitch, if capture::check_safe;
    cuMemFree | cuMemFree_v2 => memory::free, if capture::check_safe;
    cuMemGetInfo | cuMemGetInfo_v2 => memory::info;
    cuMemGetAddressRange | cuMemGetAddressRange_v2 => memory::address_range;

    // Managed memory
    cuMemAllocManaged => managed::alloc, if capture::check_safe;
    cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz => managed::prefetch;
    cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz => managed::prefetch_to;

    // Virtual memory
    cuMemGetAllocationGranularity => physical::granularity;
    cuMemCreate => physical::create;
    cuMemRelease => physical::release;
    cuMemRetainAllocationHandle => physical::retain;
    cuMemGetAllocationPropertiesFromHandle => physical::properties;
    cuMemExportToShareableHandle => share::export;
    cuMemImportFromShareableHandle => share::import;
    cuMemAddressReserve => addresses::reserve;
    cuMemAddressFree => addresses::free;
    cuMemMap => addresses::map;
    cuMemUnmap => addresses::unmap;
    cuMemSetAccess => addresses::set_access;
    cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz => bound::map_array;
    cuMulticastCreate => bound::create;
    cuMulticastAddDevice => bound::add_device;
    cuMulticastBindMem => bound::bind_memory;
    cuMulticastBindMem_v2 => bound::bind_memory_on;
    cuMulticastBindAddr => bound::bind_address;
    cuMulticastBindAddr_v2 => bound::bind_address_on;
    cuMulticastUnbind => bound::unbind;

    // Memory of other processes and other APIs
    cuIpcGetMemHandle => ipc::get_handle;
    cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2 => ipc::open;
    cuIpcCloseMemHandle => ipc::close;
    cuImportExternalMemory => external::import;
    cuExternalMemoryGetMappedBuffer => external::buffer;
    cuDestroyExternalMemory => external::destroy;

    // Memory pools
    cuDeviceGetDefaultMemPool => pool::calls::get_default;
    cuDeviceGetMemPool => pool::calls::get_current;
    cuDeviceSetMemPool => pool::calls::set_current;
    cuMemPoolCreate => pool::calls::create;
    cuMemPoolDestroy => pool::calls::destroy;
    cuMemPoolTrimTo => pool::calls::trim;
    cuMemPoolGetAttribute => pool::calls::get_attribute;
    cuMemPoolSetAttribute => pool::calls::set_attribute;
    cuMemPoolGetAccess => pool::calls::get_access;
    cuMemPoolExportToShareableHandle => pool::share::export;
    cuMemPoolImportFromShareableHandle => pool::share::import;
    cuMemPoolExportPointer => pool::share::export_pointer;
    cuMemPoolImportPointer => pool::share::import_pointer;
    cuMemPoolSetAccess => pool::calls::set_access;
    cuMemAllocAsync | cuMemAllocAsync_ptsz => pool::calls::alloc;
    cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz => pool::calls::alloc_from;
    cuMemFreeAsync | cuMemFreeAsync_ptsz => pool::calls::free;

    // Host memory
    cuMemAllocHost | cuMemAllocHost_v2 => host::alloc_plain, if capture::check_safe;
    cuMemHostAlloc => host::alloc, if capture::check_safe;
    cuMemFreeHost => host::free, if capture::check_safe;
    cuMemHostRegister | cuMemHostRegister_v2 => host::register, if capture::check_safe;
    cuMemHostUnregister => host::unregister, if capture::check_safe;
    cuMemHostGetDevicePointer | cuMemHostGetDevicePointer_v2 => host::device_pointer;

    // Copies
    cuMemcpy | cuMemcpy_ptds => copy::unified;
    cuMemcpyAsync | cuMemcpyAsync_ptsz => copy::unified_async;
    cuMemcpyHtoD | cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds => copy::to_device;
    cuMemcpyDtoH | cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds => copy::to_host;
    cuMemcpyDtoD | cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds => copy::on_device;
    cuMemcpyHtoDAsync | cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz => copy::to_device_async;
    cuMemcpyDtoHAsync | cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz => copy::to_host_async;
    cuMemcpyDtoDAsync | cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz => copy::on_device_async;
    cuMemcpyPeer | cuMemcpyPeer_ptds => copy::peer;
    cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz => copy::peer_async;
    cuMemcpy2D | cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds => volume::now;
    cuMemcpy2DUnaligned | cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds => volume::now;
    cuMemcpy2DAsync | cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz => volume::on_stream;
    cuMemcpy3D | cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds => volume::now;
    cuMemcpy3DAsync | cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz => volume::on_stream;
    cuMemcpy3DPeer | cuMemcpy3DPeer_ptds => volume::now;
    cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz => volume::on_stream;

    // Arrays
    cuArrayCreate | cuArrayCreate_v2 => array::create, if capture::check_safe;
    cuArray3DCreate | cuArray3DCreate_v2 => array::create, if capture::check_safe;
    cuArrayDestroy => array::destroy, if capture::check_safe;
    cuArrayGetDescriptor | cuArrayGetDescriptor_v2 => array::describe;
    cuArray3DGetDescriptor | cuArray3DGetDescriptor_v2 => array::describe;
    cuMipmappedArrayCreate => mipmap::create, if capture::check_safe;
    cuMipmappedArrayGetLevel => mipmap::level;
    cuMipmappedArrayDestroy => mipmap::destroy, if capture::check_safe;
    cuMemcpyHtoA | cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds => lines::from_host;
    cuMemcpyAtoH | cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds => lines::to_host;
    cuMemcpyHtoAAsync | cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz => lines::from_host_async;
    cuMemcpyAtoHAsync | cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz => lines::to_host_async;

    // Fills
    cuMemsetD8 | cuMemsetD8_v2 | cuMemsetD8_v2_ptds => fill::d8;
    cuMemsetD8Async | cuMemsetD8Async_ptsz => fill::d8_async;
    cuMemsetD2D8 | cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds => fill::d2d8;
    cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz => fill::d2d8_async;
    cuMemsetD16 | cuMemsetD16_v2 | cuMemsetD16_v2_ptds => fill::d16;
    cuMemsetD16Async | cuMemsetD16Async_ptsz => fill::d16_async;
    cuMemsetD2D16 | cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds => fill::d2d16;
    cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz => fill::d2d16_async;
    cuMemsetD32 | cuMemsetD32_v2 | cuMemsetD32_v2_ptds => fill::d32;
    cuMemsetD32Async | cuMemsetD32Async_ptsz => fill::d32_async;
    cuMemsetD2D32 | cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds => fill::d2d32;
    cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz => fill::d2d32_async;

    // Streams
    cuStreamCreate => stream::create;
    cuStreamCreateWithPriority => stream::create_with_priority;
    cuStreamDestroy | cuStreamDestroy_v2 => stream::destroy;
    cuStreamQuery | cuStreamQuery_ptsz => stream::query;
    cuStreamSynchronize | cuStreamSynchronize_ptsz => stream::synchronize;
    cuStreamWaitEvent | cuStreamWaitEvent_ptsz => stream::wait_event;
    cuStreamGetPriority | cuStreamGetPriority_ptsz => stream::get_priority;
    cuStreamGetFlags | cuStreamGetFlags_ptsz => stream::get_flags;
    cuStreamGetId | cuStreamGetId_ptsz => stream::get_id;
    cuStreamGetCtx | cuStreamGetCtx_ptsz => stream::get_context;
    cuStreamBeginCapture | cuStreamBeginCapture_ptsz => captures::begin;
    cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz => captures::begin_v2;
    cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz => captures::begin_to_graph;
    cuStreamEndCapture | cuStreamEndCapture_ptsz => captures::end;
    cuStreamIsCapturing | cuStreamIsCapturing_ptsz => captures::is_capturing;
    cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz => captures::info;
    cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz => captures::info_v2;
    cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz => captures::info_v3;
    cuStreamAddCallback | cuStreamAddCallback_ptsz => stream::add_callback;
    cuLaunchHostFunc | cuLaunchHostFunc_ptsz => stream::launch_host;
    cuLaunchHostFunc_v2 | cuLaunchHostFunc_v2_ptsz => stream::launch_host_v2;
    cuThreadExchangeStreamCaptureMode => captures::exchange_mode;

    // Events
    cuEventCreate => event::create;
    cuEventDestroy | cuEventDestroy_v2 => event::destroy;
    cuEventRecord | cuEventRecord_ptsz => event::record;
    cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz => event::record_with_flags;
    cuEventQuery => event::query;
    cuEventSynchronize => event::synchronize;
    cuEventElapsedTime | cuEventElapsedTime_v2 => event::elapsed_time;

    // Modules and libraries
    cuModuleLoad => module::load;
    cuModuleLoadData => module::load_data;
    cuModuleLoadDataEx => module::load_data_ex;
    cuModuleLoadFatBinary => module::load_data;
    cuModuleUnload => module::unload;
    cuModuleGetFunction => module::get_function;
    cuModuleEnumerateFunctions => module::enumerate;
    cuModuleGetGlobal | cuModuleGetGlobal_v2 => module::get_global;
    cuLibraryLoadData => module::load_library;
    cuLibraryUnload => module::unload_library;
    cuLibraryGetModule => module::library_module;
    cuLibraryGetKernel => module::get_kernel;
    cuLibraryEnumerateKernels => module::enumerate;
    cuLibraryGetGlobal => module::library_global;
    cuLinkCreate | cuLinkCreate_v2 => link::create;
    cuLinkAddData | cuLinkAddData_v2 => link::add_data;
    cuLinkAddFile | cuLinkAddFile_v2 => link::add_file;
    cuLinkComplete => link::complete;
    cuLinkDestroy => link::destroy;

    // Functions and launches
    cuFuncGetAttribute => function::get_attribute;
    cuFuncSetAttribute => function::set_attribute;
    cuFuncSetCacheConfig | cuFuncSetSharedMemConfig => function::set_config;
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
    cuLaunchKernel | cuLaunchKernel_ptsz => launch::kernel;
    cuLaunchKernelEx | cuLaunchKernelEx_ptsz => launch::kernel_ex;
    cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz => launch::cooperative;
    cuLaunchCooperativeKernelMultiDevice => old_launch::cooperative_on_devices;
    cuFuncSetBlockShape => old_launch::set_block;
    cuLaunch => old_launch::one;
    cuLaunchGrid => old_launch::grid;
    cuLaunchGridAsync => old_launch::grid_async;

    // Graphs
    cuGraphCreate => graph::create;
    cuGraphDestroy => graph::destroy;
    cuGraphNodeGetType => graph::node_type;
    cuGraphAddKernelNode => graph::nodes::add_kernel;
    cuGraphAddKernelNode_v2 => graph::nodes::add_kernel_v2;
    cuGraphAddMemcpyNode => graph::nodes::add_copy;
    cuGraphChildGraphNodeGetGraph => graph::nodes::get_child;
    cuGraphAddEmptyNode => graph::nodes::add_empty;
    cuGraphAddMemAllocNode => graph::memory::add_allocation;
    cuGraphMemAllocNodeGetParams => graph::memory::get_allocation;
    cuGraphAddMemFreeNode => graph::memory::add_free;
    cuGraphMemFreeNodeGetParams => graph::memory::get_free;
    cuDeviceGraphMemTrim => graph_pool::trim;
    cuDeviceGetGraphMemAttribute => graph_pool::get_attribute;
    cuDeviceSetGraphMemAttribute => graph_pool::set_attribute;
    cuGraphGetNodes => graph::edges::nodes;
    cuGraphGetEdges => graph::edges::edges;
    cuGraphInstantiate | cuGraphInstantiate_v2 => graph::exec::instantiate;
    cuGraphInstantiateWithFlags => graph::exec::instantiate_with_flags;
    cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz
        => graph::exec::instantiate_with_params;
    cuGraphExecDestroy => graph::exec::destroy;
    cuGraphExecKernelNodeSetParams => graph::change::set_kernel;
    cuGraphExecKernelNodeSetParams_v2 => graph::change::set_kernel_v2;
    cuGraphExecMemcpyNodeSetParams => graph::change::set_copy;
    cuGraphLaunch | cuGraphLaunch_ptsz => graph::run::launch;
    cuGraphUpload | cuGraphUpload_ptsz => graph::run::upload;
    cuUserObjectCreate => graph::objects::create;
    cuGraphRetainUserObject => graph::objects::retain_for_graph;
    cuGraphReleaseUserObject => graph::objects::release_from_graph;

    // Texture objects
    cuTexObjectCreate => texture::create;
    cuTexObjectDestroy => texture::destroy;

    // Pointers and occupancy
    cuPointerGetAttribute => pointer::get_attribute;
    cuPointerGetAttributes => pointer::get_attributes;
    cuOccupancyMaxActiveBlocksPerMultiprocessor => occupancy::active_blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags => occupancy::active_blocks_with_flags;
    cuOccupancyMaxPotentialBlockSize => occupancy::potential_block_size;
    cuOccupancyMaxPotentialBlockSizeWithFlags => occupancy::potential_block_size_with_flags;
}
