"""MIG instances of a GPU: which it can have, and making and removing them.

A GPU instance has memory and engines of the GPU, a compute instance in it has the multiprocessors;
programs see a MIG device. An instance here is a GPU instance with one compute instance of its size.
Its identity is its place on the GPU: instances and their UUIDs are lost at a reset and a reboot.
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from hami_py.errors import DriverError
from hami_py.gpu.deadline import Caller
from hami_py.gpu.nvml import in_mig_mode, mig_devices
from hami_py.model.pods import wire

_T = TypeVar("_T")

_MOST = 64
"""More placements or instances than a GPU has. NVML fills an array that must be large enough."""

_FIX = "check `nvidia-smi mig -lgi` on the node"

_caller = Caller("mig", 15.0)
"""Making an instance takes a second on an idle machine. The kubelet waits 30 s for its start."""


@dataclass(frozen=True)
class MigDevice:
    """Where a MIG device is.

    Attributes:
        minor: of the device node of its GPU.
        gpu_instance: the ID of the GPU instance on the GPU.
        compute_instance: the ID of the compute instance in the GPU instance.
        gpu: the UUID of its GPU.
        model: as NVML names it.
    """

    minor: int
    gpu_instance: int
    compute_instance: int
    gpu: str = ""
    model: str = ""


@dataclass(frozen=True)
class Existing:
    """A GPU instance that exists.

    Attributes:
        at: its profile and its place.
        uuids: of the MIG devices in it, one for each compute instance.
    """

    at: wire.Instance
    uuids: tuple[str, ...]


class NotMade(DriverError):
    """An instance was not made, and no part of it exists."""


def profiles(gpu: object) -> wire.Mig:
    """The instances that a GPU can have, in a session of NVML.

    Args:
        gpu: its handle.

    Returns:
        Without profiles: the driver is too old, or tells them to root only.

    Raises:
        pynvml.NVMLError: the GPU does not answer.
    """
    try:
        found = [_profile(gpu, each) for each in _profiles(gpu)]
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission):
        found = []
    return wire.Mig(tuple(each for each in found if each.placements and each.memory_mib))


def device_of(device: object) -> MigDevice:
    """Where a MIG device is, in a session of NVML.

    Args:
        device: its handle.

    Raises:
        pynvml.NVMLError: it does not exist any more.
    """
    gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    return MigDevice(
        int(pynvml.nvmlDeviceGetMinorNumber(gpu)),
        int(pynvml.nvmlDeviceGetGpuInstanceId(device)),
        int(pynvml.nvmlDeviceGetComputeInstanceId(device)),
        str(pynvml.nvmlDeviceGetUUID(gpu)),
        str(pynvml.nvmlDeviceGetName(device)),
    )


def existing(gpu: str) -> list[Existing]:
    """The GPU instances that a GPU has now; none if it is lost, or not in MIG mode.

    Args:
        gpu: its UUID.

    Raises:
        DriverError, NoDriver: NVML fails or hangs.
    """

    def ask() -> list[Existing]:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        except pynvml.NVMLError_NotFound:
            return []
        if not in_mig_mode(handle):
            return []
        devices = _devices(handle)
        return [
            Existing(at, tuple(devices.get(_id(instance), ())))
            for at, instance in _instances(handle)
        ]

    return _caller.call(ask)


def make(gpu: str, at: wire.Instance) -> tuple[str, MigDevice]:
    """Make an instance, or complete one of this profile that is at this place.

    Args:
        gpu: the UUID of its GPU.
        at: its profile and place.

    Returns:
        The UUID of the MIG device, and where it is.

    Raises:
        NotMade: the place is taken, or the GPU is not in MIG mode.
        DriverError: NVML fails or hangs. A part of the instance may exist then.
    """

    def ask() -> tuple[str, MigDevice]:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        if not in_mig_mode(handle):
            fix = "set its MIG mode again, or delete the node agent's pod"
            raise NotMade(f"card {gpu}", "it is not in MIG mode any more", fix)
        instance = _find(handle, at)
        if instance is None:
            profile = next((each for each in _profiles(handle) if _name(each) == at.profile), None)
            if profile is None:
                raise NotMade(f"card {gpu}", f"it has no MIG profile {at.profile}", _FIX)
            place = pynvml.c_nvmlGpuInstancePlacement_t(at.start, at.size)
            try:
                instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                    handle, profile.id, byref(place)
                )
            except pynvml.NVMLError_InsufficientResources as error:
                raise NotMade(_what(gpu, at), str(error), _FIX) from error
        devices = _devices(handle).get(_id(instance), {})
        if not devices:
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _whole(instance))
            devices = _devices(handle).get(_id(instance), {})
        if len(devices) != 1:
            why = f"another program has made it, with {len(devices)} compute instances"
            raise NotMade(_what(gpu, at), why, _FIX)
        ((uuid, device),) = devices.items()
        return uuid, device_of(device)

    return _told(gpu, at, ask)


def remove(gpu: str, at: wire.Instance) -> None:
    """Remove an instance; nothing if it is not there.

    One with several compute instances stays: it is somebody else's.

    Args:
        gpu: the UUID of its GPU.
        at: its profile and place.

    Raises:
        DriverError: a program uses it, or NVML fails or hangs. A part of it may exist then.
    """

    def ask() -> None:
        try:
            instance = _find(pynvml.nvmlDeviceGetHandleByUUID(gpu), at)
        except pynvml.NVMLError_NotFound:
            # The GPU is lost.
            return
        computes = [] if instance is None else list(_computes(instance))
        if instance is None or len(computes) > 1:
            return
        for compute in computes:
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)

    _told(gpu, at, ask)


def _what(gpu: str, at: wire.Instance) -> str:
    return f"card {gpu}: the instance {at.profile} at {at.start}"


def _told(gpu: str, at: wire.Instance, ask: Callable[[], _T]) -> _T:
    """The result of a call, or its error with the card and the instance."""

    def told() -> _T:
        try:
            return ask()
        except pynvml.NVMLError as error:
            raise DriverError(_what(gpu, at), str(error), _FIX) from error

    return _caller.call(told)


def _profiles(gpu: object) -> Iterator[Any]:
    """NVML's records of the profiles of a GPU."""
    for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        # The GPU does not have it, or the driver does not know it.
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, index)


