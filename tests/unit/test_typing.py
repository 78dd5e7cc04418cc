"""The types of the API under ``mypy --strict``."""

import subprocess
import sys
from pathlib import Path

from support.artifacts import ROOT
from unit.machine import DEADLINE

CALLER = """
import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing_extensions import assert_type

import hami_py as hami

with hami.slice(gpumem={"0": "4GiB"}, devices=["0"], name="train", keep=True) as s:
    assert_type(s, hami.Slice)
    assert_type(s.name, str | None)
    assert_type(s.run(["true"]), subprocess.CompletedProcess[Any])
    assert_type(s.run(["true"], text=True, check=True), subprocess.CompletedProcess[Any])
    assert_type(s.run(["true"], encoding="utf-8"), subprocess.CompletedProcess[Any])
    assert_type(s.popen([Path("true")], executable="/bin/true"), subprocess.Popen[Any])
    assert_type(s.popen("true", shell=True, text=True), subprocess.Popen[Any])
    assert_type(s.popen(["true"], stdin=subprocess.PIPE), subprocess.Popen[Any])
    assert_type(s.popen(["true"], text=True, env={}), subprocess.Popen[Any])
    assert_type(s.environment(), dict[str, str])
    assert_type(s.usage().cards[0].processes[0].memory_used, int)
    assert_type(s.usage().cards[0].processes[0].engine_time, float)
    assert_type(s.limits().cards[0].memory, int | None)
    assert_type(s.limits().cards[0].mode, hami.Mode)
    s.resize(gpumem="4GiB", gpucores=30, mode="soft", priority="high")
    s.resize(gpucores={"0": 30, "1": "50%"})
    shares: dict[str, int] = {"0": 30}
    s.resize(gpucores=shares)
    assert_type(s.events(timeout=1.0), Iterator[hami.Event])
    for event in s.events():
        assert_type(event.memory_used, int | None)

async def main() -> None:
    async with hami.slice() as s:
        assert_type(s, hami.Slice)
        process = await s.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
        assert_type(process, asyncio.subprocess.Process)
        async for event in s.watch(timeout=1):
            assert_type(event, hami.Event)

assert_type(hami.list_slices()[0].cards[0].memory_used, int)
assert_type(hami.open_slice("train"), hami.Slice)
assert_type(hami.limit_this_process(gpumem="4GiB", gpucores="30%"), hami.Limits)
hami.slice(gpucores=30, mode="hard", priority="low")
assert_type(hami.run(["true"], gpumem="4GiB"), subprocess.CompletedProcess[Any])
assert_type(hami.run(["true"], text=True, cwd="/"), subprocess.CompletedProcess[Any])
"""

MISTAKES = """
import hami_py as hami
hami.slice(gpumem=4.5)
hami.slice("4GiB")
hami.run(["true"], gpumem=4.5)
hami.slice().resize(mode="loud")
hami.Event("exploded")
"""


def mypy(text: str, folder: Path) -> list[str]:
    """The lines that are wrong."""
    (folder / "caller.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, f"--cache-dir={folder / 'cache'}", "--config-file=", "caller.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": "/bin:/usr/bin"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def test_the_api_is_typed(tmp_path: Path) -> None:
    assert mypy(CALLER, tmp_path) == []


def test_type_errors_are_found(tmp_path: Path) -> None:
    found = {int(line.split(":")[1]) for line in mypy(MISTAKES, tmp_path)}
    assert found == {3, 4, 5, 6, 7}
