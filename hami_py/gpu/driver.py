"""The few driver calls that Python makes itself, through cffi.

Only the probe uses them, in a process of its own: a CUDA context costs hundreds of megabytes on the
card and lives as long as its process. The symbols are looked up by ``dlsym``, one of the roads by
which programs reach the driver, so under a slice these calls are held to its limit like any other.
"""

from typing import Any

from cffi import FFI

from hami_py.errors import DriverError, NoDriver
from hami_py.gpu._driver_cdef import CDEF

LIBRARY = "libcuda.so.1"

_MENDS = {
    # The preload library answers so where it cannot hold the slice to its limits.
    "CUDA_ERROR_NO_DEVICE": "check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`; a slice that refuses"
    " CUDA says why on standard error, in the line that begins with `hami:`",
    "CUDA_ERROR_OUT_OF_MEMORY": "raise the slice's limit, or end some programs on the card",
}
"""What to do about an error whose cause need not be the card."""


class Driver:
    """The CUDA driver, initialised."""

    def __init__(self) -> None:
        """Load and initialise.

        Raises:
            NoDriver: the library cannot be loaded.
            DriverError: it cannot be initialised, e.g. because there is no card.
        """
        self._ffi = FFI()
        self._ffi.cdef(CDEF)
        try:
            self._library: Any = self._ffi.dlopen(LIBRARY)
        except OSError as error:
            mend = "install the NVIDIA driver; a container needs the compute driver capability"
            # cffi adds a second sentence about a search that nobody asked for.
            raise NoDriver(LIBRARY, str(error).split(".  ")[0], mend) from error
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

    def allocate(self, size: int) -> str | None:
        """Take ``size`` bytes on the current card until the process ends.

        Returns:
            None, or the name of the error.
        """
        pointer = self._ffi.new("unsigned long long *")
        error: int = self._library.cuMemAlloc_v2(pointer, size)
        return self._error_name(error) if error else None

    def _device(self, ordinal: int) -> int:
        device = self._ffi.new("int *")
        self._call("cuDeviceGet", device, ordinal)
        return int(device[0])

    def _call(self, name: str, *arguments: object) -> None:
        error: int = getattr(self._library, name)(*arguments)
        if error:
            why = self._error_name(error)
            mend = _MENDS.get(why, "look at `nvidia-smi` and `dmesg`, then try again")
            raise DriverError(name, why, mend)

    def _error_name(self, error: int) -> str:
        name = self._ffi.new("char **")
        if self._library.cuGetErrorName(error, name) or name[0] == self._ffi.NULL:
            return f"CUDA error {error}"
        text = self._ffi.string(name[0])
        return text.decode() if isinstance(text, bytes) else str(text)
