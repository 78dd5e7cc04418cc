"""Fixtures for every test: the built files, a stub GPU, compiled programs, slices, worlds.

A test runs programs; it never loads the driver or the library into itself.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support import artifacts as artifacts_module
from support import processes, slices
from support.artifacts import Artifacts
from support.programs import Programs
from support.running import Run, Started, run
from support.stub import StubServer
from support.traces import comparable
from support.world import Kit, World

pytest_plugins = ["support.tiers", "support.parallel", "support.times"]

Limits = Mapping[str, int | None]


def pytest_configure() -> None:
    """Programs inherit ignored signals: SIGINT behind a shell's `&`, SIGHUP behind `nohup`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def artifacts() -> Artifacts:
    """The built files; an error where one is missing."""
    return artifacts_module.find()


@pytest.fixture(scope="session")
def compiled_folder(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled programs go: all processes of the run share it."""
    return processes.shared_folder(pytestconfig) or tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def program(compiled_folder: Path, artifacts: Artifacts) -> Programs:
    """`program(name)` compiles tests/preload/programs/NAME.c and gives its path."""
    sources = Path(__file__).parent / "preload" / "programs"
    return Programs(sources, compiled_folder, artifacts)


@pytest.fixture(scope="session")
def kit(artifacts: Artifacts, compiled_folder: Path) -> Kit:
    """The programs of worlds, each compiled once."""
    return Kit.in_folder(artifacts, compiled_folder)


@pytest.fixture
def world(kit: Kit, tmp_path: Path) -> Callable[..., World]:
    """`world(cards="a100,a100")` is a place for containers, on the virtual clock."""

    def make(**options: object) -> World:
        return World(kit, tmp_path, **options)

    return make


@pytest.fixture
def stub_server(artifacts: Artifacts, tmp_path: Path) -> Iterator[Callable[..., StubServer]]:
    """`stub_server("a100,a100", free_delay_ms=50)` starts a stub GPU server for this test."""
    with contextlib.ExitStack() as servers:
        count = 0

        def start(cards: str = "a100", **options: object) -> StubServer:
            nonlocal count
            count += 1
            server = StubServer(artifacts, tmp_path / f"stub{count}", cards, **options)
            return servers.enter_context(server)

        yield start


@pytest.fixture
def gpu(stub_server: Callable[..., StubServer]) -> StubServer:
    """One a100."""
    return stub_server()


@pytest.fixture
def slice_dir(tmp_path: Path) -> Callable[[Limits], Path]:
    """`slice_dir({uuid: bytes})` makes a slice directory; None is no limit."""
    count = 0

    def make(limits: Limits) -> Path:
        nonlocal count
        count += 1
        return slices.make(tmp_path / f"slice{count}", limits)

    return make


@pytest.fixture
def preload(artifacts: Artifacts) -> Callable[[StubServer, Path | str], dict[str, str]]:
    """`preload(gpu, slice)` is the environment of a program that runs in that slice."""

    def environment(server: StubServer, slice_path: Path | str) -> dict[str, str]:
        layers = str(slice_path).split(":")
        return {**server.env, **slices.environment(artifacts.library, *layers)}

    return environment


@pytest.fixture
def slice_env(
    slice_dir: Callable[[Limits], Path],
    preload: Callable[[StubServer, Path | str], dict[str, str]],
) -> Callable[[StubServer, int | Limits | None], dict[str, str]]:
    """`slice_env(gpu, limit)` is the environment of a program in a new slice.

    A limit in bytes is every card's, a mapping says it by UUID.
    """

    def environment(server: StubServer, limit: int | Limits | None) -> dict[str, str]:
        limits = limit if isinstance(limit, Mapping) else dict.fromkeys(server.uuids(), limit)
        return preload(server, slice_dir(limits))

    return environment


@pytest.fixture
def run_limited(
    program: Programs, slice_env: Callable[[StubServer, int | Limits | None], dict[str, str]]
) -> Callable[..., Run]:
    """`run_limited(gpu, limit, name, *arguments)` runs a program in a new slice."""

    def limited(
        server: StubServer,
        limit: int | Limits | None,
        name: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        input: str = "",
    ) -> Run:
        command: list[str | Path] = [program(name), *map(str, arguments)]
        return run(command, {**slice_env(server, limit), **(env or {})}, input=input)

    return limited


class Probe:
    """A process that tells what a slice would grant right now, and holds nothing itself."""

    def __init__(self, started: Started) -> None:
        self._started = started.wait_for("ready")

    def grants(self, mebibytes: int, ordinal: int = 0) -> bool:
        """Whether one allocation of this size is granted on this device."""
        self._started.tell(f"{mebibytes} {ordinal}")
        result = self._started.next_line()
        assert result in {"0", "2"}, f"neither granted nor out of memory: {result}"
        return result == "0"


@pytest.fixture
def probe(program: Programs) -> Iterator[Callable[[Mapping[str, str]], Probe]]:
    """`probe(env).grants(MiB, ordinal)` tells what a process with this environment would get."""
    with contextlib.ExitStack() as probes:

        def start(env: Mapping[str, str]) -> Probe:
            return Probe(probes.enter_context(Started([program("probe")], env)))

        yield start


@pytest.fixture
def trace_pair(
    program: Programs,
    stub_server: Callable[..., StubServer],
    run_limited: Callable[..., Run],
) -> Callable[..., tuple[list[str], list[str]]]:
    """`trace_pair(name, limit, *arguments)` gives the traces without and with the library.

    Each run has a GPU of its own, so that neither sees what the other left. The traces are without
    the values that a limit is there to change; standard error and exit code are their last lines.
    """

    def pair(
        name: str,
        limit: int | Limits | None,
        *arguments: object,
        cards: str = "a100",
        env: Mapping[str, str] | None = None,
        input: str = "",
    ) -> tuple[list[str], list[str]]:
        bare_gpu, limited_gpu = stub_server(cards), stub_server(cards)
        command: list[str | Path] = [program(name), *map(str, arguments)]
        bare = run(command, {**bare_gpu.env, **(env or {})}, input=input)
        limited = run_limited(limited_gpu, limit, name, *arguments, env=env, input=input)
        return _lines(bare), _lines(limited)

    return pair


def _lines(done: Run) -> list[str]:
    return [*comparable(done.out), f"standard error: {done.err!r}", f"exit code: {done.code}"]
