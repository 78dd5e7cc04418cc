"""MIG instances that the agent makes for containers, on nodes of mode ``mig``.

The ledger has an instance before it exists, and until it is removed. So an agent that was killed
finds what it has begun. An instance that the ledger does not have belongs to somebody else, and is
never touched. The identity of an instance is its place: after a reset or a reboot it is made again.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, StateError
from hami_py.gpu import mig
from hami_py.kube import Event, Reference
from hami_py.model.pods.wire import CardAllocation, Instance
from hami_py.node.decision import KUBELET_RETRIES, Wait
from hami_py.node.ledger import MAKING, Entry, Made
from hami_py.node.processes import pods_with_processes

_log = logging.getLogger(__name__)


class Instances:
    """Makes and removes MIG instances. It does not hold the state's lock while it calls NVML.

    Args:
        state: what is known of the node.
        changed: called when others' instances have changed.
        write: writes an event soon.
        node: the node, for events.
        find: the UIDs of the pods that have processes.
    """

    def __init__(
        self,
        state: NodeState,
        changed: Callable[[], None],
        write: Callable[[Event], None],
        node: Reference,
        find: Callable[[], set[str]] = pods_with_processes,
    ) -> None:
        self._state, self._changed, self._find = state, changed, find
        self._write, self._node = write, node
        # One change at a time. It is taken before the lock of the state.
        self._lock = threading.Lock()
        self._failing: dict[tuple[str, Instance], str] = {}
        self._taken: dict[str, tuple[int, ...]] = {}
        # The pods that are over and have no process: that stays so.
        self._ended: set[str] = set()

    def blocked(self, owner: str, cards: Sequence[CardAllocation]) -> Wait | None:
        """Why the instances of these cards cannot be made now; None = nothing is in the way.

        Args:
            owner: the UID of the pod, whose containers may have an instance one after the other.
            cards: the cards of its container. The lock of the state is held.
        """
        for card in cards:
            if card.mig is None:
                continue
            for entry in self._state.ledger.entries.values():
                for gpu, at, _ in entry.made():
                    is_same = (entry.owner, at) == (owner, card.mig)
                    if gpu == card.card and not is_same and _slices(at) & _slices(card.mig):
                        return Wait(
                            f"card {card.card} has the instance {at.profile} at {at.start} of "
                            f"{entry.namespace}/{entry.name} still, which is being removed",
                            KUBELET_RETRIES,
                        )
            if self._state.cards.taken(card.card) & _slices(card.mig):
                return Wait(_others(card.card, card.mig), _FIX)
        return None

    def ensure(self, slot: str) -> None:
        """Make the instances of an entry of the ledger exist.

        Raises:
            HamiError: the entry was removed, or an instance cannot be made.
        """
        rows = [row for row, card in enumerate(self._entry(slot).cards) if card.mig is not None]
        if rows:
            with self._lock:
                for row in rows:
                    self._ensure(slot, row)

    def _ensure(self, slot: str, row: int) -> None:
        entry = self._entry(slot)
        card, mark = entry.cards[row], _marks(entry)[row]
        gpu, at = card.card, card.mig
        if at is None:
            return
        if mark != MAKING:
            # Right before the mark: after it, what is at this place is ours.
            known = {mark, *(made.uuid for made in self._made(gpu) if made.at == at)}
            for other in mig.existing(gpu):
                is_own = other.at == at and bool(known & {*other.uuids})
                if not is_own and _slices(other.at) & _slices(at):
                    self._mark(slot, row, "")
                    raise StateError(f"container {entry.container}", _others(gpu, at), _FIX)
            self._mark(slot, row, MAKING)
        try:
            uuid, device = mig.make(gpu, at)
        except mig.NotMade:
            self._mark(slot, row, "")
            raise
        self._mark(slot, row, uuid)
        self._state.cards.add_device(uuid, device)

    def follow(self) -> None:
        """Remove instances that are not needed any more, and see which ones others have made.

        Raises:
            HamiError: NVML fails or hangs. Other GPUs were followed.
        """
        failed: HamiError | None = None
        with self._lock:
            unneeded, stays = self._unneeded()
            for made, rows in unneeded:
                try:
                    remove_made(made, partial(self._mark_all, rows, MAKING))
                except HamiError as error:
                    stays.add((made.gpu, made.at))
                    self._note_failure(made, error)
                else:
                    _log.info("card %s: removed %s at %s", made.gpu, made.at.profile, made.at.start)
                    self._failing.pop((made.gpu, made.at), None)
                    self._mark_all(rows, "")
            for gpu in self._state.cards.managed:
                try:
                    self._taken[gpu] = self._look(gpu, stays)
                except HamiError as error:
                    failed = error
            if self._state.cards.set_taken(self._taken):
                self._changed()
        if failed is not None:
            raise failed

    def _unneeded(
        self,
    ) -> tuple[list[tuple[Made, list[tuple[str, int]]]], set[tuple[str, Instance]]]:
        """The instances without a container, each with its slots and rows in the ledger.

        Returns:
            Besides, the places of those whose pod has ended, and has processes.
        """
        state = self._state
        if not state.pods.is_listed:
            return [], set()
        with state.lock:
            entries = [each for each in state.ledger.entries.values() if any(each.made())]
            over = {entry.owner for entry in entries if self._is_over(entry.owner)}
            needed = {place for entry in entries for place in self._needed(entry)}
        self._ended &= over
        if over > self._ended:
            # This takes long on a machine with many processes.
            self._ended = over - self._find()
        found: dict[tuple[str, str, Instance], list[tuple[str, int, str | None]]]
        found, stays = defaultdict(list), set()
        for entry in entries:
            for gpu, at, uuid in entry.made():
                key = (entry.owner, gpu, at)
                if entry.owner in over - self._ended:
                    stays.add((gpu, at))
                elif entry.owner in over or key not in needed:
                    cards = [(card.card, card.mig) for card in entry.cards]
                    found[key].append((entry.slot, cards.index((gpu, at)), uuid))
        unneeded = [
            (
                Made(gpu, at, next((uuid for *_, uuid in of if uuid), None)),
                [(slot, row) for slot, row, _ in of],
            )
            for (_, gpu, at), of in found.items()
        ]
        return unneeded, stays

    def _is_over(self, uid: str) -> bool:
        return self._state.pods.is_over(uid) or self._state.pods.get(uid) is None

    def _needed(self, entry: Entry) -> Iterator[tuple[str, str, Instance]]:
        """The instances of the containers of a pod that have not ended for good.

        An init container leaves its instance to a container that may not have an entry yet.
        """
        pod = self._state.pods.get(entry.owner)
        if pod is None:
            return
        bound = self._state.bound(pod)
        of = {entry.container: entry.cards, **(bound.assignment.containers if bound else {})}
        for name, cards in of.items():
            if not pod.has_ended(name):
                yield from ((pod.uid, card.card, card.mig) for card in cards if card.mig)

    def _look(self, gpu: str, stays: set[tuple[str, Instance]]) -> tuple[int, ...]:
        """The memory slices of a GPU with instances of others, and with those that stay."""
        existing = mig.existing(gpu)
        self._state.cards.keep_devices(gpu, [uuid for each in existing for uuid in each.uuids])
        made = {each.at for each in self._made(gpu)}
        taken = [each.at for each in existing if each.at not in made]
        taken += [at for of, at in stays if of == gpu]
        return tuple(sorted({each for at in taken for each in _slices(at)}))

    def _made(self, gpu: str) -> list[Made]:
        entries = list(self._state.ledger.entries.values())
        return [made for entry in entries for made in entry.made() if made.gpu == gpu]

    def _note_failure(self, made: Made, error: HamiError) -> None:
        key = made.gpu, made.at
        if self._failing.get(key) != str(error):
            self._failing[key] = str(error)
            _log.warning("an instance stays for now: %s", error)
            text = f"an instance that no container has any more cannot be removed: {error}"
            self._write(Event(self._node, "InstanceStays", text, repeats=True))

    def _entry(self, slot: str) -> Entry:
        entry = self._state.ledger.entries.get(slot)
        if entry is None:
            raise StateError(f"slot {slot}", "the ledger does not have it", "delete the pod")
        return entry

    def _mark(self, slot: str, row: int, mark: str) -> None:
        """Note in the ledger what is known of an instance."""
        with self._state.lock:
            entry = self._entry(slot)
            marks = _marks(entry)
            marks[row] = mark
            self._state.ledger.put(replace(entry, mig_uuids=tuple(marks)))

    def _mark_all(self, rows: Sequence[tuple[str, int]], mark: str) -> None:
        for slot, row in rows:
            with suppress(StateError):
                self._mark(slot, row, mark)


_FIX = "remove that instance with nvidia-smi mig, or delete the pod"


def remove_made(made: Made, note: Callable[[], object]) -> None:
    """Remove an instance that the agent has made; nothing if it is not there.

    Args:
        made: the instance.
        note: notes that a part of it may be gone. It is called before that.

    Raises:
        DriverError: it cannot be removed.
    """
    if made.uuid is not None:
        there = next((each for each in mig.existing(made.gpu) if each.at == made.at), None)
        if there is None or made.uuid not in there.uuids:
            # It was lost. Another one at its place is not ours.
            return
        note()
    mig.remove(made.gpu, made.at)


def _marks(entry: Entry) -> list[str]:
    return list(entry.mig_uuids or [""] * len(entry.cards))


def _others(gpu: str, at: Instance) -> str:
    what = f"{at.profile} at {at.start}"
    return f"card {gpu} has an instance of another program in place of {what}"


def _slices(at: Instance) -> set[int]:
    """The memory slices of an instance."""
    return {*range(at.start, at.start + at.size)}
