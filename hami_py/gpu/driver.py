"""The few driver calls that Python makes itself, through cffi.

Only probes use them, in processes of their own: a CUDA context costs hundreds of megabytes on the
card and lives as long as its process. The symbols are looked up by ``dlsym`` unless another road is
named, so under a slice these calls are held to its limit like any other program's.
"""

import re
from collections.abc import Callable
from typing import Any

from cffi import FFI

from hami_py.errors import DriverError
from hami_py.gpu._driver_cdef import CDEF
from hami_py.gpu.loader import Loader

LIBRARY = "libcuda.so.1"
PAGE = 2 << 20
"""Bytes: the driver hands out memory in pages of 2 MiB; a smaller request takes no less."""

Find = Callable[[str], int]
"""A road into the driver: the address of a symbol, 0 for none."""

_FIXES = {
    # The preload library answers so where it cannot hold the slice to its limits.
    "CUDA_ERROR_NO_DEVICE": "check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`; a slice that refuses"
    " CUDA says why on standard error, in the line that begins with `hami:`",
    "CUDA_ERROR_OUT_OF_MEMORY": "raise the slice's limit, or end some programs on the card",
}
"""What to do about an error whose cause need not be the card."""

_TYPES = {
    name: f"unsigned int (*){parameters}"
    for name, parameters in re.findall(r"^unsigned int (\w+)(\(.*\));$", CDEF, re.MULTILINE)
}
"""Each declared function's type, to call it at an address that any road gave."""


def by_dlsym(loader: Loader, library: str = LIBRARY) -> Find:
    """The road that most programs take.

    Raises:
        NoDriver: the library cannot be loaded.
    """
    handle = loader.open(library)
    return lambda symbol: loader.symbol(handle, symbol)


def by_proc_address(lookup: int, second_form: bool, version: int, flags: int, symbol: str) -> int:
    """What cuGetProcAddress, or its second form, gives for a symbol.

    It takes the name without its suffix, and the CUDA version that a program was made for.
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

        Args:
            find: the road to it; None = ``by_dlsym``.

        Raises:
            NoDriver: the library cannot be loaded.
            DriverError: it cannot be initialised, e.g. because there is no card.
        """
        self._ffi = FFI()
        self._find = find or by_dlsym(Loader())
        self._call("cuInit", 0)

    def version(self) -> int:
        """The CUDA version that the driver speaks: 13050 is 13.5."""
        version = self._ffi.new("int *")
        self._call("cuDriverGetVersion", version)
        return int(version[0])

    def count(self) -> int:
        """How many cards this process sees."""
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
        """Bytes of memory that the card is said to have."""
        total = self._ffi.new("size_t *")
        self._call("cuDeviceTotalMem_v2", total, self._device(ordinal))
        return int(total[0])

    def free(self) -> int:
        """Bytes that are said to be free on the current card."""
        free, total = self._ffi.new("size_t *"), self._ffi.new("size_t *")
        self._call("cuMemGetInfo_v2", free, total)
        return int(free[0])

    def allocate(self, size: int, *, keep: bool = True) -> str | None:
        """Take ``size`` bytes on the current card, until the process ends or only for a moment.

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
            fix = _FIXES.get(why, "look at `nvidia-smi` and `dmesg`, then try again")
            raise DriverError(name, why, fix)

    def _try(self, name: str, *arguments: object) -> int:
        address = self._find(name)
        if not address:
            fix = "install a driver of CUDA 11.8 or newer"
            raise DriverError(name, "the driver does not have it", fix)
        function: Any = self._ffi.cast(_TYPES[name], address)
        return int(function(*arguments))

    def _error_name(self, error: int) -> str:
        name = self._ffi.new("char **")
        if self._try("cuGetErrorName", error, name) or name[0] == self._ffi.NULL:
            return f"CUDA error {error}"
        text = self._ffi.string(name[0])
        return text.decode() if isinstance(text, bytes) else str(text)
