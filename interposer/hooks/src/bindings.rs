//! References to physical memory beside its mappings: tiles of sparse arrays, and bindings to
//! multicast objects. By NVIDIA's documentation they keep the memory after its last handle is
//! released, so it stays charged.
//!
//! A reference ends when a call unmaps or unbinds all of its part of the array or multicast object,
//! and with that object. A call that covers only some of the part ends nothing: the memory then
//! stays charged for longer than the driver has it. So it does if the array ends with its context.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use driver_sys::cuda::{
    CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL, CU_MEM_OPERATION_TYPE_MAP,
    CU_RESOURCE_TYPE_ARRAY, CUDA_SUCCESS, CUarrayMapInfo, CUdevice, CUdeviceptr,
    CUmemGenericAllocationHandle, CUmulticastObjectProp, CUresult, CUstream,
};
use vgpu_driver::guard::lock;
use vgpu_driver::process;
use vgpu_driver::real::{self, Outcome, check};
use vgpu_slice::allocations::Owner;
use vgpu_slice::mapped::{Kept, PHYSICAL};

use crate::form::Form;

/// Whether there was ever a reference. Most programs have none, and pay only for this load.
static ANY: AtomicBool = AtomicBool::new(false);

/// The references of this process. Held during the calls of the driver that change them.
static BOUND: Mutex<Vec<Bound>> = Mutex::new(Vec::new());

/// A reference.
struct Bound {
    /// The handle of the array or multicast object.
    holder: u64,
    part: Part,
    /// Whether it ends when the handle is no longer known, as those of multicast objects that this
    /// process has created.
    ends_with_holder: bool,
    kept: Kept,
}

/// A part of a holder.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    /// A device, or a level and a layer.
    of: [u32; 2],
    begin: [u64; 3],
    end: [u64; 3],
}

impl Part {
    fn covers(&self, other: &Self) -> bool {
        self.of == other.of
            && self.begin.iter().zip(other.begin).all(|(own, other)| *own <= other)
            && self.end.iter().zip(other.end).all(|(own, other)| *own >= other)
    }

    /// The part of an array that a program maps or unmaps.
    fn of_array(info: &CUarrayMapInfo) -> Self {
        // SAFETY: by the type of the subresource.
        unsafe {
            if info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL {
                let at = info.subresource.sparseLevel;
                let begin = [at.offsetX, at.offsetY, at.offsetZ].map(u64::from);
                let size = [at.extentWidth, at.extentHeight, at.extentDepth].map(u64::from);
                let [x, y, z] = begin;
                let [width, height, depth] = size;
                Self { of: [at.level, at.layer], begin, end: [x + width, y + height, z + depth] }
            } else {
                let at = info.subresource.miptail;
                let end = at.offset.saturating_add(at.size);
                Self { of: [u32::MAX, at.layer], begin: [at.offset, 0, 0], end: [end, 0, 0] }
            }
        }
    }

    fn of_multicast(device: CUdevice, offset: usize, size: usize) -> Self {
        let end = offset.saturating_add(size) as u64;
        Self { of: [device.cast_unsigned(), 0], begin: [offset as u64, 0, 0], end: [end, 0, 0] }
    }
}

/// Ends references. `wait` waits until the driver has ended them.
fn end(bound: &mut Vec<Bound>, ends: impl Fn(&Bound) -> bool, wait: impl Fn()) {
    let ended: Vec<_> = bound.extract_if(.., |it| ends(it)).collect();
    if ended.iter().any(|it| PHYSICAL.is_released(it.kept)) {
        wait();
    }
    for it in &ended {
        PHYSICAL.end(it.kept);
    }
}

fn has_any() -> bool {
    ANY.load(Ordering::Relaxed) && !process::is_forked_copy()
}

/// An array has ended.
pub(crate) fn array_ended(array: u64) {
    if has_any() {
        end(&mut lock(&BOUND), |it| it.holder == array && !it.ends_with_holder, || {});
    }
}

/// A reference to physical memory has ended: it may have been the last one of a multicast object.
pub(crate) fn memory_ended() {
    if has_any() {
        let is_ended = |it: &Bound| it.ends_with_holder && !PHYSICAL.is_known(it.holder);
        end(&mut lock(&BOUND), is_ended, || {});
    }
}

