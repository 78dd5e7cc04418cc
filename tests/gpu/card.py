"""The card that a test runs on: the stub's, or this machine's. The tests are the same.

Only two things differ: how programs find the card, and what shows from outside how much they hold.
NVML does on both; on the stub the ledger, which is exact, does too.
"""

import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import slices
from support.artifacts import Artifacts
from support.console import Console
from support.running import Run, Started, run
from support.slices import MIB
from support.stub import StubServer

#: The variables of the environment that belong to the test runner, not to the machine.
_OURS = {
    "LD_PRELOAD",
    "HAMI_SLICE",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PYTEST_CURRENT_TEST",
}

#: Seconds within which NVML must show what programs have done.
_DEADLINE = 20.0

SOURCES = Path(__file__).parent / "programs"

#: Bytes by which a real card's use may differ from the requested bytes: the driver takes whole
#: pages of 2 MiB, and sometimes another page for itself.
REAL_SLACK = 32 * MIB


@dataclass
class Card:
    """The cards of a machine, for programs. Members for one card are for the first."""

    uuids: list[str]
    env: dict[str, str]
    programs: Callable[[str], Path]
    library: Path
    folder: Path
    stub: StubServer | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _observers: dict[str, Started] = field(default_factory=dict)
    _slices: int = 0

    @property
    def uuid(self) -> str:
        """The UUID of the first card."""
        return self.uuids[0]

    def in_process(self, env: Mapping[str, str]) -> dict[str, str]:
        """The same environment, with the stub's engine inside the program, which is the fastest.

        Its card is the same one, by UUID. A real card's stays as it is.
        """
        if not self.stub:
            return dict(env)
        without = {name: value for name, value in env.items() if name != "STUB_GPU_SOCKET"}
        return {**without, "STUB_GPU_PROFILE": self.stub.cards}

    @property
    def slack(self) -> int:
        """Bytes by which NVML may differ from the requested bytes."""
        return 0 if self.stub else REAL_SLACK

    def observe(self, uuid: str | None = None) -> dict[str, Any]:
        """NVML's numbers from outside the slice: total, used, free, processes."""
        uuid = uuid or self.uuid
        if uuid not in self._observers:
            command = [sys.executable, "-m", "gpu.observer", uuid]
            env = {**self.env, **python_path()}
            self._observers[uuid] = self._stack.enter_context(Started(command, env))
        observer = self._observers[uuid]
        observer.tell("")
        answer: dict[str, Any] = json.loads(observer.next_line())
        return answer

    def used(self) -> int:
        """Bytes in use on the first card, by NVML."""
        return int(self.observe()["used"])

    def wait_until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until the condition holds; returns the seconds that it took."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > _DEADLINE:
                raise TimeoutError(f"not within {_DEADLINE} s: {what}; {self.observe()}")
            time.sleep(0.005)
        return time.monotonic() - start

    def slice(
        self,
        limit: int | None,
        *others: int | None,
        share: int | None = None,
        context_memory: int | None = None,
        granule: int | None = None,
    ) -> "Slice":
        """A new slice with this limit in bytes on the first card, and the others on the next cards.

        ``share``: percent of the time of each of them; ``context_memory`` and ``granule``: bytes
        that each context is charged, and to which requests are rounded up.
        """
        self._slices += 1
        name = f"slice{self._slices}"
        rows = dict(zip(self.uuids, (limit, *others), strict=False))
        directory = slices.make(self.folder / name, rows, share, context_memory, granule)
        return Slice(self, directory, name)

    @contextlib.contextmanager
    def console(self, lookup: str = "dlsym") -> Iterator[Console]:
        """A console outside every slice, with a current context."""
        with Console(self.programs("console"), self.env) as console:
            yield begin(console, lookup)

    def close(self) -> None:
        """End what was started for this card."""
        self._stack.close()


