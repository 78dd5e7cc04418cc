//! The names and descriptions of error codes.

use crate::Answer;
use crate::boundary::Out;
use core::ffi::{CStr, c_char};
use driver_sys::cuda::*;

macro_rules! errors {
    ($($code:ident $text:literal)*) => {
        const ERRORS: &[(CUresult, &CStr, &CStr)] = &[$((
            $code,
            match CStr::from_bytes_with_nul(concat!(stringify!($code), "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a name has no NUL inside"),
            },
            match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a text has no NUL inside"),
            },
        )),*];
    };
}

errors! {
    CUDA_SUCCESS "no error"
    CUDA_ERROR_INVALID_VALUE "invalid argument"
    CUDA_ERROR_OUT_OF_MEMORY "out of memory"
    CUDA_ERROR_NOT_INITIALIZED "initialization error"
    CUDA_ERROR_DEINITIALIZED "driver shutting down"
    CUDA_ERROR_PROFILER_DISABLED "profiler disabled"
    CUDA_ERROR_PROFILER_NOT_INITIALIZED "profiler not initialized"
    CUDA_ERROR_PROFILER_ALREADY_STARTED "profiler already started"
    CUDA_ERROR_PROFILER_ALREADY_STOPPED "profiler already stopped"
    CUDA_ERROR_STUB_LIBRARY "stub library"
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER "call requires newer driver"
    CUDA_ERROR_DEVICE_UNAVAILABLE "device unavailable"
    CUDA_ERROR_MULTICAST_RESOURCE_FULL "multicast resource full"
    CUDA_ERROR_NO_DEVICE "no CUDA-capable device is detected"
    CUDA_ERROR_INVALID_DEVICE "invalid device ordinal"
    CUDA_ERROR_DEVICE_NOT_LICENSED "device not licensed"
    CUDA_ERROR_INVALID_IMAGE "device kernel image is invalid"
    CUDA_ERROR_INVALID_CONTEXT "invalid device context"
    CUDA_ERROR_CONTEXT_ALREADY_CURRENT "context already current"
    CUDA_ERROR_MAP_FAILED "map failed"
    CUDA_ERROR_UNMAP_FAILED "unmap failed"
    CUDA_ERROR_ARRAY_IS_MAPPED "array is mapped"
    CUDA_ERROR_ALREADY_MAPPED "already mapped"
    CUDA_ERROR_NO_BINARY_FOR_GPU "no binary for gpu"
    CUDA_ERROR_ALREADY_ACQUIRED "already acquired"
    CUDA_ERROR_NOT_MAPPED "not mapped"
    CUDA_ERROR_NOT_MAPPED_AS_ARRAY "not mapped as array"
    CUDA_ERROR_NOT_MAPPED_AS_POINTER "not mapped as pointer"
    CUDA_ERROR_ECC_UNCORRECTABLE "ecc uncorrectable"
    CUDA_ERROR_UNSUPPORTED_LIMIT "limit is not supported on this architecture"
    CUDA_ERROR_CONTEXT_ALREADY_IN_USE "context already in use"
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED "peer access is not supported between these two devices"
    CUDA_ERROR_INVALID_PTX "a PTX JIT compilation failed"
    CUDA_ERROR_INVALID_GRAPHICS_CONTEXT "invalid graphics context"
    CUDA_ERROR_NVLINK_UNCORRECTABLE "nvlink uncorrectable"
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND "jit compiler not found"
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION "unsupported ptx version"
    CUDA_ERROR_JIT_COMPILATION_DISABLED "jit compilation disabled"
    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY "unsupported exec affinity"
    CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC "unsupported devside sync"
    CUDA_ERROR_CONTAINED "contained"
    CUDA_ERROR_INSUFFICIENT_LOADER_VERSION "insufficient loader version"
    CUDA_ERROR_INVALID_SOURCE "invalid source"
    CUDA_ERROR_FILE_NOT_FOUND "file not found"
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND "shared object symbol not found"
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED "shared object init failed"
    CUDA_ERROR_OPERATING_SYSTEM "OS call failed or operation not supported on this OS"
    CUDA_ERROR_INVALID_HANDLE "invalid resource handle"
    CUDA_ERROR_ILLEGAL_STATE "illegal state"
    CUDA_ERROR_LOSSY_QUERY "lossy query"
    CUDA_ERROR_NOT_FOUND "named symbol not found"
    CUDA_ERROR_NOT_READY "device not ready"
    CUDA_ERROR_ILLEGAL_ADDRESS "an illegal memory access was encountered"
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES "too many resources requested for launch"
    CUDA_ERROR_LAUNCH_TIMEOUT "launch timeout"
    CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING "launch incompatible texturing"
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled"
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED "peer access has not been enabled"
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE "cannot set while device is active in this process"
    CUDA_ERROR_CONTEXT_IS_DESTROYED "context is destroyed"
    CUDA_ERROR_ASSERT "assert"
    CUDA_ERROR_TOO_MANY_PEERS "too many peers"
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped"
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region"
    CUDA_ERROR_HARDWARE_STACK_ERROR "hardware stack error"
    CUDA_ERROR_ILLEGAL_INSTRUCTION "illegal instruction"
    CUDA_ERROR_MISALIGNED_ADDRESS "misaligned address"
    CUDA_ERROR_INVALID_ADDRESS_SPACE "invalid address space"
    CUDA_ERROR_INVALID_PC "invalid pc"
    CUDA_ERROR_LAUNCH_FAILED "unspecified launch failure"
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE "cooperative launch too large"
    CUDA_ERROR_TENSOR_MEMORY_LEAK "tensor memory leak"
    CUDA_ERROR_NOT_PERMITTED "operation not permitted"
    CUDA_ERROR_NOT_SUPPORTED "operation not supported"
    CUDA_ERROR_SYSTEM_NOT_READY "system not ready"
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH "system driver mismatch"
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE "compat not supported on device"
    CUDA_ERROR_MPS_CONNECTION_FAILED "mps connection failed"
    CUDA_ERROR_MPS_RPC_FAILURE "mps rpc failure"
    CUDA_ERROR_MPS_SERVER_NOT_READY "mps server not ready"
    CUDA_ERROR_MPS_MAX_CLIENTS_REACHED "mps max clients reached"
    CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED "mps max connections reached"
    CUDA_ERROR_MPS_CLIENT_TERMINATED "mps client terminated"
    CUDA_ERROR_CDP_NOT_SUPPORTED "cdp not supported"
    CUDA_ERROR_CDP_VERSION_MISMATCH "cdp version mismatch"
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED "stream capture unsupported"
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED "stream capture invalidated"
    CUDA_ERROR_STREAM_CAPTURE_MERGE "stream capture merge"
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED "stream capture unmatched"
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED "stream capture unjoined"
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION "stream capture isolation"
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT "stream capture implicit"
    CUDA_ERROR_CAPTURED_EVENT "captured event"
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD "stream capture wrong thread"
    CUDA_ERROR_TIMEOUT "timeout"
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE "graph exec update failure"
    CUDA_ERROR_EXTERNAL_DEVICE "external device"
    CUDA_ERROR_INVALID_CLUSTER_SIZE "invalid cluster size"
    CUDA_ERROR_FUNCTION_NOT_LOADED "function not loaded"
    CUDA_ERROR_INVALID_RESOURCE_TYPE "invalid resource type"
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION "invalid resource configuration"
    CUDA_ERROR_KEY_ROTATION "key rotation"
    CUDA_ERROR_STREAM_DETACHED "stream detached"
    CUDA_ERROR_GRAPH_RECAPTURE_FAILURE "graph recapture failure"
    CUDA_ERROR_FABRIC_NOT_READY "fabric not ready"
    CUDA_ERROR_UNKNOWN "unknown error"
}

fn find(code: CUresult) -> Answer<&'static (CUresult, &'static CStr, &'static CStr)> {
    ERRORS.iter().find(|row| row.0 == code).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuGetErrorName`
pub fn name(code: CUresult, text: Out<*const c_char>) -> Answer {
    let found = find(code);
    text.put(found.map_or(core::ptr::null(), |row| row.1.as_ptr()))?;
    found.map(drop)
}

/// `cuGetErrorString`
pub fn string(code: CUresult, text: Out<*const c_char>) -> Answer {
    let found = find(code);
    text.put(found.map_or(core::ptr::null(), |row| row.2.as_ptr()))?;
    found.map(drop)
}
