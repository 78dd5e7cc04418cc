//! The table: which function of the header is done by which function here.
//!
//! A row is a name and a path. The signature comes from the header, so a row that does not fit does
//! not compile; a name without a row answers `NVML_ERROR_NOT_SUPPORTED`.

use crate::arguments::FromC;
use crate::{accounting, boundary, device, engine, fabric, hardware, memory, processes, system};
use core::ffi::c_char;
use driver_sys::nvml::*;
use driver_sys::{each_nvml_fn, nvml_fn};

/// What a function without a row answers.
trait Unsupported {
    fn unsupported() -> Self;
}

impl Unsupported for nvmlReturn_t {
    fn unsupported() -> Self {
        engine::watch().err().unwrap_or(NVML_ERROR_NOT_SUPPORTED)
    }
}

/// Only one function of the header returns text, and it has a body.
impl Unsupported for *const c_char {
    fn unsupported() -> Self {
        c"".as_ptr()
    }
}

macro_rules! nvml_and_exports {
    ($($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty;)*) => {
        /// A symbol's number: its place in the header, and in the counters.
        #[allow(non_camel_case_types)]
        enum Symbol {
            $($name,)*
        }

        /// The NVML API. What is not overridden is not supported.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        trait Nvml {
            $(
                /// # Safety
                /// As NVIDIA's documentation of the function says.
                unsafe fn $name($($parameter: $type),*) -> $result {
                    $(let _ = $parameter;)*
                    Unsupported::unsupported()
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
                boundary::enter(Symbol::$name as usize, || {
                    // SAFETY: the caller's promise is handed on.
                    unsafe { <Stub as Nvml>::$name($($parameter),*) }
                })
            }
        )*
    };
}

/// The one NVML there is.
struct Stub;

macro_rules! implemented_row {
    ($name:ident ($($parameter:ident : $type:ty),*) -> $result:ty; $($body:ident)::+) => {
        #[allow(non_snake_case)]
        unsafe fn $name($($parameter: $type),*) -> $result {
            // SAFETY: the caller's pointers are what the header says, for as long as the call runs.
            match $($body)::+($(unsafe { FromC::from_c($parameter) }),*) {
                Ok(()) => NVML_SUCCESS,
                Err(error) => error,
            }
        }
    };
}

macro_rules! implemented {
    ($($name:ident => $($body:ident)::+;)*) => {
        impl Nvml for Stub {
            unsafe fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
                system::error_string(code)
            }

            $(nvml_fn! { $name, implemented_row $($body)::+ })*
        }
    };
}

each_nvml_fn!(nvml_and_exports);

