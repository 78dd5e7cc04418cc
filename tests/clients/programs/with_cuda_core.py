"""cuda.core: NVIDIA's Pythonic CUDA. Memory from the driver's pools, kernels compiled by NVRTC.

They are launched, and captured into graphs that are.
"""

from functools import cached_property
from typing import Any

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

extern "C" __global__ void spin_500us()
{
    unsigned long long start, time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    while (time - start < 500000);
}
"""


class Core:
    out_of_memory = CUDAError

    def __init__(self) -> None:
        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()

    @cached_property
    def module(self) -> Any:
        options = ProgramOptions(arch=f"sm_{self.device.arch}")
        return Program(SOURCE, "c++", options).compile("cubin")

    def total(self) -> int:
        error, _free, total = cuda.cuMemGetInfo()
        assert error == cuda.CUresult.CUDA_SUCCESS
        return int(total)

    def allocate(self, size: int) -> object:
        return self.device.allocate(size, stream=self.stream)

    def round_trip(self, data: bytes) -> bytes:
        size = len(data)
        touch = self.module.get_kernel("touch")
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

    @cached_property
    def half_a_batch(self) -> Any:
        builder = self.device.create_graph_builder().begin_building()
        for _ in range(client.BATCH // 2):
            launch(builder, LaunchConfig(grid=1, block=1), self.module.get_kernel("spin_500us"))
        return builder.end_building().complete()

    def launch(self, count: int) -> None:
        """Half of them one by one, half of them in graphs."""
        spin = self.module.get_kernel("spin_500us")
        for _ in range(count // client.BATCH):
            for _ in range(client.BATCH // 2):
                launch(self.stream, LaunchConfig(grid=1, block=1), spin)
            self.half_a_batch.launch(self.stream)
        self.stream.sync()


if __name__ == "__main__":
    client.main(Core)
