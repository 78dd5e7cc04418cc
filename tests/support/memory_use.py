"""The memory of a slice's processes by our account, and by the driver's independent ledger."""

import time
from pathlib import Path

from support.console import Console
from support.stub import StubServer

#: Seconds until the memory of ended processes must be released; the grace time is only 750 ms.
_DEADLINE = 60.0


def accounted(slice: Path | str, row: int = 0) -> dict[int, int]:
    """The bytes that each process holds of a card by our account, without processes with 0."""
    from hami_py._native import Account

    processes = Account.open(Path(slice) / "account").snapshot().processes
    return {process.pid: process.memory[row] for process in processes if process.memory[row]}


def refusals(slice: Path | str, row: int = 0) -> int:
    """How many requests of the present processes our account has refused."""
    from hami_py._native import Account

    return sum(
        process.refusals[row]
        for process in Account.open(Path(slice) / "account").snapshot().processes
    )


def held(gpu: StubServer, card: int = 0) -> dict[int, int]:
    """The bytes that each process holds of a card by the ledger, unused pool memory included."""
    total: dict[int, int] = {}
    for process in gpu.ledger()["processes"]:
        bytes = process["cards"][card]["held"]["now"]
        if bytes:
            total[process["pid"]] = total.get(process["pid"], 0) + bytes
    return total


def held_peak(gpu: StubServer, card: int = 0) -> int:
    """The most bytes of a card that programs ever held, unused pool memory included."""
    return int(gpu.ledger()["cards"][card]["held"]["peak"])


def see_closed_descriptors(script: Console, card: int = 0) -> None:
    """Make the library look which descriptors are closed. It does at most every 10 ms."""
    time.sleep(0.02)
    script.do(f"device {card}", "info")


def agreed(gpu: StubServer, slice: Path | str, card: int = 0) -> int:
    """The bytes that all processes hold of a card, where account and ledger must agree.

    Only this slice may use the card, row and card must have the same number, and no process may
    allocate or free meanwhile.
    """
    ours, theirs = accounted(slice, card), held(gpu, card)
    assert ours == theirs, f"account {ours}, ledger {theirs}"
    return sum(theirs.values())


def driver_memory(gpu: StubServer, slice: Path | str, *parts: str) -> int:
    """The driver's part of what the only process is charged: these parts of the ledger."""
    from hami_py._native import Account

    (process,) = Account.open(Path(slice) / "account").snapshot().processes
    driver = process.driver_memory[0]
    assert driver == sum(gpu.booked(part) for part in parts)
    assert process.memory[0] - driver == sum(held(gpu).values())
    return driver


def wait_for_use(gpu: StubServer, slice: Path | str, expected: int, card: int = 0) -> None:
    """Wait until all processes together hold this many bytes, by account and by ledger.

    The driver and our account may release the memory of ended processes later. What others have
    imported from a dead process stays charged to it, and the ledger books it to the others.
    """
    from hami_py._native import Account

    until = time.monotonic() + _DEADLINE
    while True:
        ours, theirs = accounted(slice, card), held(gpu, card)
        if sum(ours.values()) == sum(theirs.values()) == expected:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"not {expected} in {_DEADLINE} s: account {ours}, ledger {theirs}")
        Account.open(Path(slice) / "account").reclaim()
        time.sleep(0.01)
