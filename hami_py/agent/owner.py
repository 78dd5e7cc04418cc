"""The owner of the node's cards (``hami_py.model.pods.owner``), as the agent keeps it.

It is on disk, because a node may boot while the API server is away. It follows the node's label
only while the ledger is empty: the cards of a container would be allocated twice otherwise.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from hami_py.agent.node import NodeStore
from hami_py.agent.state import NodeState
from hami_py.errors import InvalidValue, state_errors
from hami_py.kube import Event, Reference
from hami_py.model.pods.owner import LABEL, Owner, read_owner
from hami_py.node.ledger import Ledger
from hami_py.node.paths import Paths

_log = logging.getLogger(__name__)

_POLL_S = 0.2


def kept_owner(paths: Paths, ledger: Ledger, node: NodeStore, stopping: threading.Event) -> Owner:
    """The owner that was kept; else that of what runs, or of the label, on a new node.

    A new node waits for the API server to show its label.
    """
    with suppress(OSError, UnicodeDecodeError, InvalidValue):
        return read_owner({LABEL: paths.owner.read_text().strip()})
    # An agent of an earlier version has kept none.
    if any(entry.claims for entry in ledger.entries.values()):
        return "others"
    if ledger.entries:
        return "hami"
    while node.node is None and not stopping.is_set():
        stopping.wait(_POLL_S)
    with suppress(InvalidValue):
        # It is told when the label is followed.
        return read_owner(node.node.labels) if node.node is not None else "hami"
    return "hami"


class OwnerLabel:
    """Follows the label of the node.

    Args:
        state: what is known of the node, with the owner that this agent serves.
        paths: the node's directories.
        write: writes an event soon.
        node: the node, for events.
        restart: ends this agent, so that another one serves the new owner.
    """

    def __init__(
        self,
        state: NodeState,
        paths: Paths,
        write: Callable[[Event], None],
        node: Reference,
        restart: Callable[[], None],
    ) -> None:
        self._state, self._path = state, paths.owner
        self._write, self._node, self._restart = write, node, restart

    def follow(self) -> None:
        """Keep the owner, and change it with the label.

        Raises:
            StateError: it cannot be written.
        """
        state, known = self._state, self._state.node.node
        wanted = state.owner
        try:
            wanted = read_owner(known.labels) if known is not None else wanted
        except InvalidValue as error:
            self._write(Event(self._node, "OwnerNotChanged", f"{error}; it stays {wanted}"))
        entries = list(state.ledger.entries.values())
        if wanted != state.owner and entries:
            pods = sorted({f"{entry.namespace}/{entry.name}" for entry in entries})
            text = (
                f"the node's cards stay those of {state.owner}, because pods have some, such as "
                f"{pods[0]}; drain the node"
            )
            self._write(Event(self._node, "OwnerNotChanged", text))
            wanted = state.owner
        self._keep(wanted)
        if wanted != state.owner:
            _log.info("the owner of the cards changes from %s to %s", state.owner, wanted)
            self._restart()

    def _keep(self, owner: Owner) -> None:
        with state_errors("the owner of the node's cards", "free some space"):
            if not self._path.exists() or self._path.read_bytes() != owner.encode():
                aside = self._path.with_name(f".{self._path.name}.new")
                aside.write_text(owner)
                aside.replace(self._path)
