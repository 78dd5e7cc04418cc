"""cuda-bindings: NVIDIA's own Python binding of the driver API; looks up by cuGetProcAddress_v2."""

from typing import Any

import client
from cuda.bindings import driver as cuda


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


if __name__ == "__main__":
    client.main(Bindings)
