"""Virtual memory management, called through cuda-bindings as PyTorch's expandable segments do it.

One range of addresses, larger than the card, is reserved once. Memory is mapped there granule by
granule, where it is needed, and unmapped where it is not. cuda.core has a class for such memory,
but cuda.core 1.2.2 never releases what a program frees (NVIDIA/cuda-python issue 2344).
"""

import weakref

import client
from cuda.bindings import driver as cuda
from with_cuda_bindings import Bindings, CudaError, check


class Segment:
    """A reserved range of addresses."""

    def __init__(self, size: int) -> None:
        location = cuda.CUmemLocation()
        location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = 0
        self.properties = cuda.CUmemAllocationProp()
        self.properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self.properties.location = location
        self.access = cuda.CUmemAccessDesc()
        self.access.location = location
        self.access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.granule = check(
            cuda.cuMemGetAllocationGranularity(
                self.properties,
                cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            )
        )
        self.base = int(check(cuda.cuMemAddressReserve(self.rounded(size), 0, 0, 0)))

    def rounded(self, size: int) -> int:
        """The bytes of the granules that so many bytes need."""
        return int(-(-size // self.granule) * self.granule)

    def map(self, start: int, size: int) -> None:
        """Map memory behind these addresses; all of it or none."""
        end = start + self.rounded(size)
        for address in range(start, end, self.granule):
            try:
                handle = check(cuda.cuMemCreate(self.granule, self.properties, 0))
            except CudaError:
                self.unmap(start, address - start)
                raise
            check(cuda.cuMemMap(address, self.granule, 0, handle, 0))
            # The mapping keeps the memory.
            check(cuda.cuMemRelease(handle))
        check(cuda.cuMemSetAccess(start, end - start, [self.access], 1))

    def unmap(self, start: int, size: int) -> None:
        """Return this memory to the card, but keep the addresses."""
        for address in range(start, start + self.rounded(size), self.granule):
            check(cuda.cuMemUnmap(address, self.granule))


class Block:
    """Mapped memory, behind all other blocks. It can grow while it is the last one."""

    def __init__(self, segment: Segment, start: int, size: int) -> None:
        self.segment, self.start, self.size = segment, start, 0
        self.grow(size)

    @property
    def end(self) -> int:
        return self.start + self.segment.rounded(self.size)

    def grow(self, size: int) -> None:
        """To so many bytes; the address and the bytes that are there stay."""
        self.segment.map(self.end, size - self.end + self.start)
        self.size = size

    def __del__(self) -> None:
        self.segment.unmap(self.start, self.size)


class VirtualMemory(Bindings):
    def __init__(self) -> None:
        super().__init__()
        self.segment = Segment(self.total() * 9 // 8)
        self.blocks: weakref.WeakSet[Block] = weakref.WeakSet()

    def allocate(self, size: int) -> Block:
        start = max((block.end for block in self.blocks), default=self.segment.base)
        block = Block(self.segment, start, size)
        self.blocks.add(block)
        return block

    def round_trip(self, data: bytes) -> bytes:
        """Half of the bytes move on to a block that grows, and from there to a new one."""
        half = len(data) // 2
        block = self.allocate(half)
        check(cuda.cuMemcpyHtoD(block.start, data, half))
        block.grow(len(data))
        check(cuda.cuMemcpyHtoD(block.start + half, data[half:], len(data) - half))
        other = self.allocate(len(data))
        check(cuda.cuMemcpyDtoD(other.start, block.start, len(data)))
        del block
        # Mapped where the first block was not: behind the other one.
        last = self.allocate(len(data))
        check(cuda.cuMemcpyDtoD(last.start, other.start, len(data)))
        del other
        back = bytearray(len(data))
        check(cuda.cuMemcpyDtoH(back, last.start, len(data)))
        return bytes(back)


if __name__ == "__main__":
    client.main(VirtualMemory)
