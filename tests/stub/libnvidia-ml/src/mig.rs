//! MIG: modes, GPU instances, compute instances and their devices.
//!
//! The server has the state. Each call asks for it anew, because other processes change it. A handle
//! has the numbers of what it stands for, and is checked at each use.

use crate::Answer;
use crate::boundary::{In, Out, array};
use crate::device::{find_card, handle, version_of};
use crate::engine::watch;
use driver_sys::nvml::*;
use std::ptr::without_provenance_mut;
use stub_engine::mig::{
    Call, Compute, DEVICES_MAX, Instance, InstanceProfile, Reply, State, compute_name,
    compute_profile, compute_slices, profiles,
};
use stub_engine::profile::Card;
use stub_engine::settings::Settings;

/// `NVML_DEVICE_MIG_ENABLE`, `NVML_GPU_INSTANCE_PROFILE_COUNT`, `NVML_COMPUTE_INSTANCE_PROFILE_COUNT`
/// and the number of engine profiles, macros in the header.
const ENABLE: u32 = 1;
const PROFILES: u32 = 0x12;
const COMPUTE_PROFILES: u32 = 9;
const ENGINE_PROFILES: u32 = 1;

/// The kinds of instance handles, above the numbers of card, GPU instance and compute instance.
const INSTANCE: usize = 1 << 32;
const COMPUTE: usize = 2 << 32;

fn instance_handle(card: usize, instance: u32) -> nvmlGpuInstance_t {
    without_provenance_mut(INSTANCE | card << 16 | (instance as usize) << 8)
}

fn compute_handle(card: usize, instance: u32, compute: u32) -> nvmlComputeInstance_t {
    without_provenance_mut(COMPUTE | card << 16 | (instance as usize) << 8 | compute as usize)
}

