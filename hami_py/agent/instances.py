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

from msgspec.structs import replace

from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, StateError
from hami_py.gpu import mig
from hami_py.model.pods.wire import CardAllocation, Instance
from hami_py.node.ledger import MAKING, Entry
from hami_py.node.processes import pods_with_processes

_log = logging.getLogger(__name__)


class Instances:
    """Makes and removes them. Calls of NVML are made without the lock of the state.

    Args:
        state: what is known of the node.
        changed: called when others' instances have changed.
        find: the UIDs of the pods that have processes.
    """

    def __init__(
        self,
        state: NodeState,
        changed: Callable[[], None],
        find: Callable[[], set[str]] = pods_with_processes,
    ) -> None:
        self._state, self._changed, self._find = state, changed, find
        # One change at a time. It is taken before the lock of the state.
        self._lock = threading.Lock()
        self._failing: dict[tuple[str, int], str] = {}

    def wanted(self, cards: Sequence[CardAllocation]) -> tuple[str, ...]:
        """The value of ``Entry.instances`` before the instances of these cards exist."""
        marks = tuple(MAKING if card.mig is not None else "" for card in cards)
        return marks if any(marks) else ()

    def why_blocked(self, owner: str, cards: Sequence[CardAllocation]) -> str | None:
        """Why the instances of these cards cannot be made now; None = nothing is in the way.

        Args:
            owner: the UID of the pod, whose containers may have an instance one after the other.
            cards: the cards of its container. The lock of the state is held.
        """
        for card in cards:
            if card.mig is None:
                continue
            for entry in self._state.ledger.entries.values():
                for gpu, at, _ in entry.places():
                    is_same = (entry.owner, at) == (owner, card.mig)
                    if gpu == card.card and not is_same and _slices(at) & _slices(card.mig):
                        return (
                            f"card {card.card} has the instance {at.profile} at {at.start} of "
                            f"{entry.namespace}/{entry.name} still, which is being removed"
                        )
            if self._state.cards.taken(card.card) & _slices(card.mig):
                what = f"{card.mig.profile} at {card.mig.start}"
                return f"card {card.card} has an instance of another program in place of {what}"
        return None

    def ensure(self, slot: str) -> None:
        """Make the instances of an entry of the ledger exist.

        Raises:
            HamiError: the entry was removed, or an instance cannot be made.
        """
        with self._lock:
            entry = self._entry(slot)
            marks = self.wanted(entry.cards)
            if not marks:
                return
            made = [
                uuid or mark for uuid, mark in zip(entry.instances or marks, marks, strict=True)
            ]
            # An instance that was removed may be made again.
            self._note(slot, tuple(made))
            for row, card in enumerate(entry.cards):
                if card.mig is not None:
                    known = None if made[row] == MAKING else made[row]
                    made[row], at = mig.make(card.card, card.mig, known)
                    self._state.cards.add_instance(made[row], at)
            self._note(slot, tuple(made))

    def follow(self) -> None:
        """Remove instances that are not needed any more, and see which ones others have made.

        Raises:
            HamiError: NVML fails or hangs.
        """
        with self._lock:
            for gpu, at, uuid, slots in self._unneeded():
                try:
                    mig.remove(gpu, at, uuid)
                except HamiError as error:
                    self._note_failure(gpu, at, error)
                else:
                    self._failing.pop((gpu, at.start), None)
                    self._forget(slots, gpu, at)
            taken = {gpu: self._taken(gpu) for gpu in self._state.cards.own}
            if self._state.cards.set_taken(taken):
                self._changed()

    def _unneeded(self) -> list[tuple[str, Instance, str | None, list[str]]]:
        """The instances without a container: GPU, place, UUID if it is known, and the slots."""
        state = self._state
        if not state.pods.is_listed:
            return []
        with state.lock:
            entries = list(state.ledger.entries.values())
            entries = [entry for entry in entries if any(entry.places())]
            over = {entry.owner for entry in entries if self._is_over(entry.owner)}
            needed = {place for entry in entries for place in self._needed(entry)}
        if over:
            over -= self._find()
        found: dict[tuple[str, str, Instance], dict[str, str]] = defaultdict(dict)
        for entry in entries:
            for gpu, at, uuid in entry.places():
                key = (entry.owner, gpu, at)
                if entry.owner in over or not (self._is_over(entry.owner) or key in needed):
                    found[key][entry.slot] = uuid
        return [
            (gpu, at, next((uuid for uuid in of.values() if uuid != MAKING), None), list(of))
            for (_, gpu, at), of in found.items()
        ]

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

    def _taken(self, gpu: str) -> tuple[int, ...]:
        """The memory slices of a GPU with instances of others, and those that cannot be removed."""
        places = mig.places(gpu)
        entries = list(self._state.ledger.entries.values())
        own = {at for entry in entries for card, at, _ in entry.places() if card == gpu}
        slices = {each for place in places if place.at not in own for each in _slices(place.at)}
        for at in own:
            if (gpu, at.start) in self._failing:
                slices |= _slices(at)
        return tuple(sorted(slices))

    def _note_failure(self, gpu: str, at: Instance, error: HamiError) -> None:
        if self._failing.get((gpu, at.start)) != str(error):
            self._failing[gpu, at.start] = str(error)
            _log.warning("an instance stays for now: %s", error)

    def _forget(self, slots: Sequence[str], gpu: str, at: Instance) -> None:
        """Note in the ledger that an instance was removed."""
        _log.info("card %s: removed the instance %s at %s", gpu, at.profile, at.start)
        for slot in slots:
            with suppress(StateError):
                entry = self._entry(slot)
                pairs = zip(entry.cards, entry.instances, strict=True)
                kept = ("" if (c.card, c.mig) == (gpu, at) else uuid for c, uuid in pairs)
                self._note(slot, tuple(kept))

    def _entry(self, slot: str) -> Entry:
        entry = self._state.ledger.entries.get(slot)
        if entry is None:
            raise StateError(f"slot {slot}", "the ledger does not have it", "delete the pod")
        return entry

    def _note(self, slot: str, instances: tuple[str, ...]) -> Entry:
        with self._state.lock:
            entry = replace(self._entry(slot), instances=instances)
            self._state.ledger.put(entry)
            return entry


def _slices(at: Instance) -> set[int]:
    """The memory slices of an instance."""
    return {*range(at.start, at.start + at.size)}
