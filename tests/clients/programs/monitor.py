"""Programs that read NVML: bytes in all and in use that each shows for the first card.

python monitor.py nvidia-ml-py | gpustat | nvitop
"""

import json
import sys


def nvidia_ml_py() -> tuple[int, int]:
    """NVIDIA's own Python binding of NVML."""
    import pynvml

    pynvml.nvmlInit()
    memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    return memory.total, memory.used


def gpustat() -> tuple[int, int]:
    """It counts in MiB."""
    import gpustat

    card = gpustat.new_query().gpus[0]
    return card.memory_total << 20, card.memory_used << 20


def nvitop() -> tuple[int, int]:
    from nvitop import Device

    card = Device(0)
    return card.memory_total(), card.memory_used()


total, used = {"nvidia-ml-py": nvidia_ml_py, "gpustat": gpustat, "nvitop": nvitop}[sys.argv[1]]()
print(json.dumps({"total": total, "used": used}))
