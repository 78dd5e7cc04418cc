"""`make demo`: real CUDA programs, unmodified, each under a limit of its own.

On a machine with an NVIDIA GPU they run on it; elsewhere on the stub driver, whose ledger says from
outside what each of them held at most.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

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
    limited,
    python,
    python_with,
    report,
)
from support import artifacts
from support.stub import StubServer

#: Of the limit, what a client must get. The last step of every client is 1 MiB, but PyTorch takes
#: memory from the driver in blocks of 20 MiB.
ENOUGH = 0.99


def main() -> int:
    """Shows the table; 0 if every limit held."""
    with contextlib.ExitStack() as stack:
        real = _real_cards()
        server = None if real else stack.enter_context(_stub())
        environment = server.env if server else {}
        table = Table(box=SIMPLE_HEAD)
        table.add_column("program", no_wrap=True)
        for heading in ("limit", "total it saw", "got before OOM", "ledger's peak"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        verdicts = [_fill(table, client, environment, server) for client in CLIENTS]
        if real and (interpreter := python_with("torch")):
            verdicts.append(_fill(table, TORCH, environment, None, interpreter))
        verdicts += [_look(table, monitor, environment) for monitor in MONITORS]
    card = f"{real[0]}; a real GPU has no ledger" if real else "stub driver: no NVIDIA GPU here"
    print(f"hami run --gpumem LIMIT -- PROGRAM   ({card})")
    # Both are given: without a terminal rich would take 80 columns.
    Console(width=100, height=50).print(table)
    return 0 if all(verdicts) else 1


def _real_cards() -> list[str]:
    done = subprocess.run(
        hami("devices", "--json"), capture_output=True, text=True, timeout=60, check=False
    )
    return [card["name"] for card in json.loads(done.stdout)] if done.returncode == 0 else []


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
    interpreter: str = sys.executable,
) -> bool:
    if server:
        server.control({"command": "reset-peaks"})
    program = python(client.program, "fill", "256", interpreter=interpreter)
    seen = report(limited(client.limit, program), environment)
    peak = server.peak() if server else None
    holds = (
        seen["total"] == client.limit
        and client.limit * ENOUGH <= seen["got"] <= client.limit
        and client.out_of_memory in seen["error"]
        and (peak is None or seen["got"] <= peak <= client.limit)
    )
    table.add_row(
        client.name,
        _mib(client.limit),
        _mib(seen["total"]),
        _mib(seen["got"]),
        "-" if peak is None else _mib(peak),
        "holds" if holds else f"DOES NOT HOLD: {seen['error']}",
    )
    return holds


def _look(table: Table, monitor: str, environment: Mapping[str, str]) -> bool:
    limit = 2000 * MIB
    seen = report(limited(limit, python("monitor.py", monitor)), environment)
    holds = bool(seen["total"] == limit)
    verdict = "shows it" if holds else "DOES NOT SHOW IT"
    table.add_row(monitor, _mib(limit), _mib(seen["total"]), "-", "-", verdict)
    return holds


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


if __name__ == "__main__":
    sys.exit(main())
