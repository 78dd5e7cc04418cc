"""JAX without preallocation: its allocator then takes three quarters of the card at most."""

import jax
import jax.numpy as jnp
import jobs

#: XlaRuntimeError, or its newer name.
RuntimeFailure = getattr(jax.errors, "JaxRuntimeError", RuntimeError)


def total() -> list[int]:
    """The most that the allocator will take."""
    return [jax.devices("gpu")[0].memory_stats()["bytes_limit"]]


def fill() -> dict[str, object]:
    def allocate(size: int) -> object:
        return jax.block_until_ready(jnp.zeros(size, dtype=jnp.uint8))

    return jobs.fill(allocate, RuntimeFailure)


def matmul() -> list[float]:
    """Small whole numbers: exact in every order and precision."""
    left = (jnp.arange(512 * 512).reshape(512, 512) % 5).astype(jnp.float32) - 2
    product = left @ left.T
    return [float(product.sum()), float(jnp.trace(product)), float(jnp.abs(product).max())]


if __name__ == "__main__":
    jobs.main({"total": total, "fill": fill, "matmul": matmul})
