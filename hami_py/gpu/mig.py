"""MIG instances of a GPU: which it can have, and making and removing them.

A GPU instance has memory and engines of the GPU, a compute instance in it has the multiprocessors;
programs see a MIG device. An instance here is a GPU instance with one compute instance of its size.
Its identity is its place on the GPU: instances and their UUIDs are lost at a reset and a reboot.
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import Array, byref, c_uint
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from hami_py.errors import DriverError
from hami_py.gpu.deadline import Caller
from hami_py.gpu.nvml import is_partitioned, mig_slices
from hami_py.model.pods import wire

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_PLACEMENTS = 64
"""More placements than a profile has; NVML counts, and fills an array that must be large enough."""

_INSTANCES = 16
"""More instances than a GPU has."""

_FIX = "check `nvidia-smi mig -lgi` on the node"

_caller = Caller("mig", 15.0)
"""Making an instance takes a second on an idle machine. The kubelet waits 30 s for its start."""


@dataclass(frozen=True)
class Instance:
    """Where a MIG instance is.

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
class Place:
    """A GPU instance that exists.

    Attributes:
        at: its profile and its place.
        uuid: of the MIG device, if it has one compute instance; otherwise None.
    """

    at: wire.Instance
    uuid: str | None


def profiles(gpu: object) -> wire.Mig:
    """The instances that a GPU can have, in a session of NVML; none if NVML does not say.

    Args:
        gpu: its handle.
    """
    try:
        found = [_profile(gpu, each) for each in _profiles(gpu)]
    except pynvml.NVMLError as error:
        _log.warning("the MIG profiles of %s: %s", pynvml.nvmlDeviceGetUUID(gpu), error)
        found = []
    return wire.Mig(tuple(found))


def instance_of(device: object) -> Instance:
    """Where a MIG device is, in a session of NVML.

    Args:
        device: its handle.

    Raises:
        pynvml.NVMLError: it does not exist any more.
    """
    gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    return Instance(
        int(pynvml.nvmlDeviceGetMinorNumber(gpu)),
        int(pynvml.nvmlDeviceGetGpuInstanceId(device)),
        int(pynvml.nvmlDeviceGetComputeInstanceId(device)),
        str(pynvml.nvmlDeviceGetUUID(gpu)),
        str(pynvml.nvmlDeviceGetName(device)),
    )


def places(gpu: str) -> list[Place]:
    """The GPU instances that a GPU has now.

    Args:
        gpu: its UUID.

    Raises:
        DriverError, NoDriver: NVML fails or hangs.
    """

    def ask() -> list[Place]:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        devices = _devices(handle)
        found = []
        for at, instance in _instances(handle):
            uuids = devices.get(_id(instance), {})
            found.append(Place(at, next(iter(uuids)) if len(uuids) == 1 else None))
        return found

    return _caller.call(ask)


def make(gpu: str, at: wire.Instance, uuid: str | None) -> tuple[str, Instance]:
    """Make an instance, or complete one that is at this place.

    Args:
        gpu: the UUID of its GPU.
        at: its profile and place.
        uuid: of its MIG device, if it was made before, so that no other is taken for it.

    Returns:
        The UUID of the MIG device, and where it is.

    Raises:
        DriverError: the place is taken, the GPU is not in MIG mode, or NVML fails or hangs. A part
            of the instance may exist then.
    """

    def ask() -> tuple[str, Instance]:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        if not is_partitioned(handle):
            raise DriverError(f"card {gpu}", "it is not in MIG mode any more", _FIX)
        instance = _find(handle, at)
        if instance is None:
            profile = next((each for each in _profiles(handle) if _name(each) == at.profile), None)
            if profile is None:
                raise DriverError(f"card {gpu}", f"it has no MIG profile {at.profile}", _FIX)
            place = pynvml.c_nvmlGpuInstancePlacement_t(at.start, at.size)
            instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                handle, profile.id, byref(place)
            )
        devices = _devices(handle).get(_id(instance), {})
        if not devices:
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _whole(instance))
            devices = _devices(handle).get(_id(instance), {})
        elif uuid is not None and uuid not in devices:
            raise DriverError(f"card {gpu}", f"another program has made {at.profile} there", _FIX)
        if len(devices) != 1:
            why = f"the instance {at.profile} at {at.start} has {len(devices)} compute instances"
            raise DriverError(f"card {gpu}", why, "remove it with nvidia-smi mig")
        ((found, device),) = devices.items()
        return found, instance_of(device)

    return _told(gpu, at, ask)


