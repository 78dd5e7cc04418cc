"""The common part of every client program, so that each file contains only the use of its library.

A client is run as ``python NAME.py JOB AMOUNT`` and prints one JSON object. *fill* allocates chunks
of so many MiB until its library reports that memory is out. *refill* then drops all chunks, and
fills memory again. *hold* fills it, prints "holding" and waits for the end of its input. *work*
copies a pattern of so many MiB to the card and back and launches a kernel, and with ``--launches``
so many more. *compute* prints "ready", waits for a line, and launches kernels for so many seconds.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

MIB = 1 << 20

#: The argument of `launch` is a multiple of this.
BATCH = 10

#: Launches of *compute* between two waits.
ROUND = 40


class Client(Protocol):
    """How one library does it."""

    out_of_memory: type[Exception] | tuple[type[Exception], ...]

    def total(self) -> int:
        """The card's memory in bytes, as the library tells it."""

    def allocate(self, size: int) -> object:
        """A block of device memory; it lives as long as the object."""

    def round_trip(self, data: bytes) -> bytes:
        """The same bytes, by way of the card and a kernel that leaves them alone."""

    def launch(self, count: int) -> None:
        """So many kernels, in the ways that the library has; back when all are done."""


def main(make: Callable[[], Client]) -> None:
    """Runs the client as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["fill", "refill", "hold", "work", "compute"])
    parser.add_argument("amount", type=int, help="MiB, of compute seconds")
    parser.add_argument("--launches", type=int, default=0)
    options = parser.parse_args()
    size = options.amount * MIB
    client = make()
    report: dict[str, object] = {"total": client.total()}
    if options.job == "work":
        data = hashlib.sha256(b"seed").digest() * (size // 32)
        report["digest"] = hashlib.sha256(client.round_trip(data)).hexdigest()
        if options.launches:
            client.launch(options.launches)
    elif options.job == "compute":
        report |= _compute(client, options.amount)
    else:
        blocks: list[object] = []
        report |= _fill(client, size, blocks)
        if options.job == "refill":
            blocks.clear()
            report["again"] = _fill(client, size, blocks)["got"]
        if options.job == "hold":
            print("holding", flush=True)
            sys.stdin.read()
    print(json.dumps(report))


def _fill(client: Client, size: int, blocks: list[object]) -> dict[str, object]:
    got = 0
    # Big steps first, then smaller ones into what is left: few calls, little left over.
    while size >= MIB:
        try:
            blocks.append(client.allocate(size))
        except client.out_of_memory as error:
            said = f"{type(error).__name__}: {error.__cause__ or error}".splitlines()[0]
            size //= 2
        else:
            got += size
    return {"got": got, "error": said}


def _compute(client: Client, seconds: int) -> dict[str, object]:
    # Compile and load before the clock runs.
    client.launch(ROUND)
    print("ready", flush=True)
    sys.stdin.readline()
    launches, began = 0, time.monotonic_ns()
    while (now := time.monotonic_ns()) < began + seconds * 10**9:
        client.launch(ROUND)
        launches += ROUND
    return {
        "pid": os.getpid(),
        "launches": launches,
        "began_ns": began,
        "ended_ns": now,
        "seconds": (now - began) / 1e9,
    }
