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
    self, copy, external, fill, graph_pool, host, ipc, managed, pointer, pool, surface, texture,
    volume,
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
    cuDeviceGetProperties => device::properties;
    cuDeviceComputeCapability => device::compute_capability;
    cuDeviceGetPCIBusId => device::pci_bus_id;
    cuDeviceGetByPCIBusId => device::by_pci_bus_id;
    cuDeviceCanAccessPeer => device::can_access_peer;
    cuDeviceGetP2PAttribute => device::peer_attribute;
    cuDeviceGetExecAffinitySupport => device::exec_affinity_support;

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
    cuCtxGetDevice_v2 => context::get_device_of;
    cuCtxGetFlags => context::get_flags;
    cuCtxSetFlags => context::set_flags;
    cuCtxGetId => context::get_id;
    cuCtxGetApiVersion => context::get_api_version;
    cuCtxSynchronize => context::synchronize;
    cuCtxSynchronize_v2 => context::synchronize_of;
    cuCtxGetLimit => context::limits::get;
    cuCtxSetLimit => context::limits::set;
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

    // Green contexts
    cuDeviceGetDevResource => resources::of_device;
    cuCtxGetDevResource => resources::of_context;
    cuDevSmResourceSplitByCount => resources::split_by_count;
    cuDevResourceGenerateDesc => resources::describe;
    cuGreenCtxCreate => green::create;
    cuGreenCtxDestroy => green::destroy;
    cuCtxFromGreenCtx => green::as_context;
    cuGreenCtxGetDevResource => green::get_resource;
    cuGreenCtxGetId => green::get_id;
    cuGreenCtxStreamCreate => green::create_stream;
    cuGreenCtxRecordEvent => green::record_event;
    cuGreenCtxWaitEvent => green::wait_event;

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
    cuMemAdvise => managed::advise;
    cuMemAdvise_v2 => managed::advise_at;
    cuMemRangeGetAttribute => managed::range_attribute;
    cuMemRangeGetAttributes => managed::range_attributes;
    cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz => managed::attach;

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
    cuMemGetAccess => addresses::get_access;
    cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz => bound::map_array;
    cuMulticastCreate => bound::create;
    cuMulticastAddDevice => bound::add_device;
    cuMulticastBindMem => bound::bind_memory;
    cuMulticastBindMem_v2 => bound::bind_memory_on;
    cuMulticastBindAddr => bound::bind_address;
    cuMulticastBindAddr_v2 => bound::bind_address_on;
    cuMulticastUnbind => bound::unbind;
    cuMulticastGetGranularity => bound::granularity;

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
    cuMemGetDefaultMemPool => pool::calls::get_default_at;
    cuMemGetMemPool => pool::calls::get_current_at;
    cuMemSetMemPool => pool::calls::set_current_at;
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
    cuMemHostGetFlags => host::flags;

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
    cuArrayGetMemoryRequirements => array::requirements;
    cuArrayGetSparseProperties => array::sparse_properties;
    cuArrayGetPlane => array::plane;
    cuMipmappedArrayCreate => mipmap::create, if capture::check_safe;
    cuMipmappedArrayGetLevel => mipmap::level;
    cuMipmappedArrayDestroy => mipmap::destroy, if capture::check_safe;
    cuMipmappedArrayGetMemoryRequirements => mipmap::requirements;
    cuMipmappedArrayGetSparseProperties => mipmap::sparse_properties;
    cuMemcpyHtoA | cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds => lines::from_host;
    cuMemcpyAtoH | cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds => lines::to_host;
    cuMemcpyDtoA | cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds => lines::from_device;
    cuMemcpyAtoD | cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds => lines::to_device;
    cuMemcpyAtoA | cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds => lines::between;
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
    cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz => stream::get_contexts;
    cuStreamGetGreenCtx => stream::get_green;
    cuStreamGetDevResource | cuStreamGetDevResource_ptsz => stream::get_resource;
    cuStreamGetDevice | cuStreamGetDevice_ptsz => stream::get_device;
    cuStreamBeginCapture | cuStreamBeginCapture_ptsz => captures::begin;
    cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz => captures::begin_v2;
    cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz => captures::begin_to_graph;
    cuStreamEndCapture | cuStreamEndCapture_ptsz => captures::end;
    cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz => captures::update;
    cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz
        => captures::update_v2;
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
    cuModuleGetLoadingMode => module::loading_mode;
    cuModuleGetFunction => module::get_function;
    cuModuleGetFunctionCount => module::count;
    cuModuleEnumerateFunctions => module::enumerate;
    cuModuleGetGlobal | cuModuleGetGlobal_v2 => module::get_global;
    cuModuleGetTexRef | cuModuleGetSurfRef => module::get_reference;
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
    cuFuncSetSharedSize => old_launch::set_shared;
    cuParamSetSize => old_launch::set_size;
    cuParamSeti => old_launch::set_integer;
    cuParamSetf => old_launch::set_float;
    cuParamSetv => old_launch::set_bytes;
    cuLaunch => old_launch::one;
    cuLaunchGrid => old_launch::grid;
    cuLaunchGridAsync => old_launch::grid_async;

    // Graphs
    cuGraphCreate => graph::create;
    cuGraphDestroy => graph::destroy;
    cuGraphClone => graph::duplicate;
    cuGraphNodeFindInClone => graph::find_in_clone;
    cuGraphGetId => graph::get_id;
    cuGraphNodeGetContainingGraph => graph::containing;
    cuGraphNodeGetLocalId => graph::local_id;
    cuGraphNodeGetToolsId => graph::tools_id;
    cuGraphNodeGetType => graph::node_type;
    cuGraphDestroyNode => graph::destroy_node;
    cuGraphAddKernelNode => graph::nodes::add_kernel;
    cuGraphAddKernelNode_v2 => graph::nodes::add_kernel_v2;
    cuGraphKernelNodeGetParams => graph::nodes::get_kernel;
    cuGraphKernelNodeGetParams_v2 => graph::nodes::get_kernel_v2;
    cuGraphKernelNodeSetParams => graph::nodes::set_kernel;
    cuGraphKernelNodeSetParams_v2 => graph::nodes::set_kernel_v2;
    cuGraphAddMemcpyNode => graph::nodes::add_copy;
    cuGraphMemcpyNodeGetParams => graph::nodes::get_copy;
    cuGraphMemcpyNodeSetParams => graph::nodes::set_copy;
    cuGraphAddMemsetNode => graph::nodes::add_fill;
    cuGraphMemsetNodeGetParams => graph::nodes::get_fill;
    cuGraphMemsetNodeSetParams => graph::nodes::set_fill;
    cuGraphAddHostNode => graph::nodes::add_host;
    cuGraphHostNodeGetParams => graph::nodes::get_host;
    cuGraphHostNodeSetParams => graph::nodes::set_host;
    cuGraphAddChildGraphNode => graph::nodes::add_child;
    cuGraphChildGraphNodeGetGraph => graph::nodes::get_child;
    cuGraphAddEmptyNode => graph::nodes::add_empty;
    cuGraphAddEventRecordNode => graph::nodes::add_record;
    cuGraphEventRecordNodeGetEvent => graph::nodes::get_record;
    cuGraphEventRecordNodeSetEvent => graph::nodes::set_record;
    cuGraphAddEventWaitNode => graph::nodes::add_wait;
    cuGraphEventWaitNodeGetEvent => graph::nodes::get_wait;
    cuGraphEventWaitNodeSetEvent => graph::nodes::set_wait;
    cuGraphAddMemAllocNode => graph::memory::add_allocation;
    cuGraphMemAllocNodeGetParams => graph::memory::get_allocation;
    cuGraphAddMemFreeNode => graph::memory::add_free;
    cuGraphMemFreeNodeGetParams => graph::memory::get_free;
    cuDeviceGraphMemTrim => graph_pool::trim;
    cuDeviceGetGraphMemAttribute => graph_pool::get_attribute;
    cuDeviceSetGraphMemAttribute => graph_pool::set_attribute;
    cuGraphAddNode => graph::nodes::add_any;
    cuGraphAddNode_v2 | cuGraphAddNode_v3 => graph::nodes::add_any_v2;
    cuGraphNodeGetParams => graph::nodes::get_any;
    cuGraphNodeSetParams | cuGraphNodeSetParams_v2 => graph::nodes::set_any;
    cuGraphKernelNodeGetAttribute => graph::nodes::get_attribute;
    cuGraphKernelNodeSetAttribute => graph::nodes::set_attribute;
    cuGraphKernelNodeCopyAttributes => graph::nodes::copy_attributes;
    cuGraphGetNodes => graph::edges::nodes;
    cuGraphGetRootNodes => graph::edges::roots;
    cuGraphGetEdges => graph::edges::edges;
    cuGraphGetEdges_v2 => graph::edges::edges_v2;
    cuGraphNodeGetDependencies => graph::edges::dependencies;
    cuGraphNodeGetDependencies_v2 => graph::edges::dependencies_v2;
    cuGraphNodeGetDependentNodes => graph::edges::dependents;
    cuGraphNodeGetDependentNodes_v2 => graph::edges::dependents_v2;
    cuGraphAddDependencies => graph::edges::add;
    cuGraphAddDependencies_v2 => graph::edges::add_v2;
    cuGraphRemoveDependencies => graph::edges::remove;
    cuGraphRemoveDependencies_v2 => graph::edges::remove_v2;
    cuGraphInstantiate | cuGraphInstantiate_v2 => graph::exec::instantiate;
    cuGraphInstantiateWithFlags => graph::exec::instantiate_with_flags;
    cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz
        => graph::exec::instantiate_with_params;
    cuGraphExecDestroy => graph::exec::destroy;
    cuGraphExecGetFlags => graph::exec::get_flags;
    cuGraphExecGetId => graph::exec::get_id;
    cuGraphDebugDotPrint => graph::exec::print;
    cuGraphExecKernelNodeSetParams => graph::change::set_kernel;
    cuGraphExecKernelNodeSetParams_v2 => graph::change::set_kernel_v2;
    cuGraphExecMemcpyNodeSetParams => graph::change::set_copy;
    cuGraphExecMemsetNodeSetParams => graph::change::set_fill;
    cuGraphExecHostNodeSetParams => graph::change::set_host;
    cuGraphExecEventRecordNodeSetEvent => graph::change::set_record;
    cuGraphExecEventWaitNodeSetEvent => graph::change::set_wait;
    cuGraphExecNodeSetParams => graph::change::set_any;
    cuGraphNodeSetEnabled => graph::change::set_enabled;
    cuGraphNodeGetEnabled => graph::change::get_enabled;
    cuGraphExecUpdate => graph::update::update;
    cuGraphExecUpdate_v2 => graph::update::update_v2;
    cuGraphExecChildGraphNodeSetParams => graph::update::set_child;
    cuGraphLaunch | cuGraphLaunch_ptsz => graph::run::launch;
    cuGraphUpload | cuGraphUpload_ptsz => graph::run::upload;
    cuUserObjectCreate => graph::objects::create;
    cuUserObjectRetain => graph::objects::retain;
    cuUserObjectRelease => graph::objects::release;
    cuGraphRetainUserObject => graph::objects::retain_for_graph;
    cuGraphReleaseUserObject => graph::objects::release_from_graph;

    // Texture and surface objects
    cuTexObjectCreate => texture::create;
    cuTexObjectDestroy => texture::destroy;
    cuTexObjectGetResourceDesc => texture::get_resource;
    cuTexObjectGetTextureDesc => texture::get_texture;
    cuTexObjectGetResourceViewDesc => texture::get_view;
    cuSurfObjectCreate => surface::create;
    cuSurfObjectDestroy => surface::destroy;
    cuSurfObjectGetResourceDesc => surface::get_resource;

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
