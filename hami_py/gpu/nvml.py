"""Listing cards through NVML, NVIDIA's management library.

This module creates no CUDA context, so listing a card costs no memory on it.

NVML does not report the memory of a GPU that uses the host's memory (GB10, Jetson). Such a card has
the total that CUDA reports, in a process of its own. How much of it is in use stays unknown.

NVML can hang, for example while a card fails, and Python handles a signal only after a call of it
has returned. So what people wait for runs in a thread (``patiently``).
"""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pynvml  # type: ignore[import-untyped]

from hami_py import config
from hami_py._native import same_card
from hami_py.errors import DriverError, HamiError, NoDevice, NoDriver
from hami_py.gpu.driver_memory import driver_memory
from hami_py.model import Card

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

QUIET_S = 2.0
"""Seconds for which NVML may take without a message."""

_CUDA_DEADLINE_S = 60.0
"""Seconds for CUDA's totals. On a machine with many cards the driver can take tens of them."""

_silent: dict[int | str, str] = {}
"""Why each card is left out, by index or UUID, so that only changes are logged."""


def cards() -> list[Card]:
    """The cards of this machine, in NVML's order; MIG devices instead of a GPU in MIG mode.

    A GPU that does not answer is left out, and logged. It keeps its index.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        NoDevice: there is no card.
        DriverError: no GPU answers.
    """
    found: list[Card] = []
    failed: list[DriverError] = []
    for card in patiently(_listed):
        try:
            total = card.memory_total or cuda_total(card.uuid)
        except DriverError as error:
            _log_change(card.uuid, error.why)
            failed.append(error)
        else:
            _log_change(card.uuid, None)
            found.append(replace(card, memory_total=total))
    if not found:
        raise failed[0]
    return found


def _listed() -> list[Card]:
    """The cards; those whose memory NVML does not report have none."""
    found, _ = read_each(_card)
    if not found:
        raise NoDevice(
            "NVML",
            "the driver shows no card",
            "check `nvidia-smi -L`; a container needs an assigned card (docker run --gpus)",
        )
    return found


def _card(handle: object, index: int) -> Card:
    total = reported_total(handle) or 0
    name = str(pynvml.nvmlDeviceGetName(handle))
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    return Card(index, uuid, name, total, driver_memory(name))


def reported_total(handle: object) -> int | None:
    """The card's memory in bytes; None = NVML does not report it.

    Raises:
        pynvml.NVMLError: the card does not answer.
    """
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return None


def cuda_total(uuid: str) -> int:
    """The card's memory in bytes that CUDA reports to a program.

    Raises:
        DriverError: CUDA does not know the card, or does not answer.
    """
    if uuid not in _cuda_totals:
        _cuda_totals.update(_read_cuda_totals())
    if uuid not in _cuda_totals:
        fix = "check `nvidia-smi` and `hami doctor`; CUDA needs the compute driver capability"
        why = "NVML does not report its memory, and CUDA does not show it"
        raise DriverError(f"card {uuid}", why, fix)
    return _cuda_totals[uuid]


_cuda_totals: dict[str, int] = {}
"""By UUID. A total does not change, and reading it takes the time of a CUDA program's start."""


def _read_cuda_totals() -> dict[str, int]:
    """The totals of all cards by UUID; none if CUDA does not work."""
    environment = config.read().environment
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, "-m", "hami_py.gpu.probe", "totals"],
            env={k: v for k, v in environment.items() if k != config.VISIBLE_DEVICES},
            # `-m` looks there first, not where a user is.
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CUDA_DEADLINE_S,
            check=False,
        )
        totals: dict[str, int] = json.loads(done.stdout)["totals"]
        return totals
    return {}


def memory_free(uuids: list[str]) -> dict[str, int]:
    """Free bytes by UUID; cards that NVML cannot read are left out."""
    free: dict[str, int] = {}

    def read() -> None:
        for handle in handles():
            with suppress(pynvml.NVMLError):
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                for name in uuids:
                    if same_card(name, uuid):
                        free[name] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)

    with suppress(HamiError):
        patiently(read)
    return free


