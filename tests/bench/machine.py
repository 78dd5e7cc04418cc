"""Measures the service of a machine whose users share its cards, on the stub; as root.

Of two users: how long one waits for a slice, also while the other floods the service, the
processor time of `hami run` with the service and without, and what the service takes.
"""

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from bench import rows
from bench.node_costs import memory_mib, processor_s
from bench.results import Row, write
from bench.rows import percentile
from hami_py.model import parse_arguments
from hami_py.slices import SliceRequest, open_new
from support import artifacts
from support.artifacts import ROOT
from support.machine_users import ANNA, BERT, Users, flooding
from support.stub import StubServer

COMMAND = "make bench-machine"
CREATIONS, STARTS = 300, 21
IDLE_S = 60.0

row = partial(rows.row, COMMAND)


def main() -> None:
    """Measures all and writes docs/results/machine."""
    found = artifacts.find()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hami-bench-")))
        place.chmod(0o755)
        gpu = stack.enter_context(StubServer(found, place / "stub", "a100"))
        users = Users(place, gpu, found, found.libcuda, "")
        stack.callback(users.close)
        measured = [*_creations(users), *_starts(users, place), *_idle(users)]
    write("machine", "The service of a machine with several users", measured)


def _creations(users: Users) -> Iterator[Row]:
    """A program of one user asks for a slice and gives it back, again and again."""

    def create() -> list[float]:
        found = []
        request = SliceRequest(["true"], parse_arguments(gpumem="1GiB"))
        for _ in range(CREATIONS):
            began = time.monotonic()
            with contextlib.closing(open_new(users.settings(ANNA), request)):
                found.append(1e3 * (time.monotonic() - began))
        return found

    alone = users.users[ANNA].call(create)
    with users.users[BERT].holding(flooding(users.runtime / "machine.sock")):
        flooded = users.users[ANNA].call(create)
    for values, beside in ((alone, ""), (flooded, ", while another user floods the service")):
        for percent, target in ((50, None), (99, 100.0)):
            name = f"a new slice, p{percent}{beside}"
            yield row(name, [percentile(values, percent)], "ms", target, n=CREATIONS)


def _starts(users: Users, place: Path) -> list[Row]:
    """`hami run` of root, who also finds the service by its socket."""
    command = [sys.executable, "-c", _RUN, str(users.runtime)]
    without = [*command[:-1], str(place / "none")]
    env = {**users.gpu.charging_env, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    env["HAMI_RUNTIME_DIR"] = str(place / "own")
    (place / "own").mkdir(mode=0o700)
    mine, theirs = list[float](), list[float]()
    for _ in range(STARTS):
        before = processor_s(users.service.pid)
        spent = _processor_ms(command, env)
        mine.append(spent + 1e3 * (processor_s(users.service.pid) - before))
        theirs.append(_processor_ms(without, env))
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    return [
        row("hami run -- true, without the service", theirs, "ms"),
        row("hami run -- true, with the service, whose time is counted", mine, "ms"),
        row("hami run -- true, times that without the service", ratios, "", 1.2),
    ]


#: `hami run -- true`, with the service of this runtime directory.
_RUN = """
import sys
from dataclasses import replace
from pathlib import Path
from hami_py import config
runtime, read = Path(sys.argv.pop()), config.read
config.read = lambda *given: replace(read(*given), node_runtime=runtime)
sys.argv = ["hami", "run", "--", "true"]
from hami_py.cli import main
main()
"""


def _processor_ms(command: list[str], env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, timeout=60, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def _idle(users: Users) -> list[Row]:
    """With one slice in which a program has a context and does nothing."""
    threads = Path(f"/proc/{users.service.pid}/task").glob("*/children")
    ours = [users.service.pid, *(int(pid) for each in threads for pid in each.read_text().split())]
    assert len(ours) == 2, "the service and its coordinator"

    def all_of(figure: Callable[[int], float]) -> float:
        return sum(map(figure, ours))

    before, began = all_of(processor_s), time.monotonic()
    time.sleep(IDLE_S)
    percent = 100 * (all_of(processor_s) - before) / (time.monotonic() - began)
    memory = all_of(lambda process: memory_mib(process, "Rss"))
    return [
        row("the service and its coordinator, without slices, resident", [memory], "MiB", 60),
        row("the service and its coordinator, without slices", [percent], "% of a core", 1),
    ]
