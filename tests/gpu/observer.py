"""Reads a card from NVML, in a process without a limit.

    python -m gpu.observer UUID

Answers every line of its standard input with one JSON object: the card's memory and clock, and the
processes that hold some of it. On a real card it is the only oracle of tests and measures.
"""

import json
import sys

import pynvml


def main() -> None:
    """Answers until standard input ends."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
    for _line in sys.stdin:
        memory = pynvml.nvmlDeviceGetMemoryInfo(card)
        answer = {
            "total": memory.total,
            "used": memory.used,
            "free": memory.free,
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
            "processes": {
                process.pid: process.usedGpuMemory
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card)
            },
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
