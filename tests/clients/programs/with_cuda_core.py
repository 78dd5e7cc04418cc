"""cuda.core: NVIDIA's Pythonic CUDA. Memory from the driver's pools, kernels compiled by NVRTC.

One is launched, and captured into a graph that is.
"""

import client
import numpy as np
from cuda.bindings import driver as cuda
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core._utils.cuda_utils import CUDAError

SOURCE = """
extern "C" __global__ void touch(unsigned char *bytes, size_t size)
{
    size_t index = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (index < size)
        bytes[index] += 0;
}
"""


class Core:
    out_of_memory = CUDAError

    def __init__(self) -> None:
        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()

    def total(self) -> int:
        error, _free, total = cuda.cuMemGetInfo()
        assert error == cuda.CUresult.CUDA_SUCCESS
        return int(total)

    def allocate(self, size: int) -> object:
        return self.device.allocate(size, stream=self.stream)

    def round_trip(self, data: bytes) -> bytes:
        size = len(data)
        options = ProgramOptions(arch=f"sm_{self.device.arch}")
        touch = Program(SOURCE, "c++", options).compile("cubin").get_kernel("touch")
        block = self.device.allocate(size, stream=self.stream)
        host = LegacyPinnedMemoryResource().allocate(size, stream=self.stream)
        seen = np.from_dlpack(host).view(np.uint8)
        seen[:] = np.frombuffer(data, dtype=np.uint8)
        host.copy_to(block, stream=self.stream)
        config = LaunchConfig(grid=(size + 255) // 256, block=256)
        launch(self.stream, config, touch, block, np.uint64(size))
        builder = self.device.create_graph_builder().begin_building()
        launch(builder, config, touch, block, np.uint64(size))
        graph = builder.end_building().complete()
        for _ in range(2):
            graph.launch(self.stream)
        self.stream.sync()
        seen[:] = 0
        block.copy_to(host, stream=self.stream)
        self.stream.sync()
        return seen.tobytes()


if __name__ == "__main__":
    client.main(Core)
