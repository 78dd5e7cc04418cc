"""`make demo`: runs real, unmodified CUDA programs under limits and prints two tables.

Each program of the first table has a memory limit of its own; the two of the second table share a
card. They run on the machine's NVIDIA GPU if it has one, else on the stub driver. The stub's ledger
records, outside of the programs, how much memory each of them held and how long it had the card.

On a machine that is busy with something else, programs get the CPU late, and so the card. Then a
share cannot be judged, and that is no failure. A memory limit does not depend on time.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clients.harness import (
    CLIENTS,
    MIB,
    MONITORS,
    TORCH,
    Client,
    hami,
    is_installed,
    limited,
    python,
    python_with,
    report,
)
from clients.side_by_side import Part, compare, holds
from support import artifacts
from support.stub import StubServer

#: The part of its limit, less the driver's memory, that a client must be able to allocate, unless
#: its last step is larger. PyTorch allocates memory from the driver in blocks of 20 MiB.
ENOUGH = 0.99

#: Percent of one card's time for two programs whose kernels spin for half a millisecond each.
SHARES = {CLIENTS[0]: 30, CLIENTS[1]: 70}

#: How often the shares are measured until they hold.
TRIES = 3


def main() -> int:
    """Prints two tables; returns 0 if every limit and share held that could be judged."""
    with contextlib.ExitStack() as stack:
        real = _real_cards()
        server = None if real else stack.enter_context(_stub())
        environment = server.charging_env if server else {}
        table = Table(box=SIMPLE_HEAD)
        table.add_column("program", no_wrap=True)
        for heading in (
            "limit",
            "total memory\nit saw",
            "allocated before\nout-of-memory",
            "driver's\nown",
            "peak by the\nstub's ledger",
        ):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        driver = _driver_memory(real, server)
        clients = [client for client in CLIENTS if is_installed(client)]
        verdicts = [
            _unless_late(
                table,
                client.name,
                partial(_fill, table, client, environment, server, driver=driver),
            )
            for client in clients
        ]
        if real and (interpreter := python_with("torch")):
            torch = _fill(table, TORCH, environment, None, driver=driver, interpreter=interpreter)
            verdicts.append(torch)
        verdicts += [
            _unless_late(table, monitor, partial(_show_limit, table, monitor, environment))
            for monitor in MONITORS
        ]
        card = (
            f"{real[0]['name']}; a real GPU has no ledger"
            if real
            else "stub driver: no NVIDIA GPU here"
        )
        _print(f"hami run --gpumem LIMIT -- PROGRAM   ({card})", table)
        if len(clients) < len(CLIENTS):
            print("numba-cuda is not installed: `make clients` downloads the other programs.\n")
        why = busy()
        parts, is_failure = judged(lambda: compare(SHARES, environment, server), why)
        title = "hami run --gpucores SHARE -- PROGRAM   (both at the same time on one card)"
        _print(title, _shares(parts, why))
        if why and not (parts and holds(parts)):
            print(f"{why}, so the shares cannot be judged. Run `make demo` again when it is idle.")
    return 1 if is_failure or not all(verdicts) else 0


def busy() -> str | None:
    """That this machine has more to do than CPUs to do it; None if not."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"This machine is busy (load {load:.0f} on {cores} cores)" if load > cores else None


def judged(measure: Callable[[], Sequence[Part]], why: str | None) -> tuple[Sequence[Part], bool]:
    """The shares, measured until they hold, and whether it is a failure that they do not.

    Args:
        measure: measures them.
        why: why they may not hold; None = they must.
    """
    parts: Sequence[Part] = ()
    for _ in range(TRIES):
        try:
            parts = measure()
        except TimeoutError:
            if why is None:
                raise
        else:
            if holds(parts):
                return parts, False
    return parts, why is None


def _unless_late(table: Table, name: str, judge: Callable[[], bool]) -> bool:
    """The verdict on a program; on a busy machine there may be none in time."""
    try:
        return judge()
    except subprocess.TimeoutExpired as late:
        if busy() is None:
            raise
        table.add_row(name, *["-"] * 5, f"not judged: no end within {late.timeout:.0f} s")
        return True


def _print(title: str, table: Table) -> None:
    print(title)
    # Fixed sizes: without a terminal rich would use 80 columns.
    Console(width=115, height=50).print(table)


def _shares(parts: Sequence[Part], why: str | None) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("program", no_wrap=True)
    for heading in (
        "share",
        "kernels/s\nalone",
        "kernels/s\nwith both",
        "share of the time\nby the stub's ledger",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for part in parts:
        table.add_row(
            part.client.name,
            f"{part.share} %",
            f"{part.alone:,.0f}",
            f"{part.together:,.0f} ({part.together / part.alone:.0%})",
            "-" if part.engine is None else f"{part.engine:.1f} %",
            "holds" if part.holds else "not judged" if why else "DOES NOT HOLD",
        )
    return table


def _real_cards() -> list[dict[str, Any]]:
    done = subprocess.run(
        hami("devices", "--json"), capture_output=True, text=True, timeout=60, check=False
    )
    return list(json.loads(done.stdout)) if done.returncode == 0 else []


def _driver_memory(real: Sequence[Mapping[str, Any]], server: StubServer | None) -> int:
    """Bytes that a context takes: by the stub's ledger, or what a slice charges for it here."""
    if server is None:
        return int(real[0]["driver_memory"]["context"] or 0)
    program = python(CLIENTS[0].program, "fill", "256")
    report(limited(CLIENTS[0].limit, program), server.charging_env)
    return int(server.ledger()["cards"][0]["context"]["peak"])


@contextlib.contextmanager
def _stub() -> Iterator[StubServer]:
    with (
        tempfile.TemporaryDirectory() as folder,
        StubServer(artifacts.find(), Path(folder) / "stub", "h100") as server,
    ):
        yield server


def _fill(
    table: Table,
    client: Client,
    environment: Mapping[str, str],
    server: StubServer | None,
    *,
    driver: int,
    interpreter: str = sys.executable,
) -> bool:
    if server:
        server.control({"command": "reset-peaks"})
    job = "refill" if client.refills else "fill"
    program = python(client.program, job, "256", interpreter=interpreter)
    seen = report(limited(client.limit, program), environment)
    # Programs and contexts together.
    peak = server.ledger()["cards"][0]["occupied"]["peak"] if server else None
    usable = client.limit - driver
    holds = (
        seen["total"] == client.limit
        and usable - max(usable * (1 - ENOUGH), client.step) <= seen["got"] <= usable
        and client.out_of_memory in seen["error"]
        and seen.get("again", seen["got"]) == seen["got"]
        and (peak is None or seen["got"] + driver <= peak <= client.limit)
    )
    table.add_row(
        client.name,
        _mib(client.limit),
        _mib(seen["total"]),
        _mib(seen["got"]),
        _mib(driver),
        "-" if peak is None else _mib(peak),
        "holds" if holds else f"DOES NOT HOLD: {seen['error']}",
    )
    return holds


def _show_limit(table: Table, monitor: str, environment: Mapping[str, str]) -> bool:
    limit = 2000 * MIB
    seen = report(limited(limit, python("monitor.py", monitor)), environment)
    holds = bool(seen["total"] == limit)
    verdict = "shows the limit" if holds else "DOES NOT SHOW THE LIMIT"
    table.add_row(monitor, _mib(limit), _mib(seen["total"]), "-", "-", "-", verdict)
    return holds


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
