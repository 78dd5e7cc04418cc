"""The driver calls that Python makes, through cffi.

Only test programs use them, in processes of their own: a CUDA context costs hundreds
of megabytes on the card and lives as long as its process. By default the symbols are looked up with
``dlsym``, so in a slice these calls are limited like those of any other program.
"""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from cffi import FFI

from hami_py.errors import DriverError
from hami_py.gpu._driver_cdef import CDEF
from hami_py.gpu.loader import Loader

LIBRARY = "libcuda.so.1"
PAGE = 2 << 20
"""Bytes: the driver allocates memory in pages of 2 MiB, also for smaller requests."""

Find = Callable[[str], int]
"""A symbol lookup: returns the address of a symbol, 0 if there is none."""

_FIXES = {
    # The preload library returns this if it cannot enforce the slice's limits.
    "CUDA_ERROR_NO_DEVICE": "check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`; a slice that refuses"
    " CUDA reports the reason on standard error, in a line that begins with `hami:`",
    "CUDA_ERROR_OUT_OF_MEMORY": "raise the slice's limit, or end some programs on the card",
}
"""How to fix errors whose cause may not be the card."""

_TYPES = {
    name: f"unsigned int (*){parameters}"
    for name, parameters in re.findall(r"^unsigned int (\w+)(\(.*\));$", CDEF, re.MULTILINE)
}
"""The type of each function, to call it at the address that a lookup returned."""


def by_dlsym(loader: Loader, library: str = LIBRARY) -> Find:
    """The lookup that most programs use.

    Raises:
        NoDriver: the library cannot be loaded.
    """
    handle = loader.open(library)
    return lambda symbol: loader.symbol(handle, symbol)


def by_proc_address(lookup: int, second_form: bool, version: int, flags: int, symbol: str) -> int:
    """The address that cuGetProcAddress, or its second form, returns for a symbol.

    It takes the name without its suffix, and the CUDA version that a program was built for.
    """
    ffi = FFI()
    status = ", int *" if second_form else ""
    kind = f"unsigned int (*)(const char *, uintptr_t *, int, unsigned long long{status})"
    function: Any = ffi.cast(kind, lookup)
    found: Any = ffi.new("uintptr_t *")
    more = [ffi.new("int *")] if second_form else []
    name = symbol.removesuffix("_v2").encode()
    return 0 if function(name, found, version, flags, *more) else int(found[0])


class Driver:
    """The CUDA driver, initialised."""

    def __init__(self, find: Find | None = None) -> None:
        """Load and initialise.

        Raises:
            NoDriver: the library cannot be loaded.
            DriverError: it cannot be initialised, e.g. because there is no card.
        """
        self._ffi = FFI()
        self._find = find or by_dlsym(Loader())
        self._call("cuInit", 0)

    def version(self) -> int:
        """The CUDA version that the driver supports: 13050 is 13.5."""
        version = self._ffi.new("int *")
        self._call("cuDriverGetVersion", version)
        return int(version[0])

    def count(self) -> int:
        """The number of cards that this process sees."""
        count = self._ffi.new("int *")
        self._call("cuDeviceGetCount", count)
        return int(count[0])

    def use(self, ordinal: int) -> None:
        """Make the card's primary context current in this thread, for the life of the process."""
        device = self._device(ordinal)
        context = self._ffi.new("void **")
        self._call("cuDevicePrimaryCtxRetain", context, device)
        self._call("cuCtxSetCurrent", context[0])

    def total(self, ordinal: int) -> int:
        """The card's total memory that the driver reports, in bytes."""
        total = self._ffi.new("size_t *")
        self._call("cuDeviceTotalMem_v2", total, self._device(ordinal))
        return int(total[0])

    def uuid(self, ordinal: int) -> str:
        """The card's UUID as NVML writes it; of a MIG device CUDA has no name that NVML knows."""
        found: Any = self._ffi.new("unsigned char[16]")
        self._call("cuDeviceGetUuid_v2", found, self._device(ordinal))
        return f"GPU-{UUID(bytes=bytes(found))}"

    def free(self) -> int:
        """The free memory of the current card that the driver reports, in bytes."""
        free, total = self._ffi.new("size_t *"), self._ffi.new("size_t *")
        self._call("cuMemGetInfo_v2", free, total)
        return int(free[0])

    def allocate(self, size: int, *, keep: bool = True) -> str | None:
        """Allocate ``size`` bytes on the current card, and free them at once unless ``keep``.

        Returns:
            None, or the name of the error.
        """
        pointer = self._ffi.new("unsigned long long *")
        error = self._try("cuMemAlloc_v2", pointer, size)
        if error:
            return self._error_name(error)
        if not keep:
            self._call("cuMemFree_v2", pointer[0])
        return None

    def _device(self, ordinal: int) -> int:
        device = self._ffi.new("int *")
        self._call("cuDeviceGet", device, ordinal)
        return int(device[0])

    def _call(self, name: str, *arguments: object) -> None:
        error = self._try(name, *arguments)
        if error:
            why = self._error_name(error)
            fix = _FIXES.get(why, "check `nvidia-smi` and `dmesg`, then retry")
            raise DriverError(name, why, fix)

    def _try(self, name: str, *arguments: object) -> int:
        address = self._find(name)
        if not address:
            fix = "install a driver for CUDA 11.8 or newer"
            raise DriverError(name, "the driver does not have this function", fix)
        function: Any = self._ffi.cast(_TYPES[name], address)
        return int(function(*arguments))

    def _error_name(self, error: int) -> str:
        name = self._ffi.new("char **")
        if self._try("cuGetErrorName", error, name) or name[0] == self._ffi.NULL:
            return f"CUDA error {error}"
        text = self._ffi.string(name[0])
        return text.decode() if isinstance(text, bytes) else str(text)