/// Card, GPU instance and compute instance of a handle of this kind.
fn numbers(kind: usize, handle: usize) -> Answer<(usize, u32, u32)> {
    if handle >> 32 != kind >> 32 {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    Ok((handle >> 16 & 0xffff, (handle >> 8 & 0xff) as u32, (handle & 0xff) as u32))
}

/// A card and its state.
struct View {
    card: Card,
    state: State,
    is_privileged: bool,
}

fn ask(card: usize, call: &Call) -> Answer<Reply> {
    watch()?.mig(card, call).ok_or(NVML_ERROR_GPU_IS_LOST)
}

/// A call that changes something; the ID of what it has created.
fn change(card: usize, call: &Call) -> Answer<u32> {
    let Reply { code, id, .. } = ask(card, call)?;
    if code == NVML_SUCCESS { Ok(id) } else { Err(code) }
}

impl View {
    fn of(card: usize) -> Answer<Self> {
        let watch = watch()?;
        let found = watch.cards().get(card).ok_or(NVML_ERROR_INVALID_ARGUMENT)?.clone();
        let Reply { state, is_privileged, .. } = ask(card, &Call::Read)?;
        Ok(Self { card: found, state, is_privileged })
    }

    /// A device that can be partitioned.
    fn of_device(device: nvmlDevice_t) -> Answer<Self> {
        let view = Self::of(find_card(device)?.1)?;
        if profiles(&view.card.profile).is_empty() {
            Err(NVML_ERROR_NOT_SUPPORTED)
        } else {
            Ok(view)
        }
    }

    /// The same, in MIG mode.
    fn in_mode(device: nvmlDevice_t) -> Answer<Self> {
        let view = Self::of_device(device)?;
        if view.state.is_on { Ok(view) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
    }

    fn privileged(self) -> Answer<Self> {
        if self.is_privileged { Ok(self) } else { Err(NVML_ERROR_NO_PERMISSION) }
    }

    fn row(&self, id: u32) -> Answer<(&'static String, &'static InstanceProfile)> {
        State::find_profile(&self.card.profile, id)
    }

    fn row_of(&self, instance: &Instance) -> Answer<&'static InstanceProfile> {
        State::profile_of(&self.card.profile, instance)
    }
}

/// The card and a copy of the GPU instance of a handle.
fn find_instance(instance: nvmlGpuInstance_t) -> Answer<(View, Instance)> {
    watch()?;
    let (card, id, _) = numbers(INSTANCE, instance as usize)?;
    let view = View::of(card)?;
    let found = view.state.instance(id).cloned();
    Ok((view, found.ok_or(NVML_ERROR_INVALID_ARGUMENT)?))
}

/// The same of a compute instance.
fn find_compute(compute: nvmlComputeInstance_t) -> Answer<(View, Instance, Compute)> {
    watch()?;
    let (card, instance, id) = numbers(COMPUTE, compute as usize)?;
    let (view, instance) = find_instance(instance_handle(card, instance))?;
    let found = instance.computes.iter().find(|other| other.id == id).cloned();
    let found = found.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
    Ok((view, instance, found))
}

/// A MIG device: its card, and its instances.
pub struct Device {
    pub card: usize,
    pub instance: Instance,
    pub compute: Compute,
    /// As a card of its own.
    pub as_card: Card,
}

impl Device {
    /// The instances as process lists have them.
    pub fn ids(&self) -> (u32, u32) {
        (self.instance.id, self.compute.id)
    }

    /// Its index in the engine.
    pub fn index(&self) -> Answer<usize> {
        Ok(watch()?.cards().len() + self.card * DEVICES_MAX + self.compute.device)
    }
}

/// The MIG devices of a card that the process may see.
pub fn devices_of(card: usize) -> Answer<Vec<Device>> {
    let view = View::of(card)?;
    let settings = Settings::from_environment();
    let of = |(instance, compute): (&Instance, &Compute)| {
        settings.can_see(card, instance.id, compute.id).then_some(())?;
        let as_card = view.card.mig_device(instance, compute)?;
        Some(Device { card, instance: instance.clone(), compute: compute.clone(), as_card })
    };
    Ok(view.state.devices().filter_map(of).collect())
}

/// The MIG device behind the real cards, by its number there.
pub fn find_device(number: usize) -> Answer<Device> {
    let (card, index) = (number / DEVICES_MAX, number % DEVICES_MAX);
    let mut devices = devices_of(card)?.into_iter();
    devices.find(|device| device.compute.device == index).ok_or(NVML_ERROR_INVALID_ARGUMENT)
}

/// Whether a card is divided.
pub fn is_on(card: usize) -> Answer<bool> {
    Ok(View::of(card)?.state.is_on)
}

/// `nvmlDeviceGetMigMode`
pub fn mode(device: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) -> Answer {
    let view = View::of_device(device)?;
    if pending.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    current.put(view.state.is_on.into())?;
    pending.put(view.state.is_pending.into())
}

/// `nvmlDeviceSetMigMode`
pub fn set_mode(device: nvmlDevice_t, mode: u32, activation: Out<nvmlReturn_t>) -> Answer {
    let view = View::of_device(device)?;
    if mode > ENABLE || activation.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let is_on = mode == ENABLE;
    let Reply { code, .. } = ask(view.card.index, &Call::SetMode { is_on })?;
    if code == NVML_ERROR_NO_PERMISSION { Err(code) } else { activation.put(code) }
}

/// What NVML reports of a GPU instance profile, in one of the structures.
macro_rules! profile_info {
    ($kind:ident, $row:expr, { $($field:ident: $value:expr),* }) => {{
        let [copy, decoders, encoders, jpeg, ofa] = $row.engines;
        $kind {
            $($field: $value,)*
            id: $row.id,
            sliceCount: $row.slices,
            instanceCount: $row.instances,
            multiprocessorCount: $row.sms,
            copyEngineCount: copy,
            decoderCount: decoders,
            encoderCount: encoders,
            jpegCount: jpeg,
            ofaCount: ofa,
            memorySizeMB: $row.memory_mib,
        }
    }};
}

/// The same of a compute instance profile, with the engines that it shares.
macro_rules! compute_info {
    ($kind:ident, $found:expr, { $($field:ident: $value:expr),* }) => {{
        let [copy, decoders, encoders, jpeg, ofa] = $found.row.engines;
        $kind {
            $($field: $value,)*
            id: compute_profile($found.slices),
            sliceCount: $found.slices,
            instanceCount: $found.most,
            multiprocessorCount: $found.sms,
            sharedCopyEngineCount: copy,
            sharedDecoderCount: decoders,
            sharedEncoderCount: encoders,
            sharedJpegCount: jpeg,
            sharedOfaCount: ofa,
        }
    }};
}

fn profile_by_index(
    card: &Card,
    index: u32,
) -> Answer<(&'static String, &'static InstanceProfile)> {
    if index >= PROFILES {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let mut rows = profiles(&card.profile).iter();
    rows.find(|(_, row)| row.index == index).ok_or(NVML_ERROR_NOT_SUPPORTED)
}

/// `nvmlDeviceGetGpuInstanceProfileInfo`: also without MIG mode.
pub fn profile_info(
    device: nvmlDevice_t,
    index: u32,
    info: Out<nvmlGpuInstanceProfileInfo_t>,
) -> Answer {
    let (_, row) = profile_by_index(&View::of_device(device)?.card, index)?;
    info.put(profile_info!(nvmlGpuInstanceProfileInfo_t, row, { isP2pSupported: 0 }))
}

/// `nvmlDeviceGetGpuInstanceProfileInfoV`
pub fn profile_info_v(
    device: nvmlDevice_t,
    index: u32,
    info: Out<nvmlGpuInstanceProfileInfo_v2_t>,
) -> Answer {
    let (name, row) = profile_by_index(&View::in_mode(device)?.card, index)?;
    let name = array(&format!("MIG {name}"));
    // The version is the first field of all forms.
    let version = info.cast::<u32>().read()?;
    if version == version_of::<nvmlGpuInstanceProfileInfo_v3_t>(3) {
        let fields = profile_info!(nvmlGpuInstanceProfileInfo_v3_t, row,
            { version: version, name: name, capabilities: 0 });
        return info.cast().put(fields);
    }
    if version != version_of::<nvmlGpuInstanceProfileInfo_v2_t>(2) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    info.put(profile_info!(nvmlGpuInstanceProfileInfo_v2_t, row,
        { version: version, isP2pSupported: 0, name: name }))
}

/// Fills an array that has room for all by NVML's rules; NULL: only its length.
fn put_all<T: Copy>(rows: &[T], count: Out<u32>, out: Out<T>) -> Answer {
    count.put(rows.len() as u32)?;
    if !out.is_null() {
        rows.iter().enumerate().for_each(|(index, row)| out.put_at(index, *row));
    }
    Ok(())
}

/// `nvmlDeviceGetGpuInstancePossiblePlacements_v2`: also without MIG mode.
pub fn placements(
    device: nvmlDevice_t,
    id: u32,
    out: Out<nvmlGpuInstancePlacement_t>,
    count: Out<u32>,
) -> Answer {
    let (_, row) = View::of_device(device)?.privileged()?.row(id)?;
    let of = |start: &u32| nvmlGpuInstancePlacement_t { start: *start, size: row.size };
    let rows: Vec<_> = row.starts.iter().map(of).collect();
    put_all(&rows, count, out)
}

/// `nvmlDeviceGetGpuInstanceRemainingCapacity`
pub fn remaining(device: nvmlDevice_t, id: u32, count: Out<u32>) -> Answer {
    let view = View::in_mode(device)?.privileged()?;
    let (name, row) = view.row(id)?;
    count.put(view.state.remaining(&view.card.profile, name, row))
}

fn create_at(
    device: nvmlDevice_t,
    profile: u32,
    start: Option<u32>,
    out: Out<nvmlGpuInstance_t>,
) -> Answer {
    let card = View::of_device(device)?.card.index;
    if out.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let id = change(card, &Call::CreateInstance { profile, start })?;
    out.put(instance_handle(card, id))
}

/// `nvmlDeviceCreateGpuInstance`
pub fn create(device: nvmlDevice_t, profile: u32, out: Out<nvmlGpuInstance_t>) -> Answer {
    create_at(device, profile, None, out)
}

/// `nvmlDeviceCreateGpuInstanceWithPlacement`
pub fn create_placed(
    device: nvmlDevice_t,
    profile: u32,
    placement: In<nvmlGpuInstancePlacement_t>,
    out: Out<nvmlGpuInstance_t>,
) -> Answer {
    let view = View::of_device(device)?;
    let nvmlGpuInstancePlacement_t { start, size } = placement.get()?;
    if view.row(profile)?.1.size != size {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    create_at(device, profile, Some(start), out)
}

/// `nvmlGpuInstanceDestroy`
pub fn destroy(instance: nvmlGpuInstance_t) -> Answer {
    let (view, found) = find_instance(instance)?;
    change(view.card.index, &Call::DestroyInstance { instance: found.id }).map(drop)
}

/// `nvmlDeviceGetGpuInstances`
pub fn instances(
    device: nvmlDevice_t,
    id: u32,
    out: Out<nvmlGpuInstance_t>,
    count: Out<u32>,
) -> Answer {
    let view = View::in_mode(device)?.privileged()?;
    let (name, _) = view.row(id)?;
    if out.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let its = view.state.instances.iter().filter(|instance| instance.profile == *name);
    let handles: Vec<_> = its.map(|it| instance_handle(view.card.index, it.id)).collect();
    put_all(&handles, count, out)
}

/// `nvmlDeviceGetGpuInstanceById`
pub fn instance_by_id(device: nvmlDevice_t, id: u32, out: Out<nvmlGpuInstance_t>) -> Answer {
    let view = View::in_mode(device)?.privileged()?;
    view.state.instance(id).ok_or(NVML_ERROR_NOT_FOUND)?;
    out.put(instance_handle(view.card.index, id))
}

/// `nvmlGpuInstanceGetInfo`
pub fn instance_info(instance: nvmlGpuInstance_t, out: Out<nvmlGpuInstanceInfo_t>) -> Answer {
    let (view, found) = find_instance(instance)?;
    let row = view.row_of(&found)?;
    out.put(nvmlGpuInstanceInfo_t {
        device: handle(view.card.index),
        id: found.id,
        profileId: row.id,
        placement: nvmlGpuInstancePlacement_t { start: found.start, size: row.size },
    })
}

/// A compute instance profile of a GPU instance.
struct ComputeProfile {
    name: String,
    slices: u32,
    most: u32,
    sms: u32,
    /// The GPU instance's profile.
    row: &'static InstanceProfile,
}

fn find_compute_profile(
    instance: nvmlGpuInstance_t,
    profile: u32,
    engines: u32,
) -> Answer<ComputeProfile> {
    let (view, found) = find_instance(instance)?;
    if profile >= COMPUTE_PROFILES || engines >= ENGINE_PROFILES {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let row = view.row_of(&found)?;
    let slices = compute_slices(profile).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    let most = row.compute_starts(slices).len() as u32;
    if most == 0 {
        return Err(NVML_ERROR_NOT_SUPPORTED);
    }
    let (name, sms) =
        (compute_name(&found, row, slices), row.compute_sms(&view.card.profile, slices));
    Ok(ComputeProfile { name, slices, most, sms, row })
}

/// `nvmlGpuInstanceGetComputeInstanceProfileInfo`
pub fn compute_profile_info(
    instance: nvmlGpuInstance_t,
    profile: u32,
    engines: u32,
    info: Out<nvmlComputeInstanceProfileInfo_t>,
) -> Answer {
    let found = find_compute_profile(instance, profile, engines)?;
    info.put(compute_info!(nvmlComputeInstanceProfileInfo_t, found, {}))
}

/// `nvmlGpuInstanceGetComputeInstanceProfileInfoV`: the second version.
pub fn compute_profile_info_v(
    instance: nvmlGpuInstance_t,
    profile: u32,
    engines: u32,
    info: Out<nvmlComputeInstanceProfileInfo_v2_t>,
) -> Answer {
    let found = find_compute_profile(instance, profile, engines)?;
    let version = version_of::<nvmlComputeInstanceProfileInfo_v2_t>(2);
    if info.read()?.version != version {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let name = array(&format!("MIG {}", found.name));
    info.put(compute_info!(nvmlComputeInstanceProfileInfo_v2_t, found,
        { version: version, name: name }))
}

/// `nvmlGpuInstanceCreateComputeInstance`
pub fn create_compute(
    instance: nvmlGpuInstance_t,
    profile: u32,
    out: Out<nvmlComputeInstance_t>,
) -> Answer {
    let (view, found) = find_instance(instance)?;
    if out.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let slices = Some(compute_slices(profile).ok_or(NVML_ERROR_NOT_SUPPORTED)?);
    let (card, instance) = (view.card.index, found.id);
    let id = change(card, &Call::CreateCompute { instance, slices })?;
    out.put(compute_handle(card, instance, id))
}

/// `nvmlComputeInstanceDestroy`
pub fn destroy_compute(compute: nvmlComputeInstance_t) -> Answer {
    let (view, instance, found) = find_compute(compute)?;
    let call = Call::DestroyCompute { instance: instance.id, compute: found.id };
    change(view.card.index, &call).map(drop)
}

/// `nvmlGpuInstanceGetComputeInstances`
pub fn computes(
    instance: nvmlGpuInstance_t,
    profile: u32,
    out: Out<nvmlComputeInstance_t>,
    count: Out<u32>,
) -> Answer {
    let (view, found) = find_instance(instance)?;
    let view = view.privileged()?;
    let slices = compute_slices(profile).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    if out.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let its = found.computes.iter().filter(|compute| compute.slices == slices);
    let handles: Vec<_> = its.map(|it| compute_handle(view.card.index, found.id, it.id)).collect();
    put_all(&handles, count, out)
}

/// `nvmlGpuInstanceGetComputeInstanceById`
pub fn compute_by_id(
    instance: nvmlGpuInstance_t,
    id: u32,
    out: Out<nvmlComputeInstance_t>,
) -> Answer {
    let (view, found) = find_instance(instance)?;
    let view = view.privileged()?;
    let compute = found.computes.iter().find(|compute| compute.id == id);
    let compute = compute.ok_or(NVML_ERROR_NOT_FOUND)?;
    out.put(compute_handle(view.card.index, found.id, compute.id))
}

/// `nvmlComputeInstanceGetInfo_v2`
pub fn compute_info(compute: nvmlComputeInstance_t, out: Out<nvmlComputeInstanceInfo_t>) -> Answer {
    let (view, instance, found) = find_compute(compute)?;
    let card = view.card.index;
    out.put(nvmlComputeInstanceInfo_t {
        device: handle(card),
        gpuInstance: instance_handle(card, instance.id),
        id: found.id,
        profileId: compute_profile(found.slices),
        placement: nvmlComputeInstancePlacement_t { start: found.start, size: found.slices },
    })
}

/// The MIG device of a handle.
fn mig_device(device: nvmlDevice_t) -> Answer<Device> {
    let (watch, index) = find_card(device)?;
    let number = index.checked_sub(watch.cards().len()).ok_or(NVML_ERROR_NOT_SUPPORTED)?;
    find_device(number)
}

/// `nvmlDeviceGetMaxMigDeviceCount`
pub fn max_devices(device: nvmlDevice_t, count: Out<u32>) -> Answer {
    let (watch, card) = find_card(device)?;
    let is_on = card < watch.cards().len() && is_on(card)?;
    count.put(if is_on { DEVICES_MAX as u32 } else { 0 })
}

/// `nvmlDeviceGetMigDeviceHandleByIndex`
pub fn device_by_index(device: nvmlDevice_t, index: u32, out: Out<nvmlDevice_t>) -> Answer {
    let view = View::in_mode(device)?;
    if index as usize >= DEVICES_MAX {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    let mut devices = devices_of(view.card.index)?.into_iter();
    let found = devices.find(|device| device.compute.device == index as usize);
    out.put(handle(found.ok_or(NVML_ERROR_NOT_FOUND)?.index()?))
}

/// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`
pub fn parent(device: nvmlDevice_t, out: Out<nvmlDevice_t>) -> Answer {
    let found = mig_device(device);
    // The header has no code of its own for a device that is not a MIG device.
    let found = found.map_err(|code| {
        if code == NVML_ERROR_NOT_SUPPORTED { NVML_ERROR_INVALID_ARGUMENT } else { code }
    })?;
    out.put(handle(found.card))
}

/// `nvmlDeviceGetGpuInstanceId`
pub fn instance_id(device: nvmlDevice_t, id: Out<u32>) -> Answer {
    id.put(mig_device(device)?.instance.id)
}

/// `nvmlDeviceGetComputeInstanceId`
pub fn compute_id(device: nvmlDevice_t, id: Out<u32>) -> Answer {
    id.put(mig_device(device)?.compute.id)
}

/// `nvmlDeviceGetAttributes_v2`: of MIG devices only.
pub fn attributes(device: nvmlDevice_t, out: Out<nvmlDeviceAttributes_t>) -> Answer {
    let Device { card, instance, compute, as_card } = mig_device(device)?;
    let row = View::of(card)?.row_of(&instance)?;
    let [copy, decoders, encoders, jpeg, ofa] = row.engines;
    out.put(nvmlDeviceAttributes_t {
        multiprocessorCount: as_card.profile.sm_count,
        sharedCopyEngineCount: copy,
        sharedDecoderCount: decoders,
        sharedEncoderCount: encoders,
        sharedJpegCount: jpeg,
        sharedOfaCount: ofa,
        gpuInstanceSliceCount: row.slices,
        computeInstanceSliceCount: compute.slices,
        memorySizeMB: row.memory_mib,
    })
}

/// The first MIG device like this among those of the process's cards: the numbers of card and device.
pub fn find_by(is_wanted: impl Fn(&Card) -> bool) -> Answer<Option<(usize, usize)>> {
    for card in crate::engine::devices()?.iter() {
        let mut devices = devices_of(*card)?.into_iter();
        if let Some(found) = devices.find(|device| is_wanted(&device.as_card)) {
            return Ok(Some((*card, found.index()?)));
        }
    }
    Ok(None)
}

/// Checks that a card is not divided, for what NVML does not report in MIG mode.
pub fn check_whole(device: nvmlDevice_t) -> Answer {
    let (watch, card) = find_card(device)?;
    let is_whole = card < watch.cards().len() && !is_on(card)?;
    if is_whole { Ok(()) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
}
