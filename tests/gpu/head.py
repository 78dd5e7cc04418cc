"""Prints the origin of results (machine, card, driver, commit) as one JSON object.

python -m gpu.head COMMIT COMMAND
"""

import json
import sys
from datetime import date

import pynvml

from bench.results import machine


def main() -> None:
    """Reads the first card from NVML, the stub's or the machine's."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    head = {
        "machine": machine(),
        "card": f"{pynvml.nvmlDeviceGetName(card)}, "
        f"{pynvml.nvmlDeviceGetMemoryInfo(card).total >> 20} MiB",
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "date": date.today().isoformat(),
        "commit": sys.argv[1],
        "command": sys.argv[2],
    }
    print(json.dumps(head))


if __name__ == "__main__":
    main()
