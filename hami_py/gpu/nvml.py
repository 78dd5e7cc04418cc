"""Listing cards through NVML, NVIDIA's management library.

This module creates no CUDA context, so listing a card costs no memory on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pynvml  # type: ignore[import-untyped]

from hami_py._native import same_card
from hami_py.errors import DriverError, HamiError, NoDevice, NoDriver
from hami_py.gpu.driver_memory import context_memory
from hami_py.model import Card


def cards() -> list[Card]:
    """The cards of this machine, in NVML's order; MIG slices instead of a partitioned GPU.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        NoDevice: there is no card.
        DriverError: a card does not respond.
    """
    with session():
        found: list[Card] = []
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        for handle in handles():
            total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            name = str(pynvml.nvmlDeviceGetName(handle))
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            found.append(Card(len(found), uuid, name, total, context_memory(name, driver)))
    if not found:
        raise NoDevice(
            "NVML",
            "the driver shows no card",
            "check `nvidia-smi -L`; a container needs an assigned card (docker run --gpus)",
        )
    return found


def memory_free(uuids: list[str]) -> dict[str, int]:
    """Free bytes by UUID; cards that NVML cannot read are left out."""
    free: dict[str, int] = {}
    try:
        with session():
            for handle in handles():
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                for name in uuids:
                    if same_card(name, uuid):
                        free[name] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
    except HamiError:
        pass
    return free


def driver_version() -> str:
    """The driver's own version, e.g. ``580.95.05``.

    Raises:
        NoDriver: there is no driver, or it does not respond.
    """
    with session():
        return str(pynvml.nvmlSystemGetDriverVersion())


def handles() -> Iterator[object]:
    """The handles of all cards; of MIG slices instead of a partitioned GPU."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        if is_partitioned(handle):
            yield from mig_slices(handle)
        else:
            yield handle


def is_partitioned(handle: object) -> bool:
    """Whether a GPU is partitioned into MIG slices."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def mig_slices(handle: object) -> Iterator[object]:
    """The handles of the MIG slices of a GPU."""
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            # The numbers of slices have gaps.
            continue


@contextmanager
def session() -> Iterator[None]:
    """Initialise NVML, and turn its errors into ours.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        DriverError: a call of NVML failed.
    """
    try:
        pynvml.nvmlInit()
        try:
            yield
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound as error:
        raise NoDriver(
            "NVML",
            "libnvidia-ml.so.1 was not found",
            "install the NVIDIA driver; a container needs the utility driver capability",
        ) from error
    except (pynvml.NVMLError_DriverNotLoaded, pynvml.NVMLError_LibRmVersionMismatch) as error:
        fix = "load the driver (`modprobe nvidia`); after an update restart the machine"
        raise NoDriver("NVML", str(error), fix) from error
    except pynvml.NVMLError as error:
        fix = "check `nvidia-smi` and `dmesg`, then retry"
        raise DriverError("NVML", str(error), fix) from error
