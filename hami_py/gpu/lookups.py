"""A CUDA program for the doctor: tests whether each way to look up the driver's symbols is limited.

    python -m hami_py.gpu.lookups LIMIT UUID    # in a slice of one card with LIMIT bytes

A program may be linked with the driver, or look up its symbols with ``dlsym``, ``dlvsym`` or
cuGetProcAddress; NVML is another library. A limit holds only if each of these finds the preload
library. Each lookup is tested in the same way: read the card's memory, allocate a page, and
allocate a page more than the limit, which must fail. It writes a JSON list to standard output, with
one report per lookup.
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
"""The functions that the test calls, for the lookup in which the loader binds all of them."""

_DLSYM_HOMES = ("libc.so.6", "libdl.so.2")
"""The libraries with ``dlsym``: since glibc 2.34, and before."""

_DLSYM_VERSIONS = ("GLIBC_2.2.5", "GLIBC_2.17")
"""The versions of ``dlsym`` for old programs in glibc, on x86-64 and on AArch64."""


@dataclass
class Report:
    """The test of one lookup.

    Attributes:
        missing: why it is not available here; None = it is.
        library: the library that contains its ``cuMemAlloc``.
        total: the reported memory of card 0 in bytes. If it differs from the limit, nothing is
            allocated.
        page_error: the error of allocating a page; None = it succeeded.
        excess_error: the error of allocating a page more than the limit; None = it succeeded.
    """

    lookup: str
    missing: str | None = None
    failed: str | None = None
    library: str = ""
    total: int = 0
    page_error: str | None = None
    excess_error: str | None = None


class _NotAvailableError(Exception):
    """This machine or driver does not support the lookup."""


def check_all(limit: int, uuid: str) -> list[Report]:
    """Test every lookup in this process."""
    loader = Loader()
    reports = [_check(name, lookup, loader, limit) for name, lookup in LOOKUPS.items()]
    return [*reports, _nvml(uuid)]


def _check(name: str, lookup: Callable[[Loader], Find], loader: Loader, limit: int) -> Report:
    report = Report(name)
    try:
        find = lookup(loader)
        report.library = loader.object_of(find("cuMemAlloc_v2"))
        driver = Driver(find)
        report.total = driver.total(0)
        if report.total == limit:
            driver.use(0)
            report.page_error = driver.allocate(PAGE, keep=False)
            report.excess_error = driver.allocate(limit + PAGE, keep=False)
    except _NotAvailableError as error:
        report.missing = str(error)
    except HamiError as error:
        report.failed = f"{error.what}: {error.why}"
    return report


def _nvml(uuid: str) -> Report:
    """NVML allocates nothing; it reports the card's memory."""
    report = Report(NVML)
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        report.total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        pynvml.nvmlShutdown()
    except pynvml.NVMLError_NotSupported:
        report.missing = "it does not report the memory of this card"
    except pynvml.NVMLError as error:
        report.failed = str(error)
    return report


def _linked(loader: Loader, flags: int) -> Find:
    """The addresses that the loader binds in a library that is linked with the driver."""
    linked = Linked([LIBRARY], CALLED)
    table = loader.symbol(loader.open(linked.write(), flags), TABLE)
    bound = dict(zip(CALLED, loader.words(table, len(CALLED)), strict=True))
    return lambda symbol: bound[symbol]


def _by_linker_name(loader: Loader) -> Find:
    try:
        return by_dlsym(loader, "libcuda.so")
    except HamiError as error:
        raise _NotAvailableError("there is no libcuda.so") from error


def _by_dlvsym(loader: Loader) -> Find:
    """Old programs are bound to an old version of ``dlsym``; some look it up with ``dlvsym``."""
    handle = loader.open(LIBRARY)
    found = (
        loader.versioned(loader.open(home), "dlsym", version)
        for home in _DLSYM_HOMES
        for version in _DLSYM_VERSIONS
    )
    address = next(filter(None, found), 0)
    if not address:
        raise _NotAvailableError("this C library has no old version of dlsym")
    return lambda symbol: loader.symbol(handle, symbol, dlsym=address)


def _proc_address(form: str, version: int, flags: int) -> Callable[[Loader], Find]:
    """The driver's own lookup, by name and by the CUDA version that a program was built for."""

    def lookup(loader: Loader) -> Find:
        address = by_dlsym(loader)(form)
        if not address:
            raise _NotAvailableError(f"this driver has no {form}")
        return partial(by_proc_address, address, form.endswith("_v2"), version, flags)

    return lookup


_PER_THREAD_STREAM = 2
"""CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM."""

NVML = "NVML"
DEEPBIND = "RTLD_DEEPBIND"

LOOKUPS: Mapping[str, Callable[[Loader], Find]] = {
    "direct link": lambda loader: _linked(loader, os.RTLD_LOCAL),
    "dlsym in libcuda.so.1": by_dlsym,
    "dlsym in libcuda.so": _by_linker_name,
    "dlvsym": _by_dlvsym,
    "cuGetProcAddress": _proc_address("cuGetProcAddress", 11030, 0),
    "cuGetProcAddress_v2": _proc_address("cuGetProcAddress_v2", 12000, 0),
    "cuGetProcAddress_v2, stream per thread": _proc_address(
        "cuGetProcAddress_v2", 12000, _PER_THREAD_STREAM
    ),
    DEEPBIND: lambda loader: _linked(loader, os.RTLD_DEEPBIND),
}
"""The lookups of the driver by name; NVML is tested in addition."""


if __name__ == "__main__":
    print(json.dumps([asdict(report) for report in check_all(int(sys.argv[1]), sys.argv[2])]))
