"""What NVML says of a card, asked by a process that no limit holds for.

    python -m gpu.observer UUID

Answers every line of its standard input with one JSON object: the card's memory, and the processes
that hold some of it. It is the oracle of tests and measures: on a real card it is the only one.
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
            "processes": {
                process.pid: process.usedGpuMemory
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(card)
            },
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
