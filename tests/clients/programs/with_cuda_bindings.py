"""cuda-bindings: NVIDIA's own Python binding of the driver API; looks up by cuGetProcAddress_v2."""

from functools import cached_property
from typing import Any

import client
from cuda.bindings import driver as cuda

#: Spins for half a millisecond.
PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry spin_500us()
{
    .reg .u64 %start, %time, %passed;
    .reg .pred %early;
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %time, %globaltimer;
    sub.u64 %passed, %time, %start;
    setp.lt.u64 %early, %passed, 500000;
    @%early bra again;
    ret;
}
"""


class CudaError(Exception):
    """cuda-bindings returns errors; the caller raises them."""


def check(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if error != cuda.CUresult.CUDA_SUCCESS:
        raise CudaError(error.name)
    return values[0] if len(values) == 1 else values


class Bindings:
    out_of_memory = CudaError

    def __init__(self) -> None:
        check(cuda.cuInit(0))
        self.context = check(cuda.cuDevicePrimaryCtxRetain(0))
        check(cuda.cuCtxSetCurrent(self.context))

    def total(self) -> int:
        _free, total = check(cuda.cuMemGetInfo())
        assert total == check(cuda.cuDeviceTotalMem(0))
        return int(total)

    def allocate(self, size: int) -> object:
        return check(cuda.cuMemAlloc(size))

    def round_trip(self, data: bytes) -> bytes:
        pointer = check(cuda.cuMemAlloc(len(data)))
        check(cuda.cuMemcpyHtoD(pointer, data, len(data)))
        back = bytearray(len(data))
        check(cuda.cuMemcpyDtoH(back, pointer, len(data)))
        check(cuda.cuMemFree(pointer))
        return bytes(back)

    @cached_property
    def spin(self) -> Any:
        module = check(cuda.cuModuleLoadData(PTX))
        return check(cuda.cuModuleGetFunction(module, b"spin_500us"))

    def launch(self, count: int) -> None:
        for _ in range(count):
            check(cuda.cuLaunchKernel(self.spin, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
        check(cuda.cuCtxSynchronize())


if __name__ == "__main__":
    client.main(Bindings)
