//! The hook table: every symbol that we hook or call, named once.
//!
//! - `closed`: our body decides; if it panics the call is refused. For all that hands out memory.
//! - `open`: our body changes what is told; if it panics the call goes to the driver unchanged.
//! - `wait`: the driver decides; afterwards our body is told the answer.
//! - `launch`: a jump to the driver's own function, past the gate where launches are limited. How its
//!   arguments lie, and whether a ticket may open it, and where that finds what it compares. Programs keep the
//!   pointers they were given, so a launch that is not ours from the start can never be limited.
//! - `beside`: the same jump for what else takes a stream's time: copies, waits, host functions. Time that a
//!   stream spends on them is none of the compute engine's, so no batch of launches reaches across one.
//!   The number is the place of the stream among its arguments.
//! - `call`: not hooked; the bodies call it.
//!
//! What becomes of every other symbol of the driver stands in `policy.toml`.

hooks! {
    library Cuda, signatures cuda_fn, absent CUDA_ERROR_NOT_SUPPORTED;
    closed CUDA_ERROR_OUT_OF_MEMORY {
        cuInit => crate::init::init;
        cuMemAlloc => crate::memory::alloc_v1;
        cuMemAlloc_v2 => crate::memory::alloc;
        cuMemAllocPitch => crate::memory::alloc_pitch_v1;
        cuMemAllocPitch_v2 => crate::memory::alloc_pitch;
        cuMemAllocManaged => crate::memory::alloc_managed;
        cuMemAllocAsync => crate::stream_ordered::alloc;
        cuMemAllocAsync_ptsz => crate::stream_ordered::alloc_ptsz;
        cuMemAllocFromPoolAsync => crate::stream_ordered::alloc_from_pool;
        cuMemAllocFromPoolAsync_ptsz => crate::stream_ordered::alloc_from_pool_ptsz;
        cuMemPoolCreate => crate::stream_ordered::pool_create;
    }
    open {
        cuGetProcAddress => crate::roads::lookup::get_proc_address_v1;
        cuGetProcAddress_v2 => crate::roads::lookup::get_proc_address;
        cuMemFree => crate::memory::free_v1;
        cuMemFree_v2 => crate::memory::free;
        cuMemFreeAsync => crate::stream_ordered::free;
        cuMemFreeAsync_ptsz => crate::stream_ordered::free_ptsz;
        cuMemPoolDestroy => crate::stream_ordered::pool_destroy;
        cuMemPoolTrimTo => crate::stream_ordered::pool_trim;
        cuCtxDestroy => crate::context::destroy_v1;
        cuCtxDestroy_v2 => crate::context::destroy;
        cuCtxDetach => crate::context::detach;
        cuDevicePrimaryCtxRelease => crate::context::primary_release_v1;
        cuDevicePrimaryCtxRelease_v2 => crate::context::primary_release;
        cuDevicePrimaryCtxReset => crate::context::primary_reset_v1;
        cuDevicePrimaryCtxReset_v2 => crate::context::primary_reset;
        cuMemGetInfo => crate::info::mem_get_info_v1;
        cuMemGetInfo_v2 => crate::info::mem_get_info;
        cuDeviceTotalMem => crate::info::device_total_mem_v1;
        cuDeviceTotalMem_v2 => crate::info::device_total_mem;
        cuStreamDestroy => crate::compute::gate::stream_destroy_v1;
        cuStreamDestroy_v2 => crate::compute::gate::stream_destroy;
        cuStreamBeginCapture => crate::compute::capture::begin_v1;
        cuStreamBeginCapture_ptsz => crate::compute::capture::begin_v1_ptsz;
        cuStreamBeginCapture_v2 => crate::compute::capture::begin_v2;
        cuStreamBeginCapture_v2_ptsz => crate::compute::capture::begin_v2_ptsz;
        cuStreamBeginCaptureToGraph => crate::compute::capture::begin_to_graph;
        cuStreamBeginCaptureToGraph_ptsz => crate::compute::capture::begin_to_graph_ptsz;
        cuStreamBeginRecaptureToGraph => crate::compute::capture::begin_again;
        cuStreamBeginRecaptureToGraph_ptsz => crate::compute::capture::begin_again_ptsz;
        cuStreamEndCapture => crate::compute::capture::end_capture;
        cuStreamEndCapture_ptsz => crate::compute::capture::end_capture_ptsz;
    }
    wait {
        cuCtxCreate => crate::compute::gate::context_changed;
        cuCtxCreate_v2 => crate::compute::gate::context_changed;
        cuCtxCreate_v3 => crate::compute::gate::context_changed;
        cuCtxCreate_v4 => crate::compute::gate::context_changed;
        cuCtxPopCurrent => crate::compute::gate::context_changed;
        cuCtxPopCurrent_v2 => crate::compute::gate::context_changed;
        cuCtxPushCurrent => crate::compute::gate::context_changed;
        cuCtxPushCurrent_v2 => crate::compute::gate::context_changed;
        cuCtxSetCurrent => crate::compute::gate::context_changed;
        cuStreamSynchronize => crate::synchronize::waited;
        cuStreamSynchronize_ptsz => crate::synchronize::waited;
        cuStreamQuery => crate::synchronize::queried;
        cuStreamQuery_ptsz => crate::synchronize::queried;
        cuEventSynchronize => crate::synchronize::waited;
        cuEventQuery => crate::synchronize::queried;
        cuCtxSynchronize => crate::synchronize::waited;
        cuCtxSynchronize_v2 => crate::synchronize::waited;
    }
    launch {
        cuLaunchKernel => Kernel ticket;
        cuLaunchKernel_ptsz => KernelOfThread plain;
        cuLaunchKernelEx => Config config_ticket;
        cuLaunchKernelEx_ptsz => ConfigOfThread plain;
        cuLaunchCooperativeKernel => Kernel ticket;
        cuLaunchCooperativeKernel_ptsz => KernelOfThread plain;
        cuLaunchCooperativeKernelMultiDevice => Several plain;
        cuLaunch => Old plain;
        cuLaunchGrid => Old plain;
        cuLaunchGridAsync => OldAsync plain;
        cuGraphLaunch => Graph plain;
        cuGraphLaunch_ptsz => GraphOfThread plain;
    }
    beside {
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
        cuCtxGetApiVersion;
        cuCtxGetCurrent;
        cuCtxGetDevice;
        cuDeviceGetCount;
        cuDeviceGetDefaultMemPool;
        cuDeviceGetMemPool;
        cuDeviceSetMemPool;
        cuDeviceGetUuid;
        cuDeviceGetUuid_v2;
        cuDevicePrimaryCtxGetState;
        cuDevicePrimaryCtxRetain;
        cuEventCreate;
        cuEventElapsedTime;
        cuEventElapsedTime_v2;
        cuEventRecord;
        cuEventRecord_ptsz;
        cuMemPoolGetAttribute;
        cuMemPoolSetAttribute;
        cuStreamGetCtx;
        cuStreamIsCapturing;
        cuStreamIsCapturing_ptsz;
        cuThreadExchangeStreamCaptureMode;
    }

    library Nvml, signatures nvml_fn, absent NVML_ERROR_FUNCTION_NOT_FOUND;
    closed NVML_ERROR_UNKNOWN {}
    open {
        nvmlDeviceGetMemoryInfo => crate::nvml::memory_info;
        nvmlDeviceGetMemoryInfo_v2 => crate::nvml::memory_info_v2;
        nvmlDeviceGetCount => crate::nvml::count_v1;
        nvmlDeviceGetCount_v2 => crate::nvml::count;
        nvmlDeviceGetHandleByIndex => crate::nvml::by_index_v1;
        nvmlDeviceGetHandleByIndex_v2 => crate::nvml::by_index;
        nvmlDeviceGetIndex => crate::nvml::index;
        nvmlDeviceGetHandleByUUID => crate::nvml::by_uuid;
        nvmlDeviceGetHandleByUUIDV => crate::nvml::by_uuid_v;
        nvmlDeviceGetHandleBySerial => crate::nvml::by_serial;
        nvmlDeviceGetHandleByPciBusId => crate::nvml::by_pci_bus_id_v1;
        nvmlDeviceGetHandleByPciBusId_v2 => crate::nvml::by_pci_bus_id;
        nvmlDeviceGetMigDeviceHandleByIndex => crate::nvml::mig_by_index;
        nvmlDeviceGetComputeRunningProcesses => crate::nvml::compute_v1;
        nvmlDeviceGetComputeRunningProcesses_v2 => crate::nvml::compute_v2;
        nvmlDeviceGetComputeRunningProcesses_v3 => crate::nvml::compute;
        nvmlDeviceGetGraphicsRunningProcesses => crate::nvml::graphics_v1;
        nvmlDeviceGetGraphicsRunningProcesses_v2 => crate::nvml::graphics_v2;
        nvmlDeviceGetGraphicsRunningProcesses_v3 => crate::nvml::graphics;
        nvmlDeviceGetMPSComputeRunningProcesses => crate::nvml::mps_v1;
        nvmlDeviceGetMPSComputeRunningProcesses_v2 => crate::nvml::mps_v2;
        nvmlDeviceGetMPSComputeRunningProcesses_v3 => crate::nvml::mps;
        nvmlDeviceGetRunningProcessDetailList => crate::nvml::details;
        nvmlDeviceGetProcessUtilization => crate::nvml::utilization;
        nvmlDeviceGetProcessesUtilizationInfo => crate::nvml::processes_utilization;
        nvmlDeviceGetAccountingPids => crate::nvml::accounting_pids;
        nvmlDeviceGetAccountingStats => crate::nvml::accounting_stats;
        nvmlDeviceGetAccountingStats_v2 => crate::nvml::accounting_stats_v2;
    }
    wait {}
    launch {}
    beside {}
    call {
        nvmlDeviceGetMaxMigDeviceCount;
        nvmlDeviceGetUUID;
        nvmlDeviceIsMigDeviceHandle;
        nvmlInit_v2;
        nvmlShutdown;
    }
}
