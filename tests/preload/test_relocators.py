"""Tools that put a jump over the start of a function, such as UCX (ucx 6038, 7210).

They move the instructions that were there, and know only those with which compilers start
functions.
"""

import json
import platform
import sys

import pytest

from support.elf import exported
from support.running import run
from support.slices import GIB

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the jumps of x86-64")

#: Moves the first 5 bytes of each function, as UCX does, and calls what was moved.
MOVED = """
import ctypes, json, mmap, struct, sys
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
pages = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
starts = {}
for number, name in enumerate(sys.argv[1:]):
    library = {"cu": cuda, "nv": nvml}.get(name[:2], ctypes.CDLL(None))
    try:
        at = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:  # the driver does not have it
        continue
    starts[name] = ctypes.string_at(at, 5).hex()
    jump_back = b"\\xff\\x25\\0\\0\\0\\0" + struct.pack("<Q", at + 5)
    pages[number * 64 : number * 64 + 19] = ctypes.string_at(at, 5) + jump_back
def moved(name):
    return ctypes.CFUNCTYPE(ctypes.c_int)(base + 64 * sys.argv[1:].index(name))
context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
results = [moved("cuInit")(0)]
results.append(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
results.append(cuda.cuCtxSetCurrent(context))
results.append(moved("cuMemAlloc_v2")(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
results.append(moved("cuMemFree_v2")(pointer))
results.append(moved("cuMemAlloc_v2")(ctypes.byref(pointer), ctypes.c_size_t(2 << 30)))
print(json.dumps([starts, results]))
"""


def test_ucx_could_not_move_the_start_of_our_functions(gpu, artifacts, slice_env):
    names = sorted(exported(artifacts.library))
    done = run([sys.executable, "-c", MOVED, *names], slice_env(gpu, {gpu.uuids()[0]: GIB}))
    assert done.code == 0, done.err
    starts, results = json.loads(done.out)
    assert starts.keys() >= {"cuMemAlloc_v2", "cuLaunchKernel", "nvmlDeviceGetCount_v2", "dlsym"}
    # `mov eax` with a constant: 5 bytes, the same at every address.
    assert {name: start for name, start in starts.items() if not start.startswith("b8")} == {}
    out_of_memory = 2
    assert results == [0, 0, 0, 0, 0, out_of_memory]
