//! References to physical memory beside mappings: sparse arrays have it in their tiles, and multicast
//! objects bind it. They keep it after its last handle is released. The bytes are not there: nothing
//! reads them through an array or a multicast object.

use super::{GRANULARITY, Vmm};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::device::attribute_of;
use crate::memory::array;
use crate::memory::mapped::{Place, Purpose};
use crate::process::{Driver, driver, lock};
use crate::stream;
use driver_sys::cuda::*;

/// An object that has references.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Array(usize),
    Multicast(u64),
}

/// A part of a holder: a device, a level or a layer, then offsets and extents.
pub type Part = [u64; 8];

/// A reference.
pub struct Bound {
    holder: Holder,
    part: Part,
    memory: u64,
}

/// A multicast object.
pub struct Multicast {
    bytes: u64,
    devices: Vec<CUdevice>,
    most: usize,
}

impl Vmm {
    fn bind(&mut self, holder: Holder, part: Part, memory: u64) -> Answer {
        self.held(memory)?.mappings += 1;
        self.bound.push(Bound { holder, part, memory });
        Ok(())
    }

    /// Ends references of a holder; returns how many.
    pub fn unbind(
        &mut self,
        driver: &Driver,
        holder: Holder,
        ends: impl Fn(&Part) -> bool,
    ) -> usize {
        let ended = |bound: &mut Bound| bound.holder == holder && ends(&bound.part);
        let ended: Vec<_> = self.bound.extract_if(.., ended).collect();
        for bound in &ended {
            if let Some(physical) = self.all.get_mut(&bound.memory) {
                physical.mappings -= 1;
            }
            self.free_unused(driver, bound.memory);
        }
        ended.len()
    }

    /// Releases a multicast object; `false` if the handle is none.
    pub fn release_multicast(&mut self, driver: &Driver, handle: u64) -> bool {
        let is_one = self.multicasts.remove(&handle).is_some();
        if is_one {
            self.unbind(driver, Holder::Multicast(handle), |_| true);
        }
        is_one
    }
}

/// `cuMemMapArrayAsync`, at the call
pub fn map_array(infos: In<CUarrayMapInfo>, count: u32, on: CUstream) -> Answer {
    stream::check(on)?;
    let driver = driver()?;
    let mut vmm = lock(&driver.vmm);
    for index in 0..count {
        let info = infos.get_at(index as usize)?;
        if info.resourceType != CU_RESOURCE_TYPE_ARRAY
            || info.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL
        {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: by the type of the resource.
        let (resource, level) = unsafe { (info.resource.array, info.subresource.sparseLevel) };
        let found = array::find(driver, resource).filter(|found| found.shape.is_sparse());
        found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let holder = Holder::Array(resource as usize);
        let numbers = [
            (level.level, level.layer),
            (level.offsetX, level.offsetY),
            (level.offsetZ, level.extentWidth),
            (level.extentHeight, level.extentDepth),
        ];
        let [a, b, c, d] = numbers.map(|(one, two)| [u64::from(one), u64::from(two)]);
        let part = [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]];
        match info.memOperationType {
            CU_MEM_OPERATION_TYPE_MAP => {
                // SAFETY: the only field of the union.
                let memory = unsafe { info.memHandle.memHandle };
                vmm.held(memory)?;
                vmm.unbind(driver, holder, |known| *known == part);
                vmm.bind(holder, part, memory)?;
            }
            CU_MEM_OPERATION_TYPE_UNMAP => {
                vmm.unbind(driver, holder, |known| *known == part);
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(())
}

/// `cuMulticastCreate`
pub fn create(
    handle: Out<CUmemGenericAllocationHandle>,
    properties: In<CUmulticastObjectProp>,
) -> Answer {
    let driver = driver()?;
    let properties = properties.get()?;
    let bytes = properties.size as u64;
    let is_size = bytes > 0 && bytes.is_multiple_of(GRANULARITY);
    if handle.is_null() || !is_size || properties.numDevices == 0 || properties.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut vmm = lock(&driver.vmm);
    let created = vmm.new_handle();
    let most = properties.numDevices as usize;
    vmm.multicasts.insert(created, Multicast { bytes, devices: Vec::new(), most });
    handle.put(created)
}

/// `cuMulticastAddDevice`
pub fn add_device(handle: CUmemGenericAllocationHandle, device: CUdevice) -> Answer {
    let driver = driver()?;
    let card = driver.card(device)?;
    if attribute_of(card, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)? == 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut vmm = lock(&driver.vmm);
    let found = vmm.multicasts.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if found.devices.contains(&device) || found.devices.len() == found.most {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    found.devices.push(device);
    Ok(())
}

/// `cuMulticastBindMem`
pub fn bind_memory(
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Answer {
    let driver = driver()?;
    let mut vmm = lock(&driver.vmm);
    let Place::Device(device) = vmm.held(memory)?.place else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let is_inside = vmm.held(memory)?.bytes >= (memory_offset + bytes) as u64;
    let (offset, bytes) = (offset as u64, bytes as u64);
    let part = [device as u64, offset, bytes, 0, 0, 0, 0, 0];
    let is_taken = vmm.bound.iter().any(|bound| {
        let [on, begin, length, ..] = bound.part;
        bound.holder == Holder::Multicast(handle)
            && on == device as u64
            && begin < offset + bytes
            && offset < begin + length
    });
    let found = vmm.multicasts.get(&handle).filter(|it| it.devices.contains(&device));
    let is_range = |it: &&Multicast| bytes > 0 && offset + bytes <= it.bytes;
    found.filter(is_range).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 || !is_inside || is_taken || !(offset | bytes).is_multiple_of(GRANULARITY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    vmm.bind(Holder::Multicast(handle), part, memory)
}

/// `cuMulticastBindMem_v2`
pub fn bind_memory_on(
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Answer {
    driver()?.card(device)?;
    bind_memory(handle, offset, memory, memory_offset, bytes, flags)
}

/// `cuMulticastBindAddr`: of whole mappings
pub fn bind_address(
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> Answer {
    let found = driver()?.mapped.find(address).map(|found| found.purpose);
    let Some(Purpose::Virtual(memory)) = found else { return Err(CUDA_ERROR_INVALID_VALUE) };
    bind_memory(handle, offset, memory, 0, bytes, flags)
}

/// `cuMulticastBindAddr_v2`
pub fn bind_address_on(
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> Answer {
    driver()?.card(device)?;
    bind_address(handle, offset, address, bytes, flags)
}

/// `cuMulticastUnbind`: whole bindings
pub fn unbind(
    handle: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    bytes: usize,
) -> Answer {
    let driver = driver()?;
    let range = offset as u64..(offset + bytes) as u64;
    let ends = |[on, begin, length, ..]: &Part| {
        *on == device as u64 && range.start <= *begin && begin + length <= range.end
    };
    match lock(&driver.vmm).unbind(driver, Holder::Multicast(handle), ends) {
        0 => Err(CUDA_ERROR_INVALID_VALUE),
        _ => Ok(()),
    }
}
