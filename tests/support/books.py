"""The two books of a slice: our account, and the driver's ledger, which knows nothing of ours."""

import time
from pathlib import Path

from support.stub import StubServer

#: Seconds in which what has ended must have been given back; far more than the grace of 750 ms.
_DEADLINE = 20.0


def accounted(slice: Path | str, row: int = 0) -> dict[int, int]:
    """What each process holds of a card by our account, as far as it holds anything."""
    from hami_py._native import Account

    processes = Account.open(Path(slice) / "account").snapshot().processes
    return {process.pid: process.memory[row] for process in processes if process.memory[row]}


def refusals(slice: Path | str, row: int = 0) -> int:
    """How many requests were refused by our account to those that still hold a place in it."""
    from hami_py._native import Account

    return sum(
        process.refusals[row]
        for process in Account.open(Path(slice) / "account").snapshot().processes
    )


def held(gpu: StubServer, card: int = 0) -> dict[int, int]:
    """What each process holds of a card by the ledger, with what its pools keep unused."""
    total: dict[int, int] = {}
    for process in gpu.ledger()["processes"]:
        bytes = process["cards"][card]["held"]["now"]
        if bytes:
            total[process["pid"]] = total.get(process["pid"], 0) + bytes
    return total


def agreed(gpu: StubServer, slice: Path | str, card: int = 0) -> int:
    """The bytes that both books say are held of a card, all processes together.

    The slice must be the card's only user, row and card the same, and all must be at rest.
    """
    ours, theirs = accounted(slice, card), held(gpu, card)
    assert ours == theirs, f"account {ours}, ledger {theirs}"
    return sum(theirs.values())


def settle(gpu: StubServer, slice: Path | str, expected: int, card: int = 0) -> None:
    """Wait until both books say the same, and together so many bytes.

    The driver and our account may take their time for what ended processes held.
    """
    from hami_py._native import Account

    until = time.monotonic() + _DEADLINE
    while True:
        ours, theirs = accounted(slice, card), held(gpu, card)
        if ours == theirs and sum(theirs.values()) == expected:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"not {expected} in {_DEADLINE} s: account {ours}, ledger {theirs}")
        Account.open(Path(slice) / "account").reclaim()
        time.sleep(0.01)
