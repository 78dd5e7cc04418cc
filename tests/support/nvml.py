"""Asking NVML as programs do that use nvidia-ml-py."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from support.running import run

#: Error codes of NVML.
UNKNOWN, NOT_FOUND, NOT_SUPPORTED = 999, 6, 3


def asked(env: Mapping[str, str], question: str) -> Any:
    """The result of nvidia-ml-py; `card` is the first card, an NVML error its number."""
    program = f"""
import json, pynvml
from pynvml import *
nvmlInit()
card = nvmlDeviceGetHandleByIndex(0)
def processes(rows):
    return sorted((row.pid, row.usedGpuMemory) for row in rows)
def pids(rows):
    return sorted(row.pid for row in rows)
try:
    print(json.dumps({question}))
except NVMLError as error:
    print(error.value)
"""
    done = run([sys.executable, "-c", program], env)
    assert done.code == 0, done.err
    return json.loads(done.out)
