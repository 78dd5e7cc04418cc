"""What this process takes of a card if it only creates a context.

    python -m hami_py.gpu.context_sample UUID       # one sample, as a JSON object
    python -m hami_py.gpu.context_sample            # measure each card of this machine

``context_memory`` starts it, and has what the sample means.
"""

import json
import os
import sys
import time
from typing import Any

import pynvml  # type: ignore[import-untyped]

from hami_py import config
from hami_py._native import same_card
from hami_py.errors import DriverError
from hami_py.gpu.context_memory import measure
from hami_py.gpu.driver import Driver
from hami_py.gpu.nvml import cards, handles, session
from hami_py.gpu.processes import process_memory

_MIB = 1 << 20
_SETTLED_S, _SETTLING_S = 0.1, 2.0


def _take(uuid: str) -> dict[str, Any]:
    """One sample, in this process."""
    with session():
        named = ((str(pynvml.nvmlDeviceGetUUID(each)), each) for each in handles())
        handle = next((each for name, each in named if same_card(uuid, name)), None)
        if handle is None:
            raise DriverError("NVML", f"there is no card {uuid}", "choose one of `nvidia-smi -L`")
        before, others = _settled(handle), process_memory(handle)
        Driver().use(0)
        growth = _used(handle) - before
        new = {pid: used for pid, used in process_memory(handle).items() if pid not in others}
        # In a namespace of its own, this process has another PID than NVML's.
        alone = next(iter(new.values())) if len(new) == 1 else None
        return {"growth": growth, "of_process": new.get(os.getpid(), alone)}


def _settled(handle: object) -> int:
    """The bytes in use, once the memory of the process before has been freed."""
    until = time.monotonic() + _SETTLING_S
    used = _used(handle)
    while True:
        time.sleep(_SETTLED_S)
        before, used = used, _used(handle)
        if used == before or time.monotonic() > until:
            return used


def _used(handle: object) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def _measure_all() -> None:
    """Write what a context takes of each card, and how long that took."""
    environment = config.read().environment
    for card in cards():
        start = time.monotonic()
        try:
            found = f"{measure(card.uuid, environment) // _MIB} MiB"
        except DriverError as error:
            found = str(error)
        print(f"{card.uuid}  {card.name}  {found}  ({time.monotonic() - start:.2f} s)")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(_take(sys.argv[1])))
    else:
        _measure_all()
