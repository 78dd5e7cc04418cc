//! The hook table: the one list of the driver functions that the library hooks or calls.
//!
//! A row of the table is a symbol of the CUDA driver or of NVML. Two crates expand it, so that no
//! symbol is written down twice: `vgpu-driver` makes an address and a typed caller from each row,
//! and `vgpu` makes the exported wrapper from each row that names a body. To hook a symbol, add a
//! row here and write the body that it names in `vgpu`; the signature comes from NVIDIA's header.
//!
//! The section of a row decides what the wrapper does:
//!
//! - `fail_closed`: the body decides. If it panics, the call is refused with the section's error.
//!   For everything that allocates memory, and for lists of processes: the driver's have those of
//!   others.
//! - `fail_open`: the body changes what the program sees. If it panics, the driver gets the call
//!   unchanged.
//! - `observe`: the driver decides, and the body gets the result.
//! - `wait`: the same for calls that wait for work.
//! - `launch`: a jump to the driver's function. Where launches are limited, admission runs first. A
//!   row names how the arguments are laid out, and whether the launch may be of a graph that
//!   allocates (`graph`) or not (`plain`). These symbols are hooked in every process, because a
//!   program keeps the pointers that it got.
//! - `stream_op`: the same jump for other work on a stream: copies, waits, host functions. The
//!   compute engine is idle meanwhile, so the launches before such work are measured by themselves.
//!   A row names the position of the stream among the arguments.
//! - `call`: not hooked, but called by bodies.
//!
//! `policy.toml` states what happens to every other symbol of the driver.
#![no_std]

