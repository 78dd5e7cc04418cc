"""A program that does what a test tells it, and the two books that must say the same of it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.programs import Programs
from support.script import Script
from support.stub import StubServer


@pytest.fixture
def start(
    program: Programs,
    slice_dir: Callable[[Mapping[str, int | None]], Path],
    preload: Callable[[StubServer, Path | str], dict[str, str]],
) -> Iterator[Callable[..., Script]]:
    """`start(gpu, limit)` starts a script in a new slice, with device 0 in use.

    A limit in bytes is every card's; a path is a slice that exists, None is no slice at all.
    """
    with contextlib.ExitStack() as scripts:

        def script(gpu: StubServer, limit: int | Path | None, device: int | None = 0) -> Script:
            if isinstance(limit, int):
                limit = slice_dir(dict.fromkeys(gpu.uuids(), limit))
            env = gpu.env if limit is None else preload(gpu, limit)
            started = scripts.enter_context(Script(program("script"), env, limit))
            if device is not None:
                started.do("init", f"device {device}")
            return started

        yield script
