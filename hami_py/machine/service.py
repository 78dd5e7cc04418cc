"""The service: the parts of a node's agent, for users instead of pods."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from hami_py import config
from hami_py.errors import DamagedFile, HamiError, StateError
from hami_py.gpu.inventory import inventory
from hami_py.gpu.sweep import Sweeper, writer
from hami_py.machine import preload, slurm
from hami_py.machine.containers import SliceDevices, slots_mounted
from hami_py.machine.listener import Listener
from hami_py.machine.overview import Overview
from hami_py.machine.policy import POLICY, FollowedPolicy
from hami_py.machine.register import Register
from hami_py.machine.requests import Answers
from hami_py.machine.slice_slots import owner_of
from hami_py.machine.usage import Usage
from hami_py.machine.users import user_of
from hami_py.node import library, mounts
from hami_py.node.cards import Cards
from hami_py.node.coordinator import Coordinator
from hami_py.node.ledger import Ledger, set_aside
from hami_py.node.node_lock import MACHINE, holder, node_lock
from hami_py.node.observer import Observer, Program, program_of
from hami_py.node.paths import Paths
from hami_py.node.processes import kill
from hami_py.node.rounds import Rounds
from hami_py.node.slots import Slots
from hami_py.slices.machine import SOCKET
from hami_py.slices.processes import user_of as user_of_process

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0

_JOBS_PERIOD_S = 60.0
"""Usually Slurm's Epilog ends the slice of a job, and the question makes Slurm list all jobs."""