implemented! {
    // System
    nvmlInit => engine::init;
    nvmlInit_v2 => engine::init;
    nvmlInitWithFlags => engine::init_with_flags;
    nvmlShutdown => engine::shutdown;
    nvmlSystemGetDriverVersion => system::driver_version;
    nvmlSystemGetNVMLVersion => system::nvml_version;
    nvmlSystemGetCudaDriverVersion => system::cuda_version;
    nvmlSystemGetCudaDriverVersion_v2 => system::cuda_version;
    nvmlSystemGetProcessName => system::process_name;

    // Devices
    nvmlDeviceGetCount => device::count;
    nvmlDeviceGetCount_v2 => device::count;
    nvmlDeviceGetHandleByIndex => device::by_index;
    nvmlDeviceGetHandleByIndex_v2 => device::by_index;
    nvmlDeviceGetHandleByUUID => device::by_uuid;
    nvmlDeviceGetHandleByUUIDV => device::by_uuid_v;
    nvmlDeviceGetHandleByPciBusId => device::by_pci_bus_id;
    nvmlDeviceGetHandleByPciBusId_v2 => device::by_pci_bus_id;
    nvmlDeviceGetHandleBySerial => device::by_serial;
    nvmlDeviceGetName => device::name;
    nvmlDeviceGetUUID => device::uuid;
    nvmlDeviceGetSerial => device::serial;
    nvmlDeviceGetIndex => device::index;
    nvmlDeviceGetMinorNumber => device::index;
    nvmlDeviceGetBrand => device::brand;
    nvmlDeviceGetArchitecture => device::architecture;
    nvmlDeviceGetCudaComputeCapability => device::compute_capability;
    nvmlDeviceGetPciInfo => device::pci_info;
    nvmlDeviceGetPciInfo_v2 => device::pci_info_v2;
    nvmlDeviceGetPciInfo_v3 => device::pci_info_v3;
    nvmlDeviceIsMigDeviceHandle => device::is_mig;
    nvmlDeviceGetMaxMigDeviceCount => device::max_mig_count;

    // Memory
    nvmlDeviceGetMemoryInfo => memory::info;
    nvmlDeviceGetMemoryInfo_v2 => memory::info_v2;
    nvmlDeviceGetBAR1MemoryInfo => memory::bar1;

    // Processes
    nvmlDeviceGetComputeRunningProcesses => processes::compute_v1;
    nvmlDeviceGetComputeRunningProcesses_v2 => processes::compute;
    nvmlDeviceGetComputeRunningProcesses_v3 => processes::compute;
    nvmlDeviceGetGraphicsRunningProcesses => processes::none;
    nvmlDeviceGetGraphicsRunningProcesses_v2 => processes::none;
    nvmlDeviceGetGraphicsRunningProcesses_v3 => processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses => processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses_v2 => processes::none;
    nvmlDeviceGetMPSComputeRunningProcesses_v3 => processes::none;
    nvmlDeviceGetUtilizationRates => processes::utilization;
    nvmlDeviceGetProcessUtilization => processes::process_utilization;
    nvmlDeviceGetProcessesUtilizationInfo => processes::utilization_info;
    nvmlDeviceGetRunningProcessDetailList => processes::details;
    nvmlDeviceGetEncoderUtilization => processes::codec;
    nvmlDeviceGetDecoderUtilization => processes::codec;

    // Accounting
    nvmlDeviceGetAccountingMode => accounting::mode;
    nvmlDeviceSetAccountingMode => accounting::set_mode;
    nvmlDeviceGetAccountingBufferSize => accounting::buffer_size;
    nvmlDeviceGetAccountingPids => accounting::pids;
    nvmlDeviceGetAccountingStats => accounting::stats;
    nvmlDeviceGetAccountingStats_v2 => accounting::stats_v2;

    // Hardware
    nvmlDeviceGetGpuFabricInfo => fabric::info;
    nvmlDeviceGetGpuFabricInfoV => fabric::info_v;
    nvmlDeviceGetTemperatureThreshold => hardware::temperature_threshold;
    nvmlDeviceGetCurrPcieLinkWidth => hardware::link_width;
    nvmlDeviceGetMaxPcieLinkWidth => hardware::link_width;
    nvmlDeviceGetEccMode => hardware::ecc_mode;
    nvmlDeviceGetTotalEccErrors => hardware::ecc_errors;
    nvmlDeviceGetClockInfo => hardware::clock;
    nvmlDeviceGetMaxClockInfo => hardware::clock;
    nvmlDeviceGetApplicationsClock => hardware::clock;
    nvmlDeviceGetClock => hardware::clock_by_id;
    nvmlDeviceGetTemperature => hardware::temperature;
    nvmlDeviceGetTemperatureV => hardware::temperature_v;
    nvmlDeviceGetPowerUsage => hardware::power;
    nvmlDeviceGetEnforcedPowerLimit => hardware::power_limit;
    nvmlDeviceGetPowerManagementLimit => hardware::power_limit;
    nvmlDeviceGetPowerManagementDefaultLimit => hardware::power_limit;
    nvmlDeviceGetPersistenceMode => hardware::enabled;
    nvmlDeviceGetPowerManagementMode => hardware::enabled;
    nvmlDeviceGetDisplayMode => hardware::disabled;
    nvmlDeviceGetDisplayActive => hardware::disabled;
    nvmlDeviceGetComputeMode => hardware::compute_mode;
    nvmlDeviceGetPerformanceState => hardware::performance_state;
    nvmlDeviceGetPowerState => hardware::performance_state;
    nvmlDeviceGetMemoryBusWidth => hardware::memory_bus_width;
    nvmlDeviceGetVirtualizationMode => hardware::virtualization;
}
