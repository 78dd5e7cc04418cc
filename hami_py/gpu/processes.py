"""The processes on the cards, with the memory that the driver holds for each."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]

from hami_py.gpu.nvml import gpus_in_mig_mode, handles


@dataclass(frozen=True)
class CardProcess:
    """A process on a card.

    Attributes:
        pid: its PID on the host.
        memory: bytes; None = the driver does not say.
    """

    card: str
    pid: int
    memory: int | None


_not_listed: set[int] = set()


@contextmanager
def not_listed(pid: int) -> Iterator[None]:
    """Leave a process of our own out of ``card_processes``: it belongs to no allocation."""
    _not_listed.add(pid)
    try:
        yield
    finally:
        _not_listed.discard(pid)


def card_processes() -> list[CardProcess]:
    """The processes on all cards, in a ``session`` of NVML, without those of ``not_listed``.

    A card that does not answer is left out.

    Raises:
        pynvml.NVMLError: no card answers.
    """
    left_out, found = set(_not_listed), dict[tuple[str, int], CardProcess]()
    for handle in handles():
        with suppress(pynvml.NVMLError):
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            for pid, memory in process_memory(handle).items():
                found[(uuid, pid)] = CardProcess(uuid, pid, memory)
    # Also one that began or ended meanwhile.
    left_out |= _not_listed
    return [each for each in found.values() if each.pid not in left_out]


def process_memory(handle: object) -> dict[int, int | None]:
    """The bytes of each process on a card, by PID; None = the driver does not say.

    Raises:
        pynvml.NVMLError: the card does not answer.
    """
    # One that computes and draws is in both lists, with the same memory.
    rows = (*pynvml.nvmlDeviceGetComputeRunningProcesses(handle), *other_processes(handle))
    return {row.pid: row.usedGpuMemory for row in rows}


def memory_used() -> dict[str, int]:
    """The bytes in use by UUID, in a ``session`` of NVML; a card that does not answer is left out.

    Of a GPU that is partitioned, those of all its MIG devices are there, too.

    Raises:
        pynvml.NVMLError: no card answers.
    """
    found = {}
    for handle in (*handles(), *gpus_in_mig_mode()):
        with suppress(pynvml.NVMLError):
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            found[uuid] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    return found


def other_processes(handle: object) -> Iterator[pynvml.c_nvmlProcessInfo_t]:
    """The processes on a card for graphics, or through MPS.

    Raises:
        pynvml.NVMLError: the card does not answer.
    """
    for others in (
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        # A card or driver without graphics or MPS has no such processes.
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            yield from others(handle)
