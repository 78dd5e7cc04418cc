"""The part of CuPy that the kit's script calls, with only the driver behind it.

It shows that the kit finds the packages of a machine, runs them in slices and judges their results.
It cannot compute, so one of its tests has to fail. With ``PRETENDED_CUPY=hangs`` its import never
returns.
"""

import ctypes
import os
import time
from types import SimpleNamespace

if os.environ.get("PRETENDED_CUPY") == "hangs":
    time.sleep(3600)

uint8 = "uint8"

_driver = ctypes.CDLL("libcuda.so.1")


class OutOfMemoryError(MemoryError):
    """As CuPy's own."""


def _use_first_device() -> None:
    context = ctypes.c_void_p()
    for result in (
        _driver.cuInit(0),
        _driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        _driver.cuCtxSetCurrent(context),
    ):
        if result != 0:
            raise RuntimeError(f"CUresult {result}")


def empty(size: int, dtype: str) -> object:
    pointer = ctypes.c_uint64()
    if _driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) != 0:
        raise OutOfMemoryError(f"{size} bytes of {dtype}")
    return pointer


def _memory() -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


_use_first_device()
cuda = SimpleNamespace(
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(memGetInfo=_memory),
    set_allocator=lambda allocator: None,
    MemoryAsyncPool=lambda: SimpleNamespace(malloc=None),
)
