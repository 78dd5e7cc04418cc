"""``hami`` on a machine with two made-up cards: NVML is replaced, everything else is real.

Run as a program it is the command line; imported, it gives the cards.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import hami_py
from hami_py import gpu
from hami_py.model import Card

Hami = Callable[..., "subprocess.CompletedProcess[str]"]

#: Seconds for a program that ends by itself at once; far more than it needs.
DEADLINE = 60

#: Where slices live where HAMI_RUNTIME_DIR does not say.
FALLBACK = Path(f"/tmp/hami-{os.geteuid()}")  # noqa: S108

GIB = 1 << 30
CARDS = [
    Card(0, "GPU-11111111-0000-0000-0000-000000000000", "NVIDIA A100-SXM4-40GB", 40 * GIB),
    Card(1, "GPU-22222222-0000-0000-0000-000000000000", "NVIDIA A100-SXM4-40GB", 40 * GIB),
]
FREE = {card.uuid: 39 * GIB for card in CARDS}


def harmless_library() -> Path:
    """A library that can be preloaded into any program and does nothing there: libc itself."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libc.so" in line or "/libc-" in line:
            return Path(line[line.index("/") :])
    raise LookupError("no libc in /proc/self/maps")


def command(*arguments: str) -> list[str]:
    """The command line that runs ``hami`` on this machine."""
    return [sys.executable, str(Path(__file__)), *arguments]


def environment(runtime: Path, **more: str) -> dict[str, str]:
    """The environment for ``hami``, without the tester's own settings."""
    return {
        "PATH": os.environ["PATH"],
        # The package that is tested here, also where it is not installed.
        "PYTHONPATH": str(Path(hami_py.__file__).parents[1]),
        "HAMI_RUNTIME_DIR": str(runtime),
        "XDG_DATA_HOME": str(runtime / "data"),
        "HAMI_LIBRARY": str(harmless_library()),
        **more,
    }


def run(
    runtime: Path, *arguments: str, around: Sequence[str] = (), **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run ``hami`` to its end; ``around`` is a program that starts the rest of its arguments."""
    return subprocess.run(
        [*around, *command(*arguments)],
        env=environment(runtime, **variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def forget_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tester's own settings do not count in this process."""
    for name in ("HAMI_SLICE", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def end(process: "subprocess.Popen[str]") -> None:
    """The end of input ends every program of these tests."""
    if process.returncode is None:
        process.communicate(timeout=DEADLINE)


#: A program that says when it is there, and ends with its input.
HOLD = ["sh", "-c", "echo up; read _"]


def listed(hami: Hami) -> list[dict[str, Any]]:
    done = hami("ps", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def refused(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """One line that has all of this."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith("hami: ")
    for word in words:
        assert word in done.stderr


if __name__ == "__main__":
    gpu.cards = lambda: CARDS  # type: ignore[assignment]
    gpu.memory_free = lambda uuids: FREE  # type: ignore[assignment]
    from hami_py.cli import main

    main()
