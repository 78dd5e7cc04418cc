"""``hami.slice`` in a coroutine: nothing holds the loop up."""

import asyncio
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import hami_py as hami
from hami_py.slices.runtime import locked, runtime_directory
from support.programs import Programs
from support.stub import StubServer

Start = Callable[..., "subprocess.Popen[str]"]
Slices = Callable[[], list[Path]]


def test_a_coroutine_creates_it_and_starts_programs_in_it(
    stub: StubServer, program: Programs, slices_of: Slices
) -> None:
    async def use() -> list[bytes]:
        async with hami.slice(gpumem="100MiB") as s:
            processes = [
                await s.create_subprocess_exec(
                    str(program("allocate")), size, stdout=asyncio.subprocess.PIPE
                )
                for size in ("100", "101")
            ]
            return [(await process.communicate())[0] for process in processes]

    granted, refused = asyncio.run(use())
    assert b"-> 0" in granted
    assert b"-> 2" in refused
    assert slices_of() == []


def test_a_coroutine_watches(stub: StubServer, program: Programs) -> None:
    async def use() -> list[str]:
        seen = []
        async with hami.slice(gpumem="100MiB") as s:
            process = await s.create_subprocess_exec(
                str(program("allocate")), "101", stdout=asyncio.subprocess.DEVNULL
            )
            async for event in s.watch():
                assert event.pid in {process.pid, None}
                seen.append(event.kind)
                if event.kind == "left":
                    break
            await process.wait()
        return seen

    assert asyncio.run(use()) == ["joined", "refused", "left"]


def test_a_coroutine_that_waits_for_a_lock_does_not_block_others(
    stub: StubServer, runtime: Path
) -> None:
    """In the loop itself it would wait for what only the loop can do, and fail."""

    async def use() -> None:
        s = hami.slice()
        for step in (s.__aenter__, lambda: s.__aexit__(None, None, None)):
            with ExitStack() as another:
                another.enter_context(locked(slices))
                waiting = asyncio.ensure_future(step())
                await asyncio.sleep(0)
                another.close()
                await waiting

    slices = runtime_directory(runtime / "hami") / "slices"
    slices.mkdir()
    asyncio.run(use())
    assert list(slices.iterdir()) == []


def test_a_cancelled_task_releases_its_slice(stub: StubServer, slices_of: Slices) -> None:
    async def use() -> None:
        entered = asyncio.Event()

        async def hold() -> None:
            async with hami.slice():
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        await entered.wait()
        assert len(slices_of()) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    assert slices_of() == []