def _name(profile: Any) -> str:  # noqa: ANN401
    return str(profile.name).removeprefix("MIG ")


def _profile(gpu: object, profile: Any) -> wire.MigProfile:  # noqa: ANN401
    ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    placed = _listed(pynvml.c_nvmlGpuInstancePlacement_t, ask, gpu, profile.id)
    return wire.MigProfile(
        _name(profile),
        int(profile.memorySizeMB),
        int(profile.sliceCount),
        tuple(int(row.start) for row in placed),
        int(placed[0].size) if placed else 0,
    )


def _instances(gpu: object) -> Iterator[tuple[wire.Instance, object]]:
    """The GPU instances with their handles, in the order of their places."""
    found = []
    for profile in _profiles(gpu):
        ask = pynvml.nvmlDeviceGetGpuInstances
        for instance in _listed(pynvml.c_nvmlGpuInstance_t, ask, gpu, profile.id):
            place = pynvml.nvmlGpuInstanceGetInfo(instance).placement
            at = wire.Instance(_name(profile), int(place.start), int(place.size))
            found.append((at, instance))
    yield from sorted(found, key=lambda each: each[0].start)


def _listed(kind: Any, ask: Callable[..., object], of: object, profile: int) -> list[Any]:  # noqa: ANN401
    """The records of this kind that NVML lists for a profile."""
    rows, count = (kind * _MOST)(), c_uint(_MOST)
    ask(of, profile, rows, byref(count))
    return list(rows[: count.value])


def _find(gpu: object, at: wire.Instance) -> object | None:
    return next((instance for place, instance in _instances(gpu) if place == at), None)


def _id(instance: object) -> int:
    return int(pynvml.nvmlGpuInstanceGetInfo(instance).id)


def _devices(gpu: object) -> dict[int, dict[str, object]]:
    """The handles of the MIG devices, by the ID of their GPU instance and by their UUID."""
    found: dict[int, dict[str, object]] = {}
    for device in mig_devices(gpu):
        of = found.setdefault(int(pynvml.nvmlDeviceGetGpuInstanceId(device)), {})
        of[str(pynvml.nvmlDeviceGetUUID(device))] = device
    return found


def _computes(instance: object) -> Iterator[object]:
    for profile in _compute_profiles(instance):
        ask = pynvml.nvmlGpuInstanceGetComputeInstances
        yield from _listed(pynvml.c_nvmlComputeInstance_t, ask, instance, profile.id)


def _compute_profiles(instance: object) -> Iterator[Any]:
    """NVML's records of the compute instance profiles of a GPU instance."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, shared)


def _whole(instance: object) -> int:
    """The ID of the compute instance profile that takes all of a GPU instance."""
    return int(max(_compute_profiles(instance), key=lambda profile: profile.sliceCount).id)
