"""A world: containers that share the cards of one stub GPU, for so many seconds of one clock.

It runs the real parts: the preload library, the coordinator's process, slice directories, programs
with many kernels. On the virtual clock (tests/stub/clock) exactly one thread of all runs at a time,
and time passes when no thread has work. So the numbers are the same each time, and a minute takes
seconds. On the real clock the same runs in real time.

The results are read from the stub's ledger and its history, which are independent of our code.
Times are seconds since the world began, shares are percent of one card's time.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from support import processes, slices
from support.artifacts import ROOT, Artifacts
from support.engine_time import Played, read
from support.programs import Programs
from support.running import Started
from support.stub import StubServer

ClockName = Literal["virtual", "real"]

#: The virtual clock at the start of a world.
_EPOCH_NS = 1_000_000_000_000

#: Real seconds that a world may take; far more than any needs.
_DEADLINE = 300.0

#: Seconds of the world after which programs that have not ended are killed.
_PATIENCE = 60.0

_GPU_PROGRAMS = ROOT / "tests" / "gpu" / "programs"

_KILL, _STOP, _CONTINUE = "SIGKILL", "SIGSTOP", "SIGCONT"


@dataclass(frozen=True)
class Program:
    """One process of a container.

    Attributes:
        options: of gpu/programs/load.c, without ``--seconds``; or of ``name``; or, of a program
            that is there anyhow, the whole ``command``.
        begin: when it starts.
        end: when it stops to launch; None: with the world.
        name: another program than load, from share/programs; it is told no ``--seconds``.
        command: whether the options are a command. It does not wait for children or for input.
    """

    options: Sequence[object]
    begin: float = 0.0
    end: float | None = None
    name: str | None = None
    command: bool = False


@dataclass(frozen=True)
class Container:
    """A slice of the cards, and the programs in it.

    Attributes:
        name: the group of its processes in the ledger.
        programs: its processes.
        share: percent of each card's time; None: no limit.
        mode: whether others' idle time is lent to it.
        priority: the order among containers.
        bare: without slice and library, as if there were no hami.
        variables: of the environment of its processes.
        gang: 16 bytes; containers with the same have their turns together.
        injected: a share that the control plane has put into its environment.
    """

    name: str
    programs: Sequence[Program]
    share: int | None = None
    mode: Literal["hard", "soft"] = "hard"
    priority: Literal["low", "normal", "high"] = "normal"
    bare: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    gang: bytes | None = None
    injected: int | None = None

    @property
    def regime(self) -> tuple[int | None, str, str]:
        """As the limits page has it."""
        return (self.share, self.mode, self.priority)


@dataclass(frozen=True)
class Event:
    """Something that happens at an instant, while nothing else does.

    ``kill``, ``stop`` and ``go on`` are for a container's processes (``process``: one of them), or
    for the coordinator, whose name is ``coordinator``; ``set`` gives a container the share, mode
    and priority of ``now``; ``look`` notes what a container's account says.
    """

    at: float
    do: Literal["kill", "stop", "go on", "set", "look"]
    who: str
    process: int | None = None
    now: Container | None = None


@dataclass(frozen=True)
class Kit:
    """The built files and the programs that worlds use."""

    artifacts: Artifacts
    load: Programs
    own: Programs

    @classmethod
    def in_folder(cls, artifacts: Artifacts, folder: Path) -> "Kit":
        """Programs are compiled into the folder, each when it is first needed."""
        return cls(
            artifacts,
            Programs(_GPU_PROGRAMS, folder, artifacts),
            Programs(ROOT / "tests" / "share" / "programs", folder, artifacts),
        )

    def command(self, program: Program, seconds: float) -> list[str | Path]:
        """How a process of a world of so many seconds is started."""
        options = [str(option) for option in program.options]
        if program.command:
            return list(options)
        if program.name is not None:
            return [self.own(program.name, f"-I{_GPU_PROGRAMS}"), *options]
        length = (seconds if program.end is None else program.end) - program.begin
        return [self.load("load"), *options, "--seconds", f"{length:g}"]


class World:
    """Cards, and containers that can run beside each other on them.

    Args:
        kit: the built files and programs.
        folder: the directory for all files of the world; it must exist.
        cards: as the stub's ``--cards``.
        clock: whether seconds are virtual and exact, or real.
        late_us: the delay of threads that wake up; on the virtual clock only.
        coordinator: whether there is one; "per card": one that knows no containers with two.
        server: more options of the stub's server.
        kernels: durations of kernels whose names do not contain one: the stub's command `kernels`.
    """

    def __init__(
        self,
        kit: Kit,
        folder: Path,
        *,
        cards: str = "a100",
        clock: ClockName = "virtual",
        late_us: int = 0,
        coordinator: bool | Literal["per card"] = True,
        server: Mapping[str, object] | None = None,
        kernels: Mapping[str, object] | None = None,
    ) -> None:
        self._kit = kit
        self._artifacts = kit.artifacts
        self._folder = folder
        self._cards = cards
        self._clock = clock
        self._late_us = late_us
        self._coordinator = coordinator
        self._server = {"clock": clock, **(server or {})}
        self._kernels = dict(kernels or {})

    def play(
        self,
        containers: Sequence[Container],
        seconds: float,
        events: Sequence[Event] = (),
        coordinators: Sequence[float] = (0.0,),
    ) -> Played:
        """Run them all for so many seconds.

        Args:
            containers: with different names.
            seconds: how long; programs without an end of their own launch for so long.
            events: the planned events.
            coordinators: when one is started; the first that runs excludes the others.
        """
        place = _new(self._folder)
        with StubServer(self._artifacts, place / "stub", self._cards, **self._server) as gpu:
            if self._kernels:
                gpu.control({"command": "kernels", "kernels": self._kernels})
            run = _Run(place, gpu, containers, seconds)
            run.make_slices()
            starts = coordinators if self._coordinator else ()
            with contextlib.ExitStack() as processes:
                with _on_one_processor() if self._clock == "virtual" else contextlib.nullcontext():
                    self._start(run, events, starts, processes)
                return run.finish()

    def _start(
        self,
        run: "_Run",
        events: Sequence[Event],
        coordinators: Sequence[float],
        processes: contextlib.ExitStack,
    ) -> None:
        """All processes; nothing happens before the last of them is there."""
        count = sum(len(container.programs) for container in run.containers)
        base = {"LD_LIBRARY_PATH": "", **self._clock_env(run, len(coordinators) + count + 1)}

        def start(command: Sequence[str | Path], env: Mapping[str, str], begin: float) -> Started:
            if begin:
                command = [self._kit.own("later"), str(begin), *command]
            place = {"STUB_CLOCK_PLACE": str(next(places))}
            return processes.enter_context(Started(command, {**base, **env, **place}))

        places = iter(range(1_000_000))
        for begin in coordinators:
            if self._coordinator == "per card":
                script = Path(__file__).with_name("per_card.py")
                command = [sys.executable, str(script), json.dumps(run.slices())]
            else:
                command = [sys.executable, "-m", "hami_py.coordinator", str(run.runtime)]
            env = self._preload({"PYTHONPATH": str(ROOT)})
            run.coordinators.append(start(command, env, begin))
        for container in run.containers:
            env = run.env(container)
            if not container.bare:
                env |= slices.environment(self._artifacts.library, run.slice(container))
            env = self._preload({**run.gpu.env, **env})
            for program in container.programs:
                started = start(self._kit.command(program, run.seconds), env, program.begin)
                run.programs[container.name].append(started)
        plan = run.place / "plan.json"
        plan.write_text(json.dumps(run.plan(events)))
        script = Path(__file__).with_name("scheduled_actions.py")
        director = [sys.executable, str(script), str(plan)]
        run.director = start(director, self._preload({"PYTHONPATH": str(ROOT)}), 0)

    def _clock_env(self, run: "_Run", expect: int) -> dict[str, str]:
        if self._clock == "real":
            return {}
        return {
            "STUB_CLOCK": str(run.place / "clock"),
            "STUB_CLOCK_EXPECT": str(expect),
            "STUB_CLOCK_LATE_NS": str(self._late_us * 1000),
        }

    def _preload(self, env: Mapping[str, str]) -> dict[str, str]:
        libraries = [env["LD_PRELOAD"]] if "LD_PRELOAD" in env else []
        if self._clock == "virtual":
            libraries.append(str(self._artifacts.clock))
        return {**env, "LD_PRELOAD": ":".join(libraries)} if libraries else dict(env)


class _Run:
    """One play: its files, and its processes."""

    def __init__(
        self, place: Path, gpu: StubServer, containers: Sequence[Container], seconds: float
    ) -> None:
        self.place, self.gpu, self.containers, self.seconds = place, gpu, containers, seconds
        self.runtime = place / "runtime"
        self.coordinators: list[Started] = []
        self.programs: dict[str, list[Started]] = {one.name: [] for one in containers}
        self.director: Started | None = None
        self._by_name = {one.name: one for one in containers}
        self._uuids = gpu.uuids()
        assert len(self._by_name) == len(containers), "containers have different names"

    def make_slices(self) -> None:
        from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage

        for container in self.containers:
            directory = self.slice(container)
            directory.mkdir(parents=True)
            if container.bare:
                directory.rmdir()
                continue
            share, mode, priority = container.regime
            rows = [
                LimitRow(
                    uuid,
                    share=share,
                    mode=mode,
                    priority=priority,
                    injected_share=container.injected,
                )
                for uuid in self._uuids
            ]
            LimitsPage.create(directory / "limits", rows, gang=container.gang)
            Account.create(directory / "account")
            GrantsPage.create(directory / "grants")

    def slices(self) -> list[str]:
        """The directories."""
        return [str(self.slice(one)) for one in self.containers if not one.bare]

    def env(self, container: Container) -> dict[str, str]:
        group = {"STUB_GPU_GROUP": container.name, **container.variables}
        if container.injected is not None:
            group["CUDA_DEVICE_SM_LIMIT"] = str(container.injected)
        return group

    def plan(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The plan for the process that executes events; it ends with the end of all programs."""
        everybody = [one.pid for started in self.programs.values() for one in started]
        end = self._signal(_KILL, everybody)
        return [
            *(self._step(event) for event in sorted(events, key=lambda event: event.at)),
            {"at": self.seconds + _PATIENCE, **end},
        ]

    def _step(self, event: Event) -> dict[str, Any]:
        if event.do in ("set", "look"):
            directory = self.slice(self._by_name[event.who])
            if event.do == "look":
                return {
                    "at": event.at,
                    "do": "look",
                    "account": str(directory / "account"),
                    "out": str(self._looks(event.who)),
                }
            assert event.now is not None, "an event that sets something says what"
            regimes = dict.fromkeys(self._uuids, event.now.regime)
            page = str(directory / "limits")
            return {"at": event.at, "do": "limits", "page": page, "regimes": regimes}
        signals = {"kill": _KILL, "stop": _STOP, "go on": _CONTINUE}
        started = self.coordinators if event.who == "coordinator" else self.programs[event.who]
        chosen = started if event.process is None else [started[event.process]]
        pids = [one.pid for one in chosen]
        return {"at": event.at, **self._signal(signals[event.do], pids)}

    def _signal(self, name: str, pids: list[int]) -> dict[str, Any]:
        control = str(self.gpu.control_socket)
        return {"do": "signal", "signal": name, "pids": pids, "control": control}

    def finish(self) -> Played:
        """Waits for the end of all programs, and reads the ledger."""
        said = {
            name: [_last_line(one) for one in started] for name, started in self.programs.items()
        }
        pids = {
            name: [
                *(one.pid for one in started),
                # Children, where a program has some that use the card.
                *(pid for one in said[name] for pid in one.get("pids", ())),
            ]
            for name, started in self.programs.items()
        }
        # The director last: it may still have to kill a program.
        assert self.director is not None
        self.director.kill()
        for coordinator in self.coordinators:
            coordinator.kill()
        errors = self.director.finish().err
        assert not errors, f"the director failed: {errors}"
        for coordinator in self.coordinators:
            errors = coordinator.finish().err
            assert not errors, f"the coordinator failed: {errors}"
        return read(
            self.gpu,
            pids,
            seconds=self.seconds,
            zero_ns=self._zero(said),
            said=said,
            looks={name: _lines(self._looks(name)) for name in pids},
            billed={one.name: self._billed(one) for one in self.containers if not one.bare},
        )

    def _billed(self, container: Container) -> float:
        """Seconds of the first card's engine time that the account says."""
        from hami_py._native import Account

        ns = Account.open(self.slice(container) / "account").snapshot().used_ns[0]
        return ns / 1e9

    def _zero(self, said: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """When the world began, on the clock of the history."""
        if (self.place / "clock").exists():
            return _EPOCH_NS
        # All were started at once; the first that looked at the clock tells.
        starts = [one["start_ns"] for group in said.values() for one in group if "start_ns" in one]
        assert starts, "on the real clock somebody must say when the world began"
        return min(starts)

    def slice(self, container: Container) -> Path:
        return self.runtime / "slices" / container.name

    def _looks(self, name: str) -> Path:
        return self.place / f"{name}.looks"


def _last_line(started: Started) -> dict[str, Any]:
    done = started.finish(deadline=_DEADLINE)
    assert done.code in (0, -9), f"exit code {done.code}: {done.err}"
    assert not done.err, done.err
    lines = done.lines
    return json.loads(lines[-1]) if lines else {}


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


@contextlib.contextmanager
def _on_one_processor() -> Iterator[None]:
    """Keep processes that are started in this block on one processor.

    One of a world's threads runs at a time, so a second processor would only add the cost of moving
    between them.
    """
    before = os.sched_getaffinity(0)
    processors = sorted(before, reverse=True)
    os.sched_setaffinity(0, {processors[processes.number() % len(processors)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