around! {
    map_array(infos: *mut CUarrayMapInfo, count: u32, stream: CUstream) -> Outcome
        = cuMemMapArrayAsync,
        |call| map_tiles(infos, count, || Form::Plain.wait(stream), call);
    map_array_ptsz(infos: *mut CUarrayMapInfo, count: u32, stream: CUstream) -> Outcome
        = cuMemMapArrayAsync_ptsz,
        |call| map_tiles(infos, count, || Form::PerThread.wait(stream), call);
    create(
        multicast: *mut CUmemGenericAllocationHandle, properties: *const CUmulticastObjectProp
    ) -> Outcome = cuMulticastCreate, |call| {
        if multicast.is_null() {
            return check(call());
        }
        // It has no memory of its own. It is entered to be counted.
        // SAFETY: read only after the driver has written it.
        PHYSICAL.create(0, Owner::NONE, 0, call, || unsafe { *multicast })
    };
    bind_memory(
        multicast: CUmemGenericAllocationHandle, offset: usize,
        memory: CUmemGenericAllocationHandle, memory_offset: usize, size: usize, flags: u64
    ) -> Outcome = cuMulticastBindMem, |call| bind(multicast, offset, memory, size, call);
    bind_memory_v2(
        multicast: CUmemGenericAllocationHandle, device: CUdevice, offset: usize,
        memory: CUmemGenericAllocationHandle, memory_offset: usize, size: usize, flags: u64
    ) -> Outcome = cuMulticastBindMem_v2, |call| bind(multicast, offset, memory, size, call);
    bind_address(
        multicast: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, size: usize,
        flags: u64
    ) -> Outcome = cuMulticastBindAddr, |call| bind_at(multicast, offset, address, size, call);
    bind_address_v2(
        multicast: CUmemGenericAllocationHandle, device: CUdevice, offset: usize,
        address: CUdeviceptr, size: usize, flags: u64
    ) -> Outcome = cuMulticastBindAddr_v2, |call| bind_at(multicast, offset, address, size, call);
    unbind(
        multicast: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, size: usize
    ) -> Outcome = cuMulticastUnbind, |call| {
        if process::is_forked_copy() {
            return check(call());
        }
        let mut bound = lock(&BOUND);
        check(call())?;
        let part = Part::of_multicast(device, offset, size);
        end(&mut bound, |it| it.holder == multicast && part.covers(&it.part), || {});
        Ok(())
    };
}

fn map_tiles(
    infos: *mut CUarrayMapInfo,
    count: u32,
    wait: impl Fn(),
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    if infos.is_null() || process::is_forked_copy() {
        return check(call());
    }
    // SAFETY: the program's own array of so many elements.
    let infos = unsafe { std::slice::from_raw_parts(infos, count as usize) };
    ANY.store(true, Ordering::Relaxed);
    let mut bound = lock(&BOUND);
    let mut kept = Vec::new();
    for info in infos.iter().filter(|it| it.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        // SAFETY: the only field of the union.
        let memory = unsafe { info.memHandle.memHandle };
        match PHYSICAL.keep(memory, 0, || CUDA_SUCCESS) {
            Ok(known) => kept.push(known),
            Err(refused) => {
                kept.into_iter().flatten().for_each(|it| PHYSICAL.end(it));
                return Err(refused);
            }
        }
    }
    let outcome = check(call());
    if outcome.is_err() {
        kept.into_iter().flatten().for_each(|it| PHYSICAL.end(it));
        return outcome;
    }
    let mut kept = kept.into_iter();
    for info in infos {
        // SAFETY: by the type of the resource.
        let holder = unsafe {
            match info.resourceType {
                CU_RESOURCE_TYPE_ARRAY => info.resource.array as u64,
                _ => info.resource.mipmap as u64,
            }
        };
        let part = Part::of_array(info);
        end(&mut bound, |it| it.holder == holder && part.covers(&it.part), &wait);
        if info.memOperationType == CU_MEM_OPERATION_TYPE_MAP
            && let Some(Some(kept)) = kept.next()
        {
            bound.push(Bound { holder, part, ends_with_holder: false, kept });
        }
    }
    outcome
}

/// Binds the memory that is mapped at an address.
fn bind_at(
    multicast: u64,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    let mut memory = 0;
    // SAFETY: a local variable, and an address that the driver checks.
    let found =
        unsafe { real::cuMemRetainAllocationHandle(&raw mut memory, address as usize as *mut _) };
    if found != CUDA_SUCCESS {
        return check(call());
    }
    let outcome = bind(multicast, offset, memory, size, call);
    // SAFETY: the reference that the driver has just handed out.
    unsafe { real::cuMemRelease(memory) };
    outcome
}

fn bind(
    multicast: u64,
    offset: usize,
    memory: u64,
    size: usize,
    call: impl FnOnce() -> CUresult,
) -> Outcome {
    if process::is_forked_copy() {
        return check(call());
    }
    ANY.store(true, Ordering::Relaxed);
    let mut bound = lock(&BOUND);
    if let Some(kept) = PHYSICAL.keep(memory, size as u64, call)? {
        let part = Part::of_multicast(kept.device, offset, size);
        let ends_with_holder = PHYSICAL.is_known(multicast);
        bound.push(Bound { holder: multicast, part, ends_with_holder, kept });
    }
    Ok(())
}