/// Hands all rows to the macro `then`. The path of a body starts at the root of the crate `vgpu`.
#[macro_export]
macro_rules! hook_table {
    ($then:ident) => {
        $then! {
            library Cuda (cuda_fn, CUDA_ERROR_NOT_SUPPORTED) {
                fail_closed CUDA_ERROR_OUT_OF_MEMORY {
                    cuInit => init::init;
                    cuMemAlloc => memory::alloc_v1;
                    cuMemAlloc_v2 => memory::alloc;
                    cuMemAllocPitch => memory::alloc_pitch_v1;
                    cuMemAllocPitch_v2 => memory::alloc_pitch;
                    cuMemAllocManaged => memory::alloc_managed;
                    cuMemAllocAsync => stream_ordered::alloc;
                    cuMemAllocAsync_ptsz => stream_ordered::alloc_ptsz;
                    cuMemAllocFromPoolAsync => stream_ordered::alloc_from_pool;
                    cuMemAllocFromPoolAsync_ptsz => stream_ordered::alloc_from_pool_ptsz;
                    cuMemPoolCreate => stream_ordered::pool_create;
                    cuArrayCreate => arrays::create_flat_v1;
                    cuArrayCreate_v2 => arrays::create_flat;
                    cuArray3DCreate => arrays::create_3d_v1;
                    cuArray3DCreate_v2 => arrays::create_3d;
                    cuMipmappedArrayCreate => arrays::create_mipmapped;
                    cuMemCreate => virtual_memory::create;
                    cuMemMap => virtual_memory::map;
                    cuMemMapArrayAsync => bindings::map_array;
                    cuMemMapArrayAsync_ptsz => bindings::map_array_ptsz;
                    cuMulticastCreate => bindings::create;
                    cuMulticastBindMem => bindings::bind_memory;
                    cuMulticastBindMem_v2 => bindings::bind_memory_v2;
                    cuMulticastBindAddr => bindings::bind_address;
                    cuMulticastBindAddr_v2 => bindings::bind_address_v2;
                    cuMemImportFromShareableHandle => virtual_memory::import;
                    cuImportExternalMemory => external::import;
                    cuIpcOpenMemHandle => ipc::open_v1;
                    cuIpcOpenMemHandle_v2 => ipc::open;
                    cuGraphInstantiate => graphs::instantiate_v1;
                    cuGraphInstantiate_v2 => graphs::instantiate_v2;
                    cuGraphInstantiateWithFlags => graphs::instantiate_with_flags;
                    cuGraphInstantiateWithParams => graphs::instantiate_with_params;
                    cuGraphInstantiateWithParams_ptsz => graphs::instantiate_with_params_ptsz;
                    cuGraphUpload => graphs::upload;
                    cuGraphUpload_ptsz => graphs::upload_ptsz;
                    cuCtxCreate => context::create_v1;
                    cuCtxCreate_v2 => context::create_v2;
                    cuCtxCreate_v3 => context::create_v3;
                    cuCtxCreate_v4 => context::create_v4;
                    cuDevicePrimaryCtxRetain => context::primary_retain;
                    cuGreenCtxCreate => context::create_green;
                    cuCtxSetLimit => context::set_limit;
                    cuModuleGetFunction => functions::of_module;
                    cuKernelGetFunction => functions::of_kernel;
                    cuLibraryGetKernel => functions::of_library;
                }
                fail_open {
                    cuGetProcAddress => lookup::get_proc_address_v1;
                    cuGetProcAddress_v2 => lookup::get_proc_address;
                    cuMemFree => memory::free_v1;
                    cuMemFree_v2 => memory::free;
                    cuMemFreeAsync => stream_ordered::free;
                    cuMemFreeAsync_ptsz => stream_ordered::free_ptsz;
                    cuArrayDestroy => arrays::destroy;
                    cuMipmappedArrayDestroy => arrays::destroy_mipmapped;
                    cuMemRelease => virtual_memory::release;
                    cuMemRetainAllocationHandle => virtual_memory::retain;
                    cuMemUnmap => virtual_memory::unmap;
                    cuMulticastUnbind => bindings::unbind;
                    cuMemExportToShareableHandle => virtual_memory::export;
                    cuExternalMemoryGetMappedBuffer => external::buffer;
                    cuExternalMemoryGetMappedMipmappedArray => external::mipmapped_array;
                    cuDestroyExternalMemory => external::destroy;
                    cuIpcGetMemHandle => ipc::get_handle;
                    cuIpcCloseMemHandle => ipc::close;
                    cuGraphExecDestroy => graphs::destroy;
                    cuDeviceGraphMemTrim => graphs::trim;
                    cuMemPoolDestroy => stream_ordered::pool_destroy;
                    cuMemPoolTrimTo => stream_ordered::pool_trim;
                    cuCtxDestroy => context::destroy_v1;
                    cuCtxDestroy_v2 => context::destroy;
                    cuCtxDetach => context::detach;
                    cuGreenCtxDestroy => context::destroy_green;
                    cuDevicePrimaryCtxRelease => context::primary_release_v1;
                    cuDevicePrimaryCtxRelease_v2 => context::primary_release;
                    cuDevicePrimaryCtxReset => context::primary_reset_v1;
                    cuDevicePrimaryCtxReset_v2 => context::primary_reset;
                    cuMemGetInfo => info::mem_get_info_v1;
                    cuMemGetInfo_v2 => info::mem_get_info;
                    cuDeviceTotalMem => info::device_total_mem_v1;
                    cuDeviceTotalMem_v2 => info::device_total_mem;
                    cuStreamDestroy => launch::stream_destroy_v1;
                    cuStreamDestroy_v2 => launch::stream_destroy;
                    cuStreamBeginCapture => capture::begin_v1;
                    cuStreamBeginCapture_ptsz => capture::begin_v1_ptsz;
                    cuStreamBeginCapture_v2 => capture::begin_v2;
                    cuStreamBeginCapture_v2_ptsz => capture::begin_v2_ptsz;
                    cuStreamBeginCaptureToGraph => capture::begin_to_graph;
                    cuStreamBeginCaptureToGraph_ptsz => capture::begin_to_graph_ptsz;
                    cuStreamBeginRecaptureToGraph => capture::begin_again;
                    cuStreamBeginRecaptureToGraph_ptsz => capture::begin_again_ptsz;
                    cuStreamEndCapture => capture::end_capture;
                    cuStreamEndCapture_ptsz => capture::end_capture_ptsz;
                }
                observe {
                    cuCtxPopCurrent => launch::context_changed;
                    cuCtxPopCurrent_v2 => launch::context_changed;
                    cuCtxPushCurrent => launch::context_changed;
                    cuCtxPushCurrent_v2 => launch::context_changed;
                    cuCtxSetCurrent => launch::context_changed;
                    cuStreamQuery => synchronize::queried;
                    cuStreamQuery_ptsz => synchronize::queried;
                    cuEventQuery => synchronize::queried;
                }
                wait {
                    cuStreamSynchronize => synchronize::waited;
                    cuStreamSynchronize_ptsz => synchronize::waited;
                    cuEventSynchronize => synchronize::waited;
                    cuCtxSynchronize => synchronize::waited;
                    cuCtxSynchronize_v2 => synchronize::waited;
                }
                launch {
                    cuLaunchKernel => Kernel plain;
                    cuLaunchKernel_ptsz => KernelOfThread plain;
                    cuLaunchKernelEx => Config plain;
                    cuLaunchKernelEx_ptsz => ConfigOfThread plain;
                    cuLaunchCooperativeKernel => Kernel plain;
                    cuLaunchCooperativeKernel_ptsz => KernelOfThread plain;
                    cuLaunchCooperativeKernelMultiDevice => Several plain;
                    cuLaunch => Old plain;
                    cuLaunchGrid => Old plain;
                    cuLaunchGridAsync => OldAsync plain;
                    cuGraphLaunch => Graph graph;
                    cuGraphLaunch_ptsz => GraphOfThread graph;
                }
                stream_op {
                    cuMemcpyAsync => 3;
                    cuMemcpyAsync_ptsz => 3;
                    cuMemcpyPeerAsync => 5;
                    cuMemcpyPeerAsync_ptsz => 5;
                    cuMemcpyHtoDAsync_v2 => 3;
                    cuMemcpyHtoDAsync_v2_ptsz => 3;
                    cuMemcpyDtoHAsync_v2 => 3;
                    cuMemcpyDtoHAsync_v2_ptsz => 3;
                    cuMemcpyDtoDAsync_v2 => 3;
                    cuMemcpyDtoDAsync_v2_ptsz => 3;
                    cuMemcpyHtoAAsync_v2 => 4;
                    cuMemcpyHtoAAsync_v2_ptsz => 4;
                    cuMemcpyAtoHAsync_v2 => 4;
                    cuMemcpyAtoHAsync_v2_ptsz => 4;
                    cuMemcpy2DAsync_v2 => 1;
                    cuMemcpy2DAsync_v2_ptsz => 1;
                    cuMemcpy3DAsync_v2 => 1;
                    cuMemcpy3DAsync_v2_ptsz => 1;
                    cuMemcpy3DPeerAsync => 1;
                    cuMemcpy3DPeerAsync_ptsz => 1;
                    cuMemcpyBatchAsync => 8;
                    cuMemcpyBatchAsync_ptsz => 8;
                    cuMemcpyBatchAsync_v2 => 7;
                    cuMemcpyBatchAsync_v2_ptsz => 7;
                    cuMemcpy3DBatchAsync => 4;
                    cuMemcpy3DBatchAsync_ptsz => 4;
                    cuMemcpy3DBatchAsync_v2 => 3;
                    cuMemcpy3DBatchAsync_v2_ptsz => 3;
                    cuMemcpyWithAttributesAsync => 4;
                    cuMemcpyWithAttributesAsync_ptsz => 4;
                    cuMemcpy3DWithAttributesAsync => 2;
                    cuMemcpy3DWithAttributesAsync_ptsz => 2;
                    cuMemPrefetchAsync => 3;
                    cuMemPrefetchAsync_ptsz => 3;
                    cuMemPrefetchAsync_v2 => 4;
                    cuMemPrefetchAsync_v2_ptsz => 4;
                    cuMemPrefetchBatchAsync => 7;
                    cuMemPrefetchBatchAsync_ptsz => 7;
                    cuStreamWaitEvent => 0;
                    cuStreamWaitEvent_ptsz => 0;
                    cuStreamAddCallback => 0;
                    cuStreamAddCallback_ptsz => 0;
                    cuStreamWaitValue32 => 0;
                    cuStreamWaitValue32_ptsz => 0;
                    cuStreamWaitValue32_v2 => 0;
                    cuStreamWaitValue32_v2_ptsz => 0;
                    cuStreamWaitValue64 => 0;
                    cuStreamWaitValue64_ptsz => 0;
                    cuStreamWaitValue64_v2 => 0;
                    cuStreamWaitValue64_v2_ptsz => 0;
                    cuStreamBatchMemOp => 0;
                    cuStreamBatchMemOp_ptsz => 0;
                    cuStreamBatchMemOp_v2 => 0;
                    cuStreamBatchMemOp_v2_ptsz => 0;
                    cuLaunchHostFunc => 0;
                    cuLaunchHostFunc_ptsz => 0;
                    cuLaunchHostFunc_v2 => 0;
                    cuLaunchHostFunc_v2_ptsz => 0;
                    cuWaitExternalSemaphoresAsync => 3;
                    cuWaitExternalSemaphoresAsync_ptsz => 3;
                    cuMemcpyHtoDAsync => 3;
                    cuMemcpyDtoHAsync => 3;
                    cuMemcpyDtoDAsync => 3;
                    cuMemcpyHtoAAsync => 4;
                    cuMemcpyAtoHAsync => 4;
                    cuMemcpy2DAsync => 1;
                    cuMemcpy3DAsync => 1;
                }
                call {
                    cuCtxFromGreenCtx;
                    cuCtxGetApiVersion;
                    cuCtxGetCurrent;
                    cuCtxGetDevice;
                    cuCtxGetLimit;
                    cuDeviceGetAttribute;
                    cuDeviceGetCount;
                    cuDeviceGetDefaultMemPool;
                    cuDeviceGetGraphMemAttribute;
                    cuDeviceGetMemPool;
                    cuDeviceSetMemPool;
                    cuDeviceGetUuid;
                    cuDeviceGetUuid_v2;
                    cuDevicePrimaryCtxGetState;
                    cuEventCreate;
                    cuEventElapsedTime;
                    cuEventElapsedTime_v2;
                    cuEventRecord;
                    cuFuncGetAttribute;
                    cuGraphChildGraphNodeGetGraph;
                    cuGraphGetNodes;
                    cuGraphMemAllocNodeGetParams;
                    cuGraphMemFreeNodeGetParams;
                    cuGraphNodeGetType;
                    cuKernelGetAttribute;
                    cuMemGetAddressRange_v2;
                    cuMemGetAllocationPropertiesFromHandle;
                    cuMemPoolGetAttribute;
                    cuMemPoolSetAttribute;
                    cuPointerGetAttribute;
                    cuStreamGetCtx;
                    cuStreamIsCapturing;
                    cuStreamIsCapturing_ptsz;
                    cuThreadExchangeStreamCaptureMode;
                }
            }
            library Nvml (nvml_fn, NVML_ERROR_FUNCTION_NOT_FOUND) {
                fail_closed NVML_ERROR_UNKNOWN {
                    nvmlDeviceGetComputeRunningProcesses => nvml::compute_v1;
                    nvmlDeviceGetComputeRunningProcesses_v2 => nvml::compute_v2;
                    nvmlDeviceGetComputeRunningProcesses_v3 => nvml::compute;
                    nvmlDeviceGetGraphicsRunningProcesses => nvml::graphics_v1;
                    nvmlDeviceGetGraphicsRunningProcesses_v2 => nvml::graphics_v2;
                    nvmlDeviceGetGraphicsRunningProcesses_v3 => nvml::graphics;
                    nvmlDeviceGetMPSComputeRunningProcesses => nvml::mps_v1;
                    nvmlDeviceGetMPSComputeRunningProcesses_v2 => nvml::mps_v2;
                    nvmlDeviceGetMPSComputeRunningProcesses_v3 => nvml::mps;
                    nvmlDeviceGetRunningProcessDetailList => nvml::details;
                    nvmlDeviceGetProcessUtilization => nvml::utilization;
                    nvmlDeviceGetProcessesUtilizationInfo => nvml::processes_utilization;
                    nvmlDeviceGetAccountingPids => nvml::accounting_pids;
                    nvmlDeviceGetAccountingStats => nvml::accounting_stats;
                    nvmlDeviceGetAccountingStats_v2 => nvml::accounting_stats_v2;
                }
                fail_open {
                    nvmlDeviceGetMemoryInfo => nvml::memory_info;
                    nvmlDeviceGetMemoryInfo_v2 => nvml::memory_info_v2;
                    nvmlDeviceGetCount => nvml::count_v1;
                    nvmlDeviceGetCount_v2 => nvml::count;
                    nvmlDeviceGetHandleByIndex => nvml::by_index_v1;
                    nvmlDeviceGetHandleByIndex_v2 => nvml::by_index;
                    nvmlDeviceGetIndex => nvml::index;
                    nvmlDeviceGetHandleByUUID => nvml::by_uuid;
                    nvmlDeviceGetHandleByUUIDV => nvml::by_uuid_v;
                    nvmlDeviceGetHandleBySerial => nvml::by_serial;
                    nvmlDeviceGetHandleByPciBusId => nvml::by_pci_bus_id_v1;
                    nvmlDeviceGetHandleByPciBusId_v2 => nvml::by_pci_bus_id;
                    nvmlDeviceGetMigDeviceHandleByIndex => nvml::mig_by_index;
                }
                observe {}
                wait {}
                launch {}
                stream_op {}
                call {
                    nvmlDeviceGetMaxMigDeviceCount;
                    nvmlDeviceGetUUID;
                    nvmlDeviceIsMigDeviceHandle;
                }
            }
        }
    };
}
