"""Removing what the agent has left on a node: ``hami node --cleanup``.

It runs after the agents were removed. It waits until no limited container runs there, and then
removes the slots, the ledger, the installed libraries, and what the node says of its cards. It is
ready when all of it is gone.
"""

import logging
import shutil
import threading
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from starlette.routing import Router

from hami_py.agent.instances import remove_made
from hami_py.agent.settings import AgentSettings
from hami_py.errors import DamagedFile, HamiError, StateError
from hami_py.kube import ApiServer, patch_metadata, patch_status
from hami_py.model.pods import ALIYUN, HAMI
from hami_py.model.pods.annotations import CARDS
from hami_py.node import cdi, mounts
from hami_py.node.ledger import MAKING, Entry, Ledger
from hami_py.node.node_lock import node_lock
from hami_py.node.processes import pods_with_processes
from hami_py.node.rounds import Rounds
from hami_py.serving import Server, page

_log = logging.getLogger(__name__)

_RETRY_S = 5.0
_DEADLINE_S = 10.0

_AMOUNTS = tuple(name for profile in (HAMI, ALIYUN) for name in (profile.memory, profile.cores))
"""The resources of all profiles: the cleanup does not know which of them the agents have used."""


class Cleanup:
    """A service that is ready when the node is clean.

    Args:
        api: the API server.
        settings: how the agent ran.
    """

    def __init__(self, api: ApiServer, settings: AgentSettings) -> None:
        self._api, self._settings = api, settings
        self._why = "an agent still runs"
        self._stopping = threading.Event()
        self._rounds = Rounds("clean", [self._clean], _RETRY_S, self._stopping)
        pages = [page("/healthz", lambda: (200, "alive\n")), page("/readyz", self._ready)]
        self._server = Server(Router(pages), settings.listen)

    def start(self) -> None:
        """Start to clean."""
        self._server.start()
        self._rounds.start()

    def stop(self) -> None:
        """End."""
        self._rounds.stop()
        self._server.stop()

    def _ready(self) -> tuple[int, str]:
        return (503, f"not clean: {self._why}\n") if self._why else (200, "clean\n")

    def _clean(self) -> None:
        """Clean, unless that was done."""
        if self._why:
            try:
                with node_lock(self._settings.paths, self._stopping) as is_locked:
                    if is_locked:
                        self.clean()
                        self._why = ""
                        _log.info("the node is clean")
            except (HamiError, OSError) as error:
                self._why = str(error)
                raise

    def clean(self) -> None:
        """Clean once.

        Raises:
            StateError: a limited container runs, or something cannot be removed.
            DriverError: a MIG instance cannot be removed.
            KubeError: the API server does not answer, or refuses.
        """
        paths = self._settings.paths
        ledger = _ended(paths.ledger)
        if ledger is not None:
            for entry in list(ledger.entries.values()):
                for made in entry.made():
                    remove_made(made, partial(_note_making, ledger, entry))
        mounts.unmount(paths.runtime)
        for directory in (paths.runtime, paths.state):
            if directory.is_dir():
                shutil.rmtree(directory)
        (paths.cdi[-1] / cdi.NAME).unlink(missing_ok=True)
        for left in paths.device_plugins.glob("hami-*.sock"):
            left.unlink(missing_ok=True)
        node = f"/api/v1/nodes/{self._settings.node}"
        patch_metadata(self._api, node, annotations={CARDS: None}, deadline_s=_DEADLINE_S)
        patch_status(self._api, node, dict.fromkeys(_AMOUNTS), deadline_s=_DEADLINE_S)


def _note_making(ledger: Ledger, entry: Entry) -> None:
    """Note that a part of the instances of an entry may be gone."""
    marks = (MAKING if uuid else "" for uuid in entry.mig_uuids)
    ledger.put(replace(entry, mig_uuids=tuple(marks)))


def _ended(path: Path) -> Ledger | None:
    """The ledger, none of whose pods has a process; None = it is damaged."""
    try:
        ledger = Ledger(path)
    except DamagedFile as error:
        _log.warning("%s", error)
        return None
    entries = ledger.entries.values()
    running = pods_with_processes()
    left = sorted({f"{e.namespace}/{e.name}" for e in entries if e.owner in running})
    if left:
        why = f"{len(left)} pods with cards still run: {', '.join(left[:3])}"
        raise StateError("cleaning the node", why, "delete them, or drain the node")
    return ledger
