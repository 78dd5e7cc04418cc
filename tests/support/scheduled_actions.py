"""Executes the planned actions of a test in a world, at the planned times.

    python scheduled_actions.py FILE    # JSON: a list of {"at": seconds, "do": …}, in order of time

It runs under the world's clock, so nothing else happens during an action. `_ACTIONS` has the
possible actions.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = dict[str, Any]


#: Real seconds in which the stub's server must have noticed a death.
_NOTICE_DEADLINE = 10.0


def _signal(step: Step) -> None:
    """To processes; those that have ended meanwhile do not mind."""
    for pid in step["pids"]:
        # The test waits for its programs meanwhile, so one may go at any moment.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[step["signal"]])
    if step["signal"] == "SIGKILL":
        _await_notice(step["control"], set(step["pids"]))


def _await_notice(control: str, pids: set[int]) -> None:
    """Wait until the driver knows that they have ended.

    The real driver knows at once. The stub's server notices it by their sockets, some real time
    later.
    """
    until = time.time() + _NOTICE_DEADLINE
    while pids & {row["pid"] for row in _ledger(control) if row["state"] == "alive"}:
        if time.time() > until:
            raise TimeoutError(f"the stub's server has not noticed the end of {pids}")
        # In real time, which nothing else here is.
        select.select([], [], [], 0.001)


def _ledger(control: str) -> list[dict[str, Any]]:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_NOTICE_DEADLINE)
        connection.connect(control)
        with connection.makefile("rw") as stream:
            stream.write('{"command": "ledger"}\n')
            stream.flush()
            processes: list[dict[str, Any]] = json.loads(stream.readline())["processes"]
            return processes


def _limits(step: Step) -> None:
    """New shares for a slice's cards: share, mode and priority by UUID."""
    from hami_py._native import LimitsPage

    LimitsPage.open(step["page"]).set_regimes(
        {uuid: tuple(regime) for uuid, regime in step["regimes"].items()}
    )


def _look(step: Step) -> None:
    """Writes down what a slice's account says, one line of JSON."""
    from hami_py._native import Account

    snapshot = Account.open(step["account"]).snapshot()
    said = {
        "at": step["at"],
        "used_ns": list(snapshot.used_ns),
        "throttled_ns": list(snapshot.throttled_ns),
        "processes": [
            {"used_ns": list(one.used_ns), "debt_ns": list(one.debt_ns)}
            for one in snapshot.processes
        ],
    }
    with Path(step["out"]).open("a") as out:
        out.write(json.dumps(said) + "\n")


_ACTIONS: dict[str, Callable[[Step], None]] = {
    "signal": _signal,
    "limits": _limits,
    "look": _look,
}


def main(plan: list[Step]) -> None:
    start = time.monotonic()
    for step in plan:
        time.sleep(max(0.0, start + step["at"] - time.monotonic()))
        _ACTIONS[step["do"]](step)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
