"""Release a container's cards when its pod has ended and no process of it is left.

The API server may forget a pod before its containers have ended, for example after
``kubectl delete --force``. The containers still have their slots then, and could use them.
"""

import logging
from collections.abc import Callable

from hami_py.agent.state import NodeState
from hami_py.node.processes import pods_with_processes

_log = logging.getLogger(__name__)


def release_ended(state: NodeState, find: Callable[[], set[str]] = pods_with_processes) -> None:
    """Remove the entries and slots of pods that have ended.

    Raises:
        StateError: the ledger cannot be written.
    """
    pods, ledger, slots = state.pods, state.ledger, state.slots
    if not pods.is_listed:
        return
    known = {entry.owner for entry in list(ledger.entries.values())}
    known |= ledger.changed.keys() | ledger.judged.keys()
    # First the MIG instances of a pod are removed.
    known -= {entry.owner for entry in ledger.entries.values() if any(entry.made())}
    ended = {uid for uid in known if pods.is_over(uid) or pods.get(uid) is None}
    if ended:
        # Without the lock: it takes long on a machine with many processes.
        ended -= find()
    with state.lock:
        gone = [entry for entry in ledger.entries.values() if entry.owner in ended]
        # First the ledger: a slot without an entry is removed below.
        ledger.remove(ended)
        kept = {entry.directory for entry in ledger.entries.values()}
        for name in slots.names() - kept if state.is_adopted else ():
            slots.remove(name)
        state.devices.remove_unneeded()
    for entry in gone:
        names = (entry.namespace, entry.name, entry.container)
        _log.info("%s/%s: container %s has ended", *names)
