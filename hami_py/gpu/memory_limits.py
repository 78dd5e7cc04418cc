"""The driver's own limits on the memory of cgroups (NVML of CUDA 13.4 and newer).

The kernel enforces them for every program of a cgroup, without the preload library. One of two back
ends does it: the kernel's cgroup controller ``dmem``, or the driver itself (``misc``). Where memory
from before a limit counts, and limits nest, it is ``dmem``; ``misc`` counts only memory from after
the limit, and keeps what it knows of a cgroup that was removed.

The structures: nvmlSetMemoryLimits_v1_t and nvmlGetMemoryLimits_v1_t, bytes; a soft limit of 0 and
a hard limit of 2^64-1 are none.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import pynvml  # type: ignore[import-untyped]

from hami_py.errors import DriverError
from hami_py.gpu.deadline import Caller
from hami_py.gpu.nvml import in_mig_mode

Backend: TypeAlias = Literal["dmem", "misc"]

_NONE = 2**64 - 1

_FIX = "check `nvidia-smi` and `dmesg` on the node"

_caller = Caller("memory-limits", 5.0)
"""A call takes microseconds. The container's start waits for it."""


def backend(cgroup: Path) -> Backend | None:
    """The part of the driver that limits memory on this machine; None = it has none.

    Args:
        cgroup: any cgroup but the root. One without a limit has none after that either.

    Raises:
        DriverError, NoDriver: NVML fails or hangs.
    """

    def ask() -> Backend | None:
        # Instances have no limits.
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        handle = next((each for each in handles if not in_mig_mode(each)), None)
        if handle is None:
            return None
        try:
            _get(handle, cgroup)
        except pynvml.NVMLError_FunctionNotFound:
            return None
        except pynvml.NVMLError_NotSupported:
            # So it is with misc, too, for a cgroup without a limit.
            with suppress(pynvml.NVMLError_NotSupported):
                _set(handle, cgroup, None)
                return "misc"
            return None
        return "dmem"

    return _caller.call(ask)


def set_limits(cgroup: Path, limits: Mapping[str, int | None]) -> None:
    """Limit the memory of a cgroup on some cards, and check that the driver says the same.

    Args:
        cgroup: the full path of its directory.
        limits: the bytes by the card's UUID; None = no limit.

    Raises:
        DriverError: a card refuses its limit, or NVML fails or hangs. Other cards may be limited.
    """

    def ask() -> None:
        for uuid, limit in limits.items():
            what = f"card {uuid}: the memory limit of {cgroup}"
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                _set(handle, cgroup, limit)
                found = _get(handle, cgroup) if limit is not None else None
            except pynvml.NVMLError as error:
                raise DriverError(what, str(error), _FIX) from error
            if found != limit:
                why = f"{limit} bytes were set, and the driver says {found}"
                raise DriverError(what, why, "let no other program change limits of containers")

    _caller.call(ask)


def read_limits(cgroup: Path, uuids: list[str]) -> dict[str, int | None]:
    """The limits of a cgroup on some cards, in bytes by UUID; None = no limit.

    Raises:
        DriverError: NVML fails or hangs.
    """

    def ask() -> dict[str, int | None]:
        return {uuid: _read(uuid, cgroup) for uuid in uuids}

    return _caller.call(ask)


def _read(uuid: str, cgroup: Path) -> int | None:
    with suppress(pynvml.NVMLError_NotSupported):
        return _get(pynvml.nvmlDeviceGetHandleByUUID(uuid), cgroup)
    return None


def _set(handle: object, cgroup: Path, limit: int | None) -> None:
    hard = _NONE if limit is None else limit
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(cgroup).encode(), 0, hard)
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)


def _get(handle: object, cgroup: Path) -> int | None:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(str(cgroup).encode())
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    return None if limits.hardLimit == _NONE else int(limits.hardLimit)
