"""Programs on a card of the stub GPU in MIG mode: of nvidia-ml-py, and of CUDA."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from support.running import Started, run

MIB = 1 << 20

NVML = """
import ctypes, json, os, sys
from pynvml import *
nvmlInit()
card = nvmlDeviceGetHandleByIndex(0)
def code(call, *arguments):
    try:
        return 0, call(*arguments)
    except NVMLError as error:
        return error.value, None
def profiles(device=card):
    found = {}
    for index in range(NVML_GPU_INSTANCE_PROFILE_COUNT):
        result, info = code(nvmlDeviceGetGpuInstanceProfileInfo, device, index)
        if result == 0:
            found[info.name.removeprefix("MIG ")] = info
        else:
            assert result == NVML_ERROR_NOT_SUPPORTED, result
    return found
def placements(info):
    rows, count = (c_nvmlGpuInstancePlacement_t * 8)(), ctypes.c_uint()
    nvmlDeviceGetGpuInstancePossiblePlacements(card, info.id, rows, ctypes.byref(count))
    return [(row.start, row.size) for row in rows[: count.value]]
def instances(info):
    rows, count = (c_nvmlGpuInstance_t * 8)(), ctypes.c_uint()
    nvmlDeviceGetGpuInstances(card, info.id, rows, ctypes.byref(count))
    return list(rows[: count.value])
def computes(instance, profile):
    rows, count = (c_nvmlComputeInstance_t * 8)(), ctypes.c_uint()
    nvmlGpuInstanceGetComputeInstances(instance, profile, rows, ctypes.byref(count))
    return list(rows[: count.value])
def devices(device=card):
    found = (code(nvmlDeviceGetMigDeviceHandleByIndex, device, index) for index in range(7))
    return [handle for result, handle in found if result == 0]
def make(info, profile):
    instance = nvmlDeviceCreateGpuInstance(card, info.id)
    return instance, nvmlGpuInstanceCreateComputeInstance(instance, profile)
def processes(device):
    rows = nvmlDeviceGetComputeRunningProcesses(device)
    return [(row.pid, row.gpuInstanceId, row.computeInstanceId) for row in rows]
answer = None
"""

CUDA = """
import ctypes, json, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
def value(kind, call, *more):
    place = kind()
    result = call(ctypes.byref(place), *more)
    assert result == 0, (call.__name__, result)
    return place.value
result = cuda.cuInit(0)
if result:
    sys.exit(result)
count = value(ctypes.c_int, cuda.cuDeviceGetCount)
name = ctypes.create_string_buffer(96)
assert cuda.cuDeviceGetName(name, 96, 0) == 0
total = value(ctypes.c_size_t, cuda.cuDeviceTotalMem_v2, 0)
sms = value(ctypes.c_int, cuda.cuDeviceGetAttribute, 16, 0)
context = value(ctypes.c_void_p, cuda.cuCtxCreate_v2, 0, 0)
def allocate(size):
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))
print(json.dumps([count, name.value.decode(), total, sms]), flush=True)
"""


def nvml(env: Mapping[str, str], program: str, code: int = 0) -> Any:
    """Run a program of nvidia-ml-py; the value of its `answer`."""
    done = run([sys.executable, "-c", NVML + program + "\nprint(json.dumps(answer))"], env)
    assert done.code == code, done.err
    return json.loads(done.out) if code == 0 else None


def cuda(
    env: Mapping[str, str],
    device: str | None = None,
    program: str = "sys.stdin.read()",
    **variables: str,
) -> Started:
    """A CUDA program that says what it sees, and then does this."""
    chosen = {"CUDA_VISIBLE_DEVICES": device} if device else {}
    return Started([sys.executable, "-c", CUDA + program], {**env, **chosen, **variables})
