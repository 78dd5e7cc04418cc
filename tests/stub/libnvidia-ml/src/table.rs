//! The table: which function of nvml.h is done by which function here. See [`stub_engine::table`].
//!
//! To add a symbol, add a row. A function of the header without a row returns
//! `NVML_ERROR_NOT_SUPPORTED`.

use crate::{accounting, device, engine, events, hardware, memory_limits, mig, processes, system};
use core::ffi::c_char;
use driver_sys::nvml::*;
use driver_sys::{each_nvml_fn, nvml_fn};
use stub_engine::{exports, row, table};

each_nvml_fn!(exports);

table! {
    nvml_fn;

    // System
    nvmlInit | nvmlInit_v2 => engine::init;
    nvmlInitWithFlags => engine::init_with_flags;
    nvmlShutdown => engine::shutdown;
    nvmlSystemGetDriverVersion => system::driver_version;
    nvmlSystemGetNVMLVersion => system::nvml_version;
    nvmlSystemGetCudaDriverVersion | nvmlSystemGetCudaDriverVersion_v2 => system::cuda_version;
    nvmlSystemGetProcessName => system::process_name;
    nvmlErrorString => system::error_string;

    // Devices
    nvmlDeviceGetCount | nvmlDeviceGetCount_v2 => device::count;
    nvmlDeviceGetHandleByIndex | nvmlDeviceGetHandleByIndex_v2 => device::by_index;
    nvmlDeviceGetHandleByUUID => device::by_uuid;
    nvmlDeviceGetHandleByUUIDV => device::by_uuid_v;
    nvmlDeviceGetHandleByPciBusId | nvmlDeviceGetHandleByPciBusId_v2 => device::by_pci_bus_id;
    nvmlDeviceGetHandleBySerial => device::by_serial;
    nvmlDeviceGetName => device::name;
    nvmlDeviceGetUUID => device::uuid;
    nvmlDeviceGetSerial => device::serial;
    nvmlDeviceGetIndex => device::index;
    nvmlDeviceGetMinorNumber => device::minor_number;
    nvmlDeviceGetBrand => device::brand;
    nvmlDeviceGetArchitecture => device::architecture;
    nvmlDeviceGetCudaComputeCapability => device::compute_capability;
    nvmlDeviceGetPciInfo => device::pci_info;
    nvmlDeviceGetPciInfo_v2 => device::pci_info_v2;
    nvmlDeviceGetPciInfo_v3 => device::pci_info_v3;
    nvmlDeviceIsMigDeviceHandle => device::is_mig;

    // MIG
    nvmlDeviceGetMigMode => mig::mode;
    nvmlDeviceSetMigMode => mig::set_mode;
    nvmlDeviceGetGpuInstanceProfileInfo => mig::profile_info;
    nvmlDeviceGetGpuInstanceProfileInfoV => mig::profile_info_v;
    nvmlDeviceGetGpuInstancePossiblePlacements_v2 => mig::placements;
    nvmlDeviceGetGpuInstanceRemainingCapacity => mig::remaining;
    nvmlDeviceCreateGpuInstance => mig::create;
    nvmlDeviceCreateGpuInstanceWithPlacement => mig::create_placed;
    nvmlGpuInstanceDestroy => mig::destroy;
    nvmlDeviceGetGpuInstances => mig::instances;
    nvmlDeviceGetGpuInstanceById => mig::instance_by_id;
    nvmlGpuInstanceGetInfo => mig::instance_info;
    nvmlGpuInstanceGetComputeInstanceProfileInfo => mig::compute_profile_info;
    nvmlGpuInstanceGetComputeInstanceProfileInfoV => mig::compute_profile_info_v;
    nvmlGpuInstanceCreateComputeInstance => mig::create_compute;
    nvmlComputeInstanceDestroy => mig::destroy_compute;
    nvmlGpuInstanceGetComputeInstances => mig::computes;
    nvmlGpuInstanceGetComputeInstanceById => mig::compute_by_id;
    nvmlComputeInstanceGetInfo_v2 => mig::compute_info;
    nvmlDeviceGetMaxMigDeviceCount => mig::max_devices;
    nvmlDeviceGetMigDeviceHandleByIndex => mig::device_by_index;
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle => mig::parent;
    nvmlDeviceGetGpuInstanceId => mig::instance_id;
    nvmlDeviceGetComputeInstanceId => mig::compute_id;
    nvmlDeviceGetAttributes_v2 => mig::attributes;

    // Memory
    nvmlDeviceGetMemoryInfo => device::memory;
    nvmlDeviceGetMemoryInfo_v2 => device::memory_v2;
    nvmlDeviceGetBAR1MemoryInfo => device::bar1_memory;
    nvmlDeviceSetMemoryLimits_v1 => memory_limits::set;
    nvmlDeviceGetMemoryLimits_v1 => memory_limits::get;

    // Processes
    nvmlDeviceGetComputeRunningProcesses => processes::compute_v1;
    nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3
        => processes::compute;
    nvmlDeviceGetGraphicsRunningProcesses | nvmlDeviceGetGraphicsRunningProcesses_v2
        | nvmlDeviceGetGraphicsRunningProcesses_v3
        | nvmlDeviceGetMPSComputeRunningProcesses
        | nvmlDeviceGetMPSComputeRunningProcesses_v2
        | nvmlDeviceGetMPSComputeRunningProcesses_v3 => processes::none;
    nvmlDeviceGetUtilizationRates => processes::utilization;
    nvmlDeviceGetProcessUtilization => processes::process_utilization;
    nvmlDeviceGetProcessesUtilizationInfo => processes::utilization_info;
    nvmlDeviceGetRunningProcessDetailList => processes::details;
    nvmlDeviceGetEncoderUtilization | nvmlDeviceGetDecoderUtilization => processes::codec;

    // Events
    nvmlEventSetCreate => events::create;
    nvmlEventSetFree => events::free;
    nvmlEventSetWait => events::wait;
    nvmlEventSetWait_v2 => events::wait_v2;
    nvmlDeviceRegisterEvents => events::register;
    nvmlDeviceGetSupportedEventTypes => events::supported_types;

    // Accounting
    nvmlDeviceGetAccountingMode => accounting::mode;
    nvmlDeviceSetAccountingMode => accounting::set_mode;
    nvmlDeviceGetAccountingBufferSize => accounting::buffer_size;
    nvmlDeviceGetAccountingPids => accounting::pids;
    nvmlDeviceGetAccountingStats => accounting::stats;
    nvmlDeviceGetAccountingStats_v2 => accounting::stats_v2;

    // Hardware
    nvmlDeviceGetGpuFabricInfo => hardware::fabric;
    nvmlDeviceGetGpuFabricInfoV => hardware::fabric_v;
    nvmlDeviceGetTemperatureThreshold => hardware::temperature_threshold;
    nvmlDeviceGetCurrPcieLinkWidth | nvmlDeviceGetMaxPcieLinkWidth => hardware::link_width;
    nvmlDeviceGetEccMode => hardware::ecc_mode;
    nvmlDeviceGetTotalEccErrors => hardware::ecc_errors;
    nvmlDeviceGetRemappedRows => hardware::remapped_rows;
    nvmlDeviceGetClockInfo | nvmlDeviceGetMaxClockInfo | nvmlDeviceGetApplicationsClock
        => hardware::clock;
    nvmlDeviceGetClock => hardware::clock_by_id;
    nvmlDeviceGetTemperature => hardware::temperature;
    nvmlDeviceGetTemperatureV => hardware::temperature_v;
    nvmlDeviceGetPowerUsage => hardware::power;
    nvmlDeviceGetEnforcedPowerLimit | nvmlDeviceGetPowerManagementLimit
        | nvmlDeviceGetPowerManagementDefaultLimit => hardware::power_limit;
    nvmlDeviceGetPersistenceMode | nvmlDeviceGetPowerManagementMode => hardware::enabled;
    nvmlDeviceGetDisplayMode | nvmlDeviceGetDisplayActive => hardware::disabled;
    nvmlDeviceGetComputeMode => hardware::compute_mode;
    nvmlDeviceGetPerformanceState | nvmlDeviceGetPowerState => hardware::performance_state;
    nvmlDeviceGetMemoryBusWidth => hardware::memory_bus_width;
    nvmlDeviceGetVirtualizationMode => hardware::virtualization;
}
