"""tinygrad: a deep learning framework that calls the driver by ctypes and dlsym."""

import ctypes
import os
from functools import cached_property
from typing import Any

os.environ["DEV"] = "CUDA"
os.environ["CUDA"] = "1"

import client
import numpy as np
from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.device import Buffer
from tinygrad.runtime.autogen import cuda


class TinyGrad:
    # With the driver's own words as its cause; older releases raised those themselves.
    out_of_memory = (MemoryError, RuntimeError)

    def __init__(self) -> None:
        self.device = Device["CUDA"]

    def total(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value

    def allocate(self, size: int) -> object:
        return Buffer("CUDA", size, dtypes.uint8).allocate()

    def round_trip(self, data: bytes) -> bytes:
        # A copy, because tinygrad takes the buffer's address through a writable view.
        source = np.frombuffer(data, dtype=np.uint8).copy()
        array = Tensor(source, device="CUDA").contiguous().realize()
        (array + 0).contiguous().realize()
        return array.numpy().tobytes()

    @cached_property
    def twice(self) -> Any:
        """Two additions: compiled, and from the third call on a graph of two kernels."""
        return TinyJit(lambda tensor: ((tensor + 1).contiguous() + 1).realize())

    @cached_property
    def tensor(self) -> Any:
        return Tensor.ones(1024, device="CUDA").contiguous().realize()

    def launch(self, count: int) -> None:
        for _ in range(count // 2):
            self.twice(self.tensor)
        self.device.synchronize()


if __name__ == "__main__":
    client.main(TinyGrad)
