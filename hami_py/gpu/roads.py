"""A CUDA program of our own, for the doctor: is each road into the driver limited?

    python -m hami_py.gpu.roads LIMIT UUID    # in a slice of one card, with so many bytes

A program may be linked with the driver, or look it up by ``dlopen``, ``dlsym``, ``dlvsym`` or
cuGetProcAddress, and NVML is a library of its own. A limit holds only if every one of these leads
to it. On each road the same is asked: how large is the card, is a page granted, and is a page more
than the limit refused? One JSON list on standard output, a row for each road.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import pynvml  # type: ignore[import-untyped]

from hami_py.errors import HamiError
from hami_py.gpu.driver import LIBRARY, PAGE, Driver, Find, by_dlsym, by_proc_address
from hami_py.gpu.linked import TABLE, Linked
from hami_py.gpu.loader import Loader

CALLED = (
    "cuInit",
    "cuGetErrorName",
    "cuDeviceGet",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
)
"""What the walk below calls, for a road on which everything is bound beforehand."""

_DLSYM_HOMES = ("libc.so.6", "libdl.so.2")
"""Where ``dlsym`` is since glibc 2.34, and where it was."""

_DLSYM_VERSIONS = ("GLIBC_2.2.5", "GLIBC_2.17")
"""Under which glibc has ``dlsym`` for old programs, on x86-64 and on AArch64."""


@dataclass
class Walk:
    """What one road was found to be.

    Attributes:
        road: its name.
        missing: why it does not exist here; None = it does.
        failed: what went wrong on it.
        leads_to: the library in which its ``cuMemAlloc`` lies.
        total: bytes that card 0 is said to have; the other two were not tried where it is not the
            limit.
        granted: the error of a request for a page; None = it was granted.
        refused: the error of a request for a page more than the limit; None = it was granted.
    """

    road: str
    missing: str | None = None
    failed: str | None = None
    leads_to: str = ""
    total: int = 0
    granted: str | None = None
    refused: str | None = None


class _NotHereError(Exception):
    """This machine or driver does not have the road."""


def walk_all(limit: int, uuid: str) -> list[Walk]:
    """Every road, in this process."""
    loader = Loader()
    walks = [_walk(name, road, loader, limit) for name, road in ROADS.items()]
    return [*walks, _nvml(uuid)]


def _walk(name: str, road: Callable[[Loader], Find], loader: Loader, limit: int) -> Walk:
    walk = Walk(name)
    try:
        find = road(loader)
        walk.leads_to = loader.object_of(find("cuMemAlloc_v2"))
        driver = Driver(find)
        walk.total = driver.total(0)
        if walk.total == limit:
            driver.use(0)
            walk.granted = driver.allocate(PAGE, keep=False)
            walk.refused = driver.allocate(limit + PAGE, keep=False)
    except _NotHereError as error:
        walk.missing = str(error)
    except HamiError as error:
        walk.failed = f"{error.what}: {error.why}"
    return walk


def _nvml(uuid: str) -> Walk:
    """NVML grants nothing; it tells programs and people how large the card is."""
    walk = Walk(NVML)
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        walk.total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        walk.failed = str(error)
    return walk


def _linked(loader: Loader, flags: int) -> Find:
    """What the loader binds in a library that is linked with the driver."""
    made = Linked([LIBRARY], CALLED)
    table = loader.symbol(loader.open(made.write(), flags), TABLE)
    bound = dict(zip(CALLED, loader.words(table, len(CALLED)), strict=True))
    return lambda symbol: bound[symbol]


def _by_linker_name(loader: Loader) -> Find:
    try:
        return by_dlsym(loader, "libcuda.so")
    except HamiError as error:
        raise _NotHereError("there is no libcuda.so") from error


def _by_dlvsym(loader: Loader) -> Find:
    """Old programs are bound to an old version of ``dlsym``, and some ask for it by ``dlvsym``."""
    handle = loader.open(LIBRARY)
    found = (
        loader.versioned(loader.open(home), "dlsym", version)
        for home in _DLSYM_HOMES
        for version in _DLSYM_VERSIONS
    )
    address = next(filter(None, found), 0)
    if not address:
        raise _NotHereError("this C library has no old version of dlsym")
    return lambda symbol: loader.symbol(handle, symbol, dlsym=address)


def _lookup(form: str, version: int, flags: int) -> Callable[[Loader], Find]:
    """The driver's own lookup, by name and by the CUDA version that a program was made for."""

    def road(loader: Loader) -> Find:
        address = by_dlsym(loader)(form)
        if not address:
            raise _NotHereError(f"this driver has no {form}")
        return partial(by_proc_address, address, form.endswith("_v2"), version, flags)

    return road


_PER_THREAD_STREAM = 2
"""CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM."""

NVML = "NVML"
DEEPBIND = "RTLD_DEEPBIND"

ROADS: Mapping[str, Callable[[Loader], Find]] = {
    "direct link": lambda loader: _linked(loader, os.RTLD_LOCAL),
    "dlsym in libcuda.so.1": by_dlsym,
    "dlsym in libcuda.so": _by_linker_name,
    "dlvsym": _by_dlvsym,
    "cuGetProcAddress": _lookup("cuGetProcAddress", 11030, 0),
    "cuGetProcAddress_v2": _lookup("cuGetProcAddress_v2", 12000, 0),
    "cuGetProcAddress_v2, stream per thread": _lookup(
        "cuGetProcAddress_v2", 12000, _PER_THREAD_STREAM
    ),
    DEEPBIND: lambda loader: _linked(loader, os.RTLD_DEEPBIND),
}
"""NVML beside them."""


if __name__ == "__main__":
    print(json.dumps([asdict(walk) for walk in walk_all(int(sys.argv[1]), sys.argv[2])]))