def driver_version() -> str:
    """The driver's own version, e.g. ``580.95.05``.

    Raises:
        NoDriver: there is no driver, or it does not respond.
    """
    return patiently(lambda: str(pynvml.nvmlSystemGetDriverVersion()))


def patiently(read: Callable[[], _T]) -> _T:
    """Call it in a session of NVML, in a thread.

    A message names NVML if it does not answer, and Ctrl-C works meanwhile.

    Raises:
        Exception: from ``read`` and ``session``.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with session():
                results.append(read())
        except BaseException as error:
            errors.append(error)

    # A daemon: the process can exit although NVML hangs.
    thread = threading.Thread(target=run, name="nvml", daemon=True)
    thread.start()
    thread.join(QUIET_S)
    if thread.is_alive():
        _log.warning("waiting for NVML, which has not answered for %.0f s", QUIET_S)
        thread.join()
    if errors:
        raise errors[0]
    return results[0]


def handles() -> list[object]:
    """The handles of the cards that answer; of MIG devices instead of a GPU in MIG mode.

    Raises:
        pynvml.NVMLError: NVML cannot count its GPUs, or none of them answers.
    """
    return read_each(lambda handle, _: handle)[0]


def read_each(read: Callable[[object, int], _T]) -> tuple[list[_T], dict[int, str]]:
    """Read each card by its handle and its index; log the GPUs that begin or cease to answer.

    Returns:
        What was read, and by index the error of each GPU that is left out. It keeps its index.

    Raises:
        pynvml.NVMLError, DriverError: there are GPUs, and none answers.
    """
    found: list[_T] = []
    failed: dict[int, pynvml.NVMLError | DriverError] = {}
    count = pynvml.nvmlDeviceGetCount()
    for gpu in range(count):
        first = len(found) + len(failed)
        try:
            found += [read(each, first + slice_) for slice_, each in enumerate(handles_of(gpu))]
            _log_change(gpu, None)
        except (pynvml.NVMLError, DriverError) as error:
            _log_change(gpu, str(error))
            failed[gpu] = error
    if failed and len(failed) == count:
        raise failed[0]
    return found, {gpu: str(error) for gpu, error in failed.items()}


def _log_change(card: int | str, why: str | None) -> None:
    """Log whether a card answers (``why`` is None), unless it is as it was."""
    if _silent.get(card) == why:
        return
    if why is None:
        _silent.pop(card, None)
        _log.warning("card %s answers again", card)
    else:
        _silent[card] = why
        _log.warning("card %s is left out, because it does not answer: %s", card, why)


def handles_of(index: int) -> Iterator[object]:
    """The handle of a GPU; those of its MIG devices if it is partitioned.

    Raises:
        pynvml.NVMLError: the GPU does not answer.
    """
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    if in_mig_mode(handle):
        yield from mig_devices(handle)
    else:
        yield handle


def in_mig_mode(handle: object) -> bool:
    """Whether a GPU is partitioned into MIG devices."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def gpus_in_mig_mode() -> Iterator[object]:
    """The handles of the GPUs that are partitioned into MIG devices, and answer."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            if in_mig_mode(handle):
                yield handle


def mig_devices(handle: object) -> Iterator[object]:
    """The handles of the MIG devices of a GPU."""
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            # The numbers of slices have gaps.
            continue


@contextmanager
def session() -> Iterator[None]:
    """Initialise NVML, and turn its errors into ours.

    Raises:
        NoDriver: there is no driver, or it does not respond.
        DriverError: a call of NVML failed.
    """
    try:
        pynvml.nvmlInit()
        try:
            yield
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError_LibraryNotFound as error:
        raise NoDriver(
            "NVML",
            "libnvidia-ml.so.1 was not found",
            "install the NVIDIA driver; a container needs the utility driver capability",
        ) from error
    except (pynvml.NVMLError_DriverNotLoaded, pynvml.NVMLError_LibRmVersionMismatch) as error:
        fix = "load the driver (`modprobe nvidia`); after an update restart the machine"
        raise NoDriver("NVML", str(error), fix) from error
    except pynvml.NVMLError as error:
        fix = "check `nvidia-smi` and `dmesg`, then retry"
        raise DriverError("NVML", str(error), fix) from error