@dataclass(frozen=True)
class Slice:
    """A slice on a card."""

    card: Card
    directory: Path
    name: str

    @property
    def env(self) -> dict[str, str]:
        """The environment of a program in the slice."""
        return {
            **self.card.env,
            **slices.environment(self.card.library, self.directory),
            "STUB_GPU_GROUP": self.name,
        }

    @contextlib.contextmanager
    def console(self, lookup: str = "dlsym") -> Iterator[Console]:
        """A console in the slice, with a current context."""
        with Console(self.card.programs("console"), self.env) as console:
            yield begin(console, lookup)

    def run(self, command: list[str | Path], **options: Any) -> Run:
        """Run a program in the slice to its end."""
        env = {**self.env, **options.pop("env", {})}
        return run(command, env, **options)

    def python(self, code: str, *arguments: str) -> Any:
        """Run Python code in the slice; returns its last line, as JSON."""
        done = self.run([sys.executable, "-c", code, *arguments], env=python_path())
        assert done.code == 0, done.err
        return json.loads(done.lines[-1])

    def usage(self) -> int:
        """Bytes in use on the first card, by ``hami.usage()`` in the slice."""
        code = "import json, hami_py as hami; print(json.dumps(hami.usage().cards[0].memory_used))"
        return int(self.python(code))

    def charged(self) -> int:
        """The same bytes, read from the account: a thousand times as fast."""
        from hami_py._native import Account

        return Account.open(self.directory / "account").snapshot().memory_used[0]

    def refusals(self) -> int:
        """The number of requests on the first card that the library has refused."""
        from hami_py._native import Account

        return sum(
            row.refusals[0] for row in Account.open(self.directory / "account").snapshot().processes
        )

    def ledger(self, of: str = "requested") -> dict[str, int]:
        """The stub's ledger of this slice on the first card: ``now`` and ``peak``."""
        assert self.card.stub, "a real card has no ledger"
        group = self.card.stub.ledger()["cards"][0]["groups"][self.name]
        return {key: int(value) for key, value in group[of].items()}


def begin(console: Console, lookup: str = "dlsym") -> Console:
    """Make the primary context of the first card current.

    The kit's console is not linked with the driver, so it finds functions by `dlsym` or by
    `proc_address` (cuGetProcAddress).
    """
    console.do(f"lookup {lookup}", "init", "device 0")
    return console


def python_path() -> dict[str, str]:
    """The variables with which another Python finds the same modules as this one."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def stub_card(
    artifacts: Artifacts, programs: Callable[[str], Path], folder: Path, profiles: str = "a100"
) -> Card:
    """The cards of a new stub server."""
    server = StubServer(artifacts, folder / "stub", profiles)
    server.__enter__()
    card = Card(server.uuids(), server.env, programs, artifacts.library, folder, server)
    card._stack.push(server.__exit__)
    return card


def real_card(artifacts: Artifacts, programs: Callable[[str], Path], folder: Path) -> Card:
    """This machine's cards, with its own environment."""
    env = {key: value for key, value in os.environ.items() if key not in _OURS}
    return Card(list(_real_uuids()), env, programs, artifacts.library, folder)


@functools.cache
def _real_uuids() -> tuple[str, ...]:
    """NVML's UUIDs of CUDA's devices, in CUDA's order, which is the programs' order.

    Read once, because starting the driver takes a large part of a second.
    """
    env = {key: value for key, value in os.environ.items() if key not in _OURS}
    listed = json.loads(_python(["-m", "hami_py", "devices", "--json"], env))
    names = {card["uuid"].partition("-")[2]: card["uuid"] for card in listed}
    return tuple(names[uuid] for uuid in _python(["-c", _SEEN_BY_CUDA], env).split())


_SEEN_BY_CUDA = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count, device, raw = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for ordinal in range(count.value):
    assert cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0
    assert cuda.cuDeviceGetUuid_v2(raw, device) == 0
    print(uuid.UUID(bytes=bytes(raw)))
"""


def _python(arguments: list[str], env: Mapping[str, str]) -> str:
    done = run([sys.executable, *arguments], {**env, **python_path()})
    if done.code != 0:
        raise RuntimeError(f"{arguments[:2]}: {done.err.strip()}")
    return done.out