class MachineService:
    """The service of a machine whose cards its users share.

    Args:
        library_file: the preload library to install.
        paths: the machine's directories.
        policy_file: who may use how much.
    """

    def __init__(
        self,
        library_file: Path,
        paths: Paths,
        policy_file: Path = POLICY,
    ) -> None:
        self._library_file, self._paths, self._policy_file = library_file, paths, policy_file
        self._stopping = threading.Event()
        self._parts = ExitStack()
        self._reported: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Start all parts; the last one is the socket.

        Raises:
            StateError: another has the cards of this machine, or a file cannot be used.
            NoDriver, DriverError: NVML cannot list the cards.
            InvalidValue: the policy is refused.
        """
        paths = self._paths
        other = holder(paths)
        if other is not None:
            raise StateError("hami machine", f"{other} has the cards", "run one of them only")
        # All users read the library, also where the administrator's own files are private.
        os.umask(0o022)
        with ExitStack() as parts:
            parts.enter_context(node_lock(paths, self._stopping, MACHINE))
            paths.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
            mounts.mount(paths.runtime)
            self._policy = FollowedPolicy(self._policy_file, paths.state / "policy.toml")
            installed = library.install(self._library_file, paths.libraries)
            cards = Cards()
            cards.add(inventory(1))
            ledger, slots = _ledger(paths.ledger), Slots(paths)
            usage = Usage(paths.state / "usage", ledger, slots, lambda: _sizes(cards))
            parts.callback(usage.close)
            register = Register(
                paths.slots,
                cards=cards,
                ledger=ledger,
                slots=slots,
                library=installed,
                policy=self._policy.now,
                before=self._policy.before,
                count=usage.look,
            )
            register.restore()
            devices = SliceDevices(paths.cdi, paths.slots, ledger)
            self._ledger, self._slots_device = ledger, slots.device
            self._observer = Observer(
                *(cards, ledger, slots, self._owner),
                changed=lambda: None,
                containers=1,
            )
            coordinator = Coordinator(paths.runtime)
            # Called last: the thread that checks it would start it again.
            parts.callback(coordinator.stop)
            write = writer(paths.runtime)

            def publish(sweep: bytes) -> None:
                write(sweep)
                usage.sweep(sweep)

            sweeper = Sweeper(publish)
            sweeping = partial(sweeper.run, self._stopping)
            threading.Thread(target=sweeping, name="sweep", daemon=True).start()
            # The kernel ends the coordinator with the thread that checks it.
            work = (
                *(coordinator.check, register.end_grown, register.end_unused),
                *(register.follow_policy, ledger.sync, devices.update, usage.round),
            )
            for name, steps, period_s in (
                ("work", work, _PERIOD_S),
                ("observe", (self._observer.observe, self._report), _PERIOD_S),
                # Apart, because Slurm may answer late.
                ("jobs", (partial(register.end_lost_jobs, slurm.jobs),), _JOBS_PERIOD_S),
            ):
                rounds = Rounds(name, steps, period_s)
                rounds.start()
                parts.callback(rounds.stop)
            overview = Overview(paths.slots, installed)
            where = self._policy.now().metrics
            if where is not None:
                self._serve_metrics(
                    parts,
                    where,
                    cards=cards,
                    ledger=ledger,
                    overview=overview,
                    observer=self._observer,
                    usage=usage,
                )
            answers = Answers(register, overview, usage, devices)
            listener = Listener(paths.runtime / SOCKET, answers.answer)
            listener.start()
            if preload.is_on():
                self._renew_preload(installed)
            parts.callback(listener.stop)
            self._parts = parts.pop_all()
        _notify("READY=1")

    def stop(self) -> None:
        """End. Programs run on with their limits; shares are less exact until the next service."""
        self._stopping.set()
        self._parts.close()

    def _serve_metrics(self, parts: ExitStack, where: tuple[str, int], **read: Any) -> None:  # noqa: ANN401
        """Serve metrics; without them, users have their limits all the same."""
        try:
            # Imported here: the package's extra need not be installed.
            from hami_py.machine.metrics import metrics  # noqa: PLC0415
            from hami_py.serving import Listen  # noqa: PLC0415

            server = metrics(Listen(*where), **read)
            server.start()
            parts.callback(server.stop)
        except ImportError as error:
            fix = "install the wheel with its extra [kubernetes], as docs/machine.md shows"
            _log.error("no metrics are served: %s is not installed; %s", error.name, fix)
        except HamiError as error:
            _log.error("no metrics are served: %s", error)

    def _renew_preload(self, installed: Path) -> None:
        """Give all programs the library of this version, as those in slices have."""
        try:
            preload.switch_on(installed, self._paths.runtime)
        except StateError as error:
            _log.error("%s; programs have the library before it", error)

    def _owner(self, process: Path) -> str | None:
        """The user of a process; None for one whom the policy sets no limit.

        The users of a container are others than the machine's. A process with a slice's account is
        that of the slice's user, since nobody else may mount it.
        """
        for slot in slots_mounted(process, self._slots_device):
            entry = self._ledger.entries.get(slot)
            if entry is not None:
                return entry.owner
        status = (process / "status").read_text(errors="replace")
        uid = next(int(line.split()[1]) for line in status.splitlines() if line[:4] == "Uid:")
        user = user_of(uid)
        if user.is_known is None:
            # As of one that has ended: it is judged later.
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return None if self._policy.now().grant(user).is_unlimited else owner_of(uid)

    def _report(self) -> None:
        """Report the programs without limits once, and end them if the policy says so."""
        found = [each for each in self._observer.found if each.kind != "foreign"]
        for finding in found:
            process = finding.process
            if (finding.kind, process.pid) not in self._reported:
                who = user_of_process(process.pid)
                what = f"process {process.pid} of {who} ({process.command})"
                _log.warning("%s uses card %s without limits", what, process.card)
            if self._policy.now().bypass == "kill" and kill(
                Path(f"/proc/{process.pid}"), partial(_runs, process.program)
            ):
                _log.warning("killed process %d (bypass = kill)", process.pid)
        self._reported = {(each.kind, each.process.pid) for each in found}


def _ledger(path: Path) -> Ledger:
    """The ledger, or a new one if it is damaged: users get slices again, and default slices."""
    try:
        return Ledger(path)
    except DamagedFile as error:
        _log.error("%s; its slices are lost; it is kept as %s", error, set_aside(path))
        return Ledger(path)


def _sizes(cards: Cards) -> dict[str, int]:
    return {card.uuid: card.memory_mib << 20 for card in cards.all}


def _runs(program: Program | None, process: Path) -> bool:
    return program_of(int(process.name)) == program


def _notify(state: str) -> None:
    """Tell the service manager (sd_notify(3)), if one has started this process."""
    path = config.read().environment.get("NOTIFY_SOCKET", "")
    if path:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect("\0" + path[1:] if path.startswith("@") else path)
            manager.send(state.encode())
