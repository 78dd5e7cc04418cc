"""CuPy, with its own memory pool and with the driver's."""

import cupy
import jobs


def total() -> list[int]:
    return [cupy.cuda.runtime.memGetInfo()[1]]


def fill() -> dict[str, object]:
    def allocate(size: int) -> object:
        return cupy.empty(size, dtype=cupy.uint8)

    return jobs.fill(allocate, cupy.cuda.memory.OutOfMemoryError)


def fill_async() -> dict[str, object]:
    """Through cudaMallocAsync."""
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    return fill()


def matmul() -> list[float]:
    """Small whole numbers: exact in every order and precision."""
    left = (cupy.arange(512 * 512).reshape(512, 512) % 5).astype(cupy.float32) - 2
    product = left @ left.T
    return [float(product.sum()), float(product.trace()), float(abs(product).max())]


if __name__ == "__main__":
    jobs.main({"total": total, "fill": fill, "fill_async": fill_async, "matmul": matmul})
