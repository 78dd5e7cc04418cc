"""numba-cuda: kernels written in Python, compiled with NVVM; looks up through cuda-bindings."""

import client
import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError


@cuda.jit
def touch(array):  # type: ignore[no-untyped-def]
    """Writes back what is there: real work that changes nothing."""
    index = cuda.grid(1)
    if index < array.size:
        array[index] = array[index] + 0


class Numba:
    out_of_memory = CudaAPIError

    def __init__(self) -> None:
        cuda.current_context().deallocations.clear()

    def total(self) -> int:
        return int(cuda.current_context().get_memory_info().total)

    def allocate(self, size: int) -> object:
        return cuda.device_array(size, dtype=np.uint8)

    def round_trip(self, data: bytes) -> bytes:
        array = cuda.to_device(np.frombuffer(data, dtype=np.uint8))
        touch[(array.size + 255) // 256, 256](array)
        cuda.synchronize()
        return array.copy_to_host().tobytes()

    def launch(self, count: int) -> None:
        array = cuda.to_device(np.zeros(1 << 16, dtype=np.uint8))
        for _ in range(count):
            touch[array.size // 256, 256](array)
        cuda.synchronize()


if __name__ == "__main__":
    client.main(Numba)
