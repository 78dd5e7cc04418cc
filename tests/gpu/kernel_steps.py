"""Loads kernels and launches them, one driver call at a time, for `measures/local_memory.py`.

    python -m gpu.kernel_steps module|library KERNEL...

KERNEL is the number of bytes of local memory that each thread has, or `recursion`. Before each
step the program waits for a line of standard input. After it, it writes one JSON object: the step's
name and the values that the driver has returned.
"""

import ctypes
import json
import sys
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

_PROGRAMS = Path(__file__).parent / "programs"

_LOCAL_SIZE_BYTES = 3
_STACK_SIZE = 0
_MULTIPROCESSORS, _THREADS_OF_EACH = 16, 39

Step = tuple[str, dict[str, int]]


class _Driver:
    """`driver("cuInit", 0)` must succeed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise OSError(f"{name}: CUresult {result}")

    def number(self, name: str, *arguments: object) -> int:
        """The number that the call puts into its first argument."""
        value = c_int()
        self(name, byref(value), *arguments)
        return value.value

    def stack_size(self) -> int:
        """The current context's limit."""
        value = c_size_t()
        self("cuCtxGetLimit", byref(value), _STACK_SIZE)
        return value.value

    def is_loaded(self, function: c_void_p) -> dict[str, int]:
        """Not answered by drivers before CUDA 12.4."""
        try:
            return {"loaded": self.number("cuFuncIsLoaded", function)}
        except (AttributeError, OSError):
            return {}


def main() -> None:
    """Takes the steps of each kernel, in one context."""
    how, kernels = sys.argv[1], sys.argv[2:]
    for name, values in _steps(_Driver(), how, kernels):
        print(json.dumps({"step": name, **values}), flush=True)
        if not sys.stdin.readline():
            return


def _steps(driver: _Driver, how: str, kernels: list[str]) -> Iterator[Step]:
    context = c_void_p()
    driver("cuInit", 0)
    driver("cuDevicePrimaryCtxRetain", byref(context), 0)
    driver("cuCtxSetCurrent", context)
    yield (
        "begin",
        {
            "multiprocessors": driver.number("cuDeviceGetAttribute", _MULTIPROCESSORS, 0),
            "threads": driver.number("cuDeviceGetAttribute", _THREADS_OF_EACH, 0),
            "stack": driver.stack_size(),
        },
    )
    for kernel in kernels:
        yield from (_module if how == "module" else _library)(driver, kernel)


def _source(kernel: str) -> tuple[bytes, c_char_p, tuple[int, int]]:
    """PTX, the kernel's name and its parameters."""
    if kernel == "recursion":
        return (_PROGRAMS / "deep.ptx").read_bytes(), c_char_p(b"deep"), (8, 1)
    if kernel == "0":
        return (_PROGRAMS / "plain.ptx").read_bytes(), c_char_p(b"empty"), (0, 0)
    text = (_PROGRAMS / "scratch.ptx").read_bytes()
    return text.replace(b"65536", kernel.encode()), c_char_p(b"scratch"), (8, int(kernel) // 2)


def _module(driver: _Driver, kernel: str) -> Iterator[Step]:
    image, name, parameters = _source(kernel)
    module, function, owner = c_void_p(), c_void_p(), c_void_p()
    driver("cuModuleLoadData", byref(module), image)
    yield "cuModuleLoadData", {}
    driver("cuModuleGetFunction", byref(function), module, name)
    yield "cuModuleGetFunction", driver.is_loaded(function)
    local = driver.number("cuFuncGetAttribute", _LOCAL_SIZE_BYTES, function)
    yield "cuFuncGetAttribute", {"local": local, **driver.is_loaded(function)}
    driver("cuFuncGetModule", byref(owner), function)
    yield "cuFuncGetModule", driver.is_loaded(function)
    yield from _launches(driver, function, function, parameters)
    driver("cuModuleUnload", module)
    yield "cuModuleUnload", {}
    yield from _set_back(driver)


def _library(driver: _Driver, kernel: str) -> Iterator[Step]:
    image, name, parameters = _source(kernel)
    library, launched, function = c_void_p(), c_void_p(), c_void_p()
    driver("cuLibraryLoadData", byref(library), image, None, None, 0, None, None, 0)
    yield "cuLibraryLoadData", {}
    driver("cuLibraryGetKernel", byref(launched), library, name)
    yield "cuLibraryGetKernel", {}
    local = driver.number("cuKernelGetAttribute", _LOCAL_SIZE_BYTES, launched, 0)
    yield "cuKernelGetAttribute", {"local": local}
    yield from _launches(driver, launched, None, parameters)
    driver("cuKernelGetFunction", byref(function), launched)
    yield "cuKernelGetFunction", driver.is_loaded(function)
    driver("cuLibraryUnload", library)
    yield "cuLibraryUnload", {}
    yield from _set_back(driver)


def _launches(
    driver: _Driver, launched: c_void_p, function: c_void_p | None, parameters: tuple[int, int]
) -> Iterator[Step]:
    """`launched` is the function, or the kernel of a library, which has no function yet."""
    values = [c_uint64(value) for value in parameters]
    pointers = (c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    shape = 1, 1, 1, 1, 1, 1, 0
    driver("cuLaunchKernel", launched, *shape, None, pointers, None)
    yield "first launch", driver.is_loaded(function) if function else {}
    driver("cuCtxSynchronize")
    yield "first launch, synchronised", {"stack": driver.stack_size()}
    driver("cuLaunchKernel", launched, *shape, None, pointers, None)
    driver("cuCtxSynchronize")
    yield "second launch, synchronised", {}


def _set_back(driver: _Driver) -> Iterator[Step]:
    driver("cuCtxSetLimit", _STACK_SIZE, c_size_t(driver.stack_size()))
    yield "cuCtxSetLimit(stack) to what it is", {"stack": driver.stack_size()}


if __name__ == "__main__":
    main()
