//! Pointer attributes: whether a pointer is device memory, of which kind, or pinned host memory.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::context::current;
use crate::memory;
use crate::memory::mapped::{FoundMapping, Place, Purpose};
use crate::process::{Driver, driver, handle, lock};
use core::ffi::c_void;
use driver_sys::cuda::*;
use std::sync::atomic::Ordering;
use stub_engine::backing::Area;

/// `CU_DEVICE_CPU`, a macro in the header.
const HOST: CUdevice = -1;

/// A pointer that the driver knows.
struct Known {
    kind: CUmemorytype,
    is_managed: bool,
    /// 0 outside pools.
    pool: usize,
    /// 0 for memory from a pool or of a graph, which belongs to none.
    context: usize,
    device: i32,
    base: u64,
    bytes: u64,
    /// The address for kernels.
    on_device: u64,
    /// The address for the program's own code; 0 when it cannot read the memory.
    on_host: u64,
    /// The access that the current context's device has.
    access: CUmemAccess_flags,
    handle_types: CUmemAllocationHandleType,
    /// Whether `cuIpcGetMemHandle` takes it.
    has_ipc: bool,
}

/// A pointer to mapped memory. It belongs to the device, and to no context unless it was opened in
/// one.
fn mapped(driver: &'static Driver, found: &FoundMapping, pointer: u64) -> Known {
    let (kind, device) = match found.place {
        Place::Device(device) => (CU_MEMORYTYPE_DEVICE, device),
        Place::Host => (CU_MEMORYTYPE_HOST, HOST),
    };
    let owner = found.owner.and_then(|owner| driver.contexts.at(owner as usize));
    let current = current().map(|(_, context, _)| context.device.load(Ordering::Relaxed));
    Known {
        kind,
        is_managed: false,
        pool: match found.purpose {
            Purpose::Pool(pool) => pool,
            _ => 0,
        },
        context: owner.map_or(0, |(context, _)| context),
        device,
        base: found.base,
        bytes: found.bytes,
        on_device: pointer,
        on_host: if kind == CU_MEMORYTYPE_HOST { pointer } else { 0 },
        access: current.map_or(0, |device| found.access.get(Place::Device(device))),
        handle_types: match found.purpose {
            Purpose::Virtual(handle) => lock(&driver.vmm).handle_types(handle),
            _ => CU_MEM_HANDLE_TYPE_NONE,
        },
        has_ipc: false,
    }
}

fn find(driver: &'static Driver, pointer: u64) -> Option<Known> {
    if let Some(found) = driver.mapped.find(pointer) {
        return Some(mapped(driver, &found, pointer));
    }
    if let Some(found) = memory::find(driver, pointer) {
        let is_managed = found.area == Area::Managed;
        let (pool, context, device) = match found.area {
            Area::Pooled => {
                let (pool, device) = driver.pools.of(found.owner)?;
                (pool, 0, device)
            }
            Area::Graphs => (0, 0, found.owner.cast_signed()),
            _ => {
                let (context, owner) = driver.contexts.at(found.owner as usize)?;
                (0, context, owner.device.load(Ordering::Relaxed))
            }
        };
        return Some(Known {
            kind: CU_MEMORYTYPE_DEVICE,
            is_managed,
            pool,
            context,
            device,
            base: found.base,
            bytes: found.bytes,
            on_device: pointer,
            on_host: if is_managed { pointer } else { 0 },
            access: CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE,
            handle_types: CU_MEM_HANDLE_TYPE_NONE,
            has_ipc: matches!(found.area, Area::Linear | Area::Narrow),
        });
    }
    let found = lock(&driver.host).find(pointer, 1)?;
    let context = driver.contexts.get(found.context)?;
    Some(Known {
        kind: CU_MEMORYTYPE_HOST,
        is_managed: false,
        pool: 0,
        context: found.context,
        device: context.device.load(Ordering::Relaxed),
        base: found.base,
        bytes: found.bytes,
        on_device: pointer,
        on_host: pointer,
        access: CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE,
        handle_types: CU_MEM_HANDLE_TYPE_NONE,
        has_ipc: false,
    })
}

/// Attributes with the same value for every pointer.
fn put_unknown(data: Out<c_void>, attribute: CUpointer_attribute) -> Answer {
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT
        | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        | CU_POINTER_ATTRIBUTE_HOST_POINTER
        | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        | CU_POINTER_ATTRIBUTE_RANGE_SIZE
        | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR
        | CU_POINTER_ATTRIBUTE_MAPPING_SIZE
        | CU_POINTER_ATTRIBUTE_BUFFER_ID
        | CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
        | CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => data.cast().put(0u64),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().put(-2i32),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            data.cast().put(0u32)
        }
        CU_POINTER_ATTRIBUTE_P2P_TOKENS | 0 => Err(CUDA_ERROR_INVALID_VALUE),
        _ if attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => data.cast().put(0u8),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn put_known(data: Out<c_void>, attribute: CUpointer_attribute, known: &Known) -> Answer {
    match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => data.cast().put(handle::<CUctx_st>(known.context)),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast().put(known.kind),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast().put(known.on_device),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if known.on_host == 0 => Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => data.cast().put(known.on_host),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast().put(known.device),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            data.cast().put(known.base)
        }
        CU_POINTER_ATTRIBUTE_RANGE_SIZE | CU_POINTER_ATTRIBUTE_MAPPING_SIZE => {
            data.cast().put(known.bytes)
        }
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => data.cast().put(u64::from(known.handle_types)),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => data.cast().put(u8::from(known.has_ipc)),
        // The first address identifies an allocation.
        CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast().put(known.base >> 9),
        CU_POINTER_ATTRIBUTE_MAPPED => data.cast().put(1u8),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast().put(u8::from(known.is_managed)),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => data.cast().put(known.pool),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => data.cast().put(known.access),
        _ => put_unknown(data, attribute),
    }
}

/// `cuPointerGetAttribute`
pub fn get_attribute(data: Out<c_void>, attribute: CUpointer_attribute, pointer: u64) -> Answer {
    let driver = driver()?;
    if data.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let known = find(driver, pointer).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    put_known(data, attribute, &known)
}

/// `cuPointerGetAttributes`: unlike the single form, it succeeds for any pointer.
pub fn get_attributes(
    count: u32,
    attributes: In<CUpointer_attribute>,
    data: In<*mut c_void>,
    pointer: u64,
) -> Answer {
    let driver = driver()?;
    if count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let known = find(driver, pointer);
    for index in 0..count as usize {
        let attribute = attributes.get_at(index)?;
        let out = data.get_at(index)?;
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let out = Out::of(out);
        // Where the single form fails, this one writes zeros.
        let answered = known.as_ref().is_some_and(|known| put_known(out, attribute, known).is_ok());
        if !answered {
            put_unknown(out, attribute)?;
        }
    }
    Ok(())
}
