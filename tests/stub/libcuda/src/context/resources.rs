//! Resources of a device that a program can divide: its multiprocessors.
//!
//! A program holds a resource as a structure and may copy it. So the structure itself says which
//! multiprocessors it has, in the part that NVIDIA keeps for its driver.

use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{Driver, driver, handle, lock};
use driver_sys::cuda::*;
use std::sync::Mutex;

/// Some multiprocessors of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sms {
    pub device: CUdevice,
    pub count: u32,
}

/// A descriptor: the multiprocessors for a green context.
#[derive(Default)]
pub struct Descriptor(Mutex<Sms>);

/// The start of the driver's part of a valid resource.
const MAGIC: u64 = 0x7375_6253_4d53_2121;

/// The smallest number of multiprocessors in a group, and the one that all groups are multiples of.
fn granularity(driver: &Driver, device: CUdevice) -> Answer<(u32, u32)> {
    Ok(match driver.card(device)?.profile.compute_capability.0 {
        0..=6 => (1, 1),
        7 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    })
}

impl Sms {
    /// All of a device.
    pub fn of_device(driver: &Driver, device: CUdevice) -> Answer<Self> {
        let count = driver.card(device)?.profile.sm_count;
        Ok(Self { device, count })
    }

    fn to_c(self, driver: &Driver) -> Answer<CUdevResource> {
        let (least, alignment) = granularity(driver, self.device)?;
        let mut resource = nothing();
        resource.r#type = CU_DEV_RESOURCE_TYPE_SM;
        let words = [MAGIC, u64::from(self.device.cast_unsigned()), u64::from(self.count)];
        for (place, word) in resource._internal_padding.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        resource.unnamed2.sm = CUdevSmResource {
            smCount: self.count,
            minSmPartitionSize: least,
            smCoscheduledAlignment: alignment,
            flags: 0,
            localityDomainId: 0,
        };
        Ok(resource)
    }

    fn from_c(driver: &Driver, resource: &CUdevResource) -> Answer<Self> {
        if resource.r#type != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let mut words = [0; 3];
        for (word, place) in words.iter_mut().zip(resource._internal_padding.chunks_exact(8)) {
            *word = place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [magic, device, count] = words;
        // SAFETY: the type says which field is set.
        let shown = u64::from(unsafe { resource.unnamed2.sm.smCount });
        if magic != MAGIC || shown != count {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let device = device as CUdevice;
        driver.card(device)?;
        Ok(Self { device, count: count as u32 })
    }
}

/// A resource of no type.
fn nothing() -> CUdevResource {
    // SAFETY: a structure of numbers and pointers: zero is valid.
    unsafe { core::mem::zeroed() }
}

/// Writes multiprocessors, which are the only resource here.
pub fn put(
    driver: &Driver,
    resource: Out<CUdevResource>,
    kind: CUdevResourceType,
    sms: Sms,
) -> Answer {
    match kind {
        CU_DEV_RESOURCE_TYPE_SM => resource.put(sms.to_c(driver)?),
        CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG | CU_DEV_RESOURCE_TYPE_WORKQUEUE => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUDA_ERROR_INVALID_RESOURCE_TYPE),
    }
}

/// `cuDeviceGetDevResource`
pub fn of_device(
    device: CUdevice,
    resource: Out<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    let driver = driver()?;
    put(driver, resource, kind, Sms::of_device(driver, device)?)
}

/// `cuDevSmResourceSplitByCount`, without flags
pub fn split_by_count(
    result: Out<CUdevResource>,
    group_count: Out<u32>,
    input: In<CUdevResource>,
    remainder: Out<CUdevResource>,
    flags: u32,
    requested: u32,
) -> Answer {
    let driver = driver()?;
    let sms = Sms::from_c(driver, &input.get()?)?;
    if flags != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if group_count.is_null() || requested > sms.count {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (least, alignment) = granularity(driver, sms.device)?;
    let size = requested.max(least).next_multiple_of(alignment);
    let most = sms.count / size;
    if most == 0 {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let groups = if result.is_null() { most } else { most.min(group_count.read()?) };
    let part = |count| Sms { count, ..sms }.to_c(driver);
    if !result.is_null() {
        for group in 0..groups {
            result.put_at(group as usize, part(size)?);
        }
    }
    let left = sms.count - groups * size;
    remainder.put_optional(if left == 0 { nothing() } else { part(left)? });
    group_count.put(groups)
}

/// `cuDevResourceGenerateDesc`: of one resource.
pub fn describe(
    descriptor: Out<CUdevResourceDesc>,
    resources: In<CUdevResource>,
    count: u32,
) -> Answer {
    let driver = driver()?;
    if descriptor.is_null() || count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if count > 1 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let sms = Sms::from_c(driver, &resources.get()?)?;
    let created = driver.descriptors.insert(|descriptor, _| *lock(&descriptor.0) = sms);
    descriptor.put(handle(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?))
}

/// The multiprocessors of a descriptor.
pub fn find(driver: &Driver, descriptor: CUdevResourceDesc) -> Answer<Sms> {
    let found = driver.descriptors.get(descriptor as usize).map(|found| *lock(&found.0));
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}
