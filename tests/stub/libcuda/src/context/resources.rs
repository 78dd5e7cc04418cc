//! Resources of a device that a program can divide: its multiprocessors.
//!
//! A program holds a resource as a structure and may copy it. So the structure itself says which
//! multiprocessors it has, in the part that NVIDIA keeps for its driver.

use super::{green, named};
use crate::Answer;
use crate::boundary::{In, Out};
use crate::process::{Driver, driver, handle, lock};
use driver_sys::cuda::*;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Some multiprocessors of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sms {
    pub device: CUdevice,
    /// The number of the first one.
    first: u32,
    pub count: u32,
    /// The number of the split that they come from; 0 for those of a device or a context.
    split: u64,
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
        Ok(Self { device, first: 0, count, split: 0 })
    }

    /// The same multiprocessors as those of a context, which can be divided again.
    fn of_context(self) -> Self {
        Self { split: 0, ..self }
    }

    fn to_c(self, driver: &Driver) -> Answer<CUdevResource> {
        let (least, alignment) = granularity(driver, self.device)?;
        let mut resource = nothing();
        resource.r#type = CU_DEV_RESOURCE_TYPE_SM;
        let words = [
            MAGIC,
            self.split,
            u64::from(self.device.cast_unsigned()),
            u64::from(self.first),
            u64::from(self.count),
        ];
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
        let mut words = [0; 5];
        for (word, place) in words.iter_mut().zip(resource._internal_padding.chunks_exact(8)) {
            *word = place.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let [magic, split, device, first, count] = words;
        // SAFETY: the type says which field is set.
        let shown = u64::from(unsafe { resource.unnamed2.sm.smCount });
        if magic != MAGIC || shown != count {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let device = device as CUdevice;
        driver.card(device)?;
        Ok(Self { device, first: first as u32, count: count as u32, split })
    }

    /// So many multiprocessors from a position on, as the output of a split.
    fn part(self, position: u32, count: u32, split: u64) -> Self {
        Self { first: self.first + position, count, split, ..self }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
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
        CU_DEV_RESOURCE_TYPE_SM => resource.put(sms.of_context().to_c(driver)?),
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

/// `cuCtxGetDevResource`: a context that is not green has the whole device.
pub fn of_context(
    context: CUcontext,
    resource: Out<CUdevResource>,
    kind: CUdevResourceType,
) -> Answer {
    let (driver, found, _) = named(context)?;
    let sms = match green::of_context(driver, context) {
        Some(green) => green.sms,
        None => Sms::of_device(driver, found.device.load(Ordering::Relaxed))?,
    };
    put(driver, resource, kind, sms)
}

/// The number of multiprocessors in each group of a split.
fn group_size(driver: &Driver, device: CUdevice, flags: u32, requested: u32) -> Answer<u32> {
    let known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
        | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if flags & !known != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (mut least, mut alignment) = granularity(driver, device)?;
    if flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING != 0 {
        (least, alignment) = (least.min(2), alignment.min(2));
    }
    // The largest cluster has 16 blocks.
    if flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE != 0 && alignment == 8 {
        (least, alignment) = (16, 16);
    }
    let size = requested.max(least).checked_next_multiple_of(alignment);
    size.ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// `cuDevSmResourceSplitByCount`
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
    if sms.split != 0 {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    if group_count.is_null() || requested > sms.count {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let size = group_size(driver, sms.device, flags, requested)?;
    let most = sms.count / size;
    if most == 0 {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let groups = if result.is_null() { most } else { most.min(group_count.read()?) };
    let split = driver.new_id();
    if !result.is_null() {
        for group in 0..groups {
            let part = sms.part(group * size, size, split).to_c(driver)?;
            result.put_at(group as usize, part);
        }
    }
    let used = groups * size;
    remainder.put_optional(if used == sms.count {
        nothing()
    } else {
        sms.part(used, sms.count - used, split).to_c(driver)?
    });
    group_count.put(groups)
}

/// `cuDevResourceGenerateDesc`: of one resource, or of several from one split.
pub fn describe(
    descriptor: Out<CUdevResourceDesc>,
    resources: In<CUdevResource>,
    count: u32,
) -> Answer {
    let driver = driver()?;
    if descriptor.is_null() || count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut parts: Vec<Sms> = Vec::new();
    for index in 0..count as usize {
        let part = Sms::from_c(driver, &resources.get_at(index)?)?;
        let fits = |other: &Sms| {
            other.device == part.device
                && other.split == part.split
                && part.split != 0
                && !other.overlaps(&part)
        };
        if !parts.iter().all(fits) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        parts.push(part);
    }
    let first = parts.iter().map(|part| part.first).min().unwrap_or(0);
    let total = parts.iter().map(|part| part.count).sum();
    let sms = Sms { first, count: total, ..parts[0] };
    let created = driver.descriptors.insert(|descriptor, _| *lock(&descriptor.0) = sms);
    descriptor.put(handle(created.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?))
}

/// The multiprocessors of a descriptor.
pub fn find(driver: &Driver, descriptor: CUdevResourceDesc) -> Answer<Sms> {
    let found = driver.descriptors.get(descriptor as usize).map(|found| *lock(&found.0));
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}