def remove(gpu: str, at: wire.Instance, uuid: str | None) -> None:
    """Remove an instance; nothing if it is not there.

    Args:
        gpu: the UUID of its GPU.
        at: its profile and place.
        uuid: of its MIG device, so that no other is removed that was made at this place after it;
            None = unknown.

    Raises:
        DriverError: a program uses it, or NVML fails or hangs. A part of it may exist then.
    """

    def ask() -> None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            instance = _find(handle, at)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_NotSupported):
            # The card is lost, or it is not in MIG mode any more.
            return
        if instance is None:
            return
        devices = _devices(handle).get(_id(instance), {})
        if uuid is not None and devices and uuid not in devices:
            return
        for compute in _computes(instance):
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)

    _told(gpu, at, ask)


def _told(gpu: str, at: wire.Instance, ask: Callable[[], _T]) -> _T:
    """The result of a call, or its error with the card and the instance."""

    def told() -> _T:
        try:
            return ask()
        except pynvml.NVMLError as error:
            what = f"card {gpu}: the instance {at.profile} at {at.start}"
            raise DriverError(what, str(error), _FIX) from error

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
    rows, count = (pynvml.c_nvmlGpuInstancePlacement_t * _PLACEMENTS)(), c_uint(_PLACEMENTS)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.id, rows, byref(count))
    placed = rows[: count.value]
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
        rows: Array[Any] = (pynvml.c_nvmlGpuInstance_t * _INSTANCES)()
        count = c_uint(_INSTANCES)
        pynvml.nvmlDeviceGetGpuInstances(gpu, profile.id, rows, byref(count))
        for instance in rows[: count.value]:
            place = pynvml.nvmlGpuInstanceGetInfo(instance).placement
            at = wire.Instance(_name(profile), int(place.start), int(place.size))
            found.append((at, instance))
    yield from sorted(found, key=lambda each: each[0].start)


def _find(gpu: object, at: wire.Instance) -> object | None:
    return next((instance for place, instance in _instances(gpu) if place == at), None)


def _id(instance: object) -> int:
    return int(pynvml.nvmlGpuInstanceGetInfo(instance).id)


def _devices(gpu: object) -> dict[int, dict[str, object]]:
    """The handles of the MIG devices, by the ID of their GPU instance and by their UUID."""
    found: dict[int, dict[str, object]] = {}
    for device in mig_slices(gpu):
        of = found.setdefault(int(pynvml.nvmlDeviceGetGpuInstanceId(device)), {})
        of[str(pynvml.nvmlDeviceGetUUID(device))] = device
    return found


def _computes(instance: object) -> Iterator[object]:
    for profile in _compute_profiles(instance):
        rows: Array[Any] = (pynvml.c_nvmlComputeInstance_t * _INSTANCES)()
        count = c_uint(_INSTANCES)
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, profile.id, rows, byref(count))
        yield from rows[: count.value]


def _compute_profiles(instance: object) -> Iterator[Any]:
    """NVML's records of the compute instance profiles of a GPU instance."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, shared)


def _whole(instance: object) -> int:
    """The ID of the compute instance profile that takes all of a GPU instance."""
    return int(max(_compute_profiles(instance), key=lambda profile: profile.sliceCount).id)
