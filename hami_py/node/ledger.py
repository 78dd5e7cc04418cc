"""The node's ledger: what each slice on the node has, on disk.

It is the last authority for "the sum of a card is at most the card": a container starts only if the
ledger has room for it. It also rebuilds the slots, which are on tmpfs, after a reboot. Of a pod
whose limits were changed it keeps the assignment, which the API server may show later.

The file is JSON in two lines: a header with the version and the SHA-256 of the second line, and the
contents. It is replaced as a whole, so an agent that is killed leaves the old or the new one. No
container waits until it is synced: a power failure, which could damage it, ends all containers.
"""

import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from hami_py.errors import DamagedFile, StateError
from hami_py.model.limits import CardLimit, Level, Mode
from hami_py.model.pods.wire import Assignment, CardAllocation, Instance, NodeMode
from hami_py.node.rows import Priority

VERSION = 2
"""Version 1 had the owner, namespace and name in a record `pod`. It is read."""


_NAME_DIGITS = 16

MAKING = "making"
"""An instance that may exist."""


class Made(NamedTuple):
    """A MIG instance that the agent has made or is about to make.

    Attributes:
        gpu: the UUID of its GPU.
        at: its profile and place.
        uuid: of its MIG device; None = it may not exist.
    """

    gpu: str
    at: Instance
    uuid: str | None


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a slice outside of Kubernetes has besides.

    Attributes:
        limits: its limits, exact to the byte.
        holders: the processes that hold it: PID and start time, in clock ticks since boot.
        keep: it remains without holders.
        record: what its ``slice.json`` says.
        is_inside: it is in another slice of its owner, and has a part of that one's.
        kind: what it is for: a slice that its user has made, a job of a batch system, or what the
            user's other programs have.
    """

    limits: tuple[CardLimit, ...]
    holders: tuple[tuple[int, int], ...] = ()
    keep: bool = False
    record: dict[str, object] = {}
    is_inside: bool = False
    kind: Literal["slice", "job", "default"] = "slice"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one slice has: in Kubernetes, a container.

    Attributes:
        slot: the name of its slot; unique. Containers with the same ``claims`` share its directory.
        owner: whose it is; in Kubernetes, the UID of its pod.
        namespace: of the pod.
        name: the pod's.
        container: the container's name.
        ids: the container's device IDs.
        cards: its cards, with the limits that are in force.
        injected: the same cards with the limits that its environment has, which cannot change.
        library: the installed library that it has, as a path on the node.
        mode: how the node's cards were used when it was prepared.
        priority: the order among the containers that compete for a card.
        gang: the name of its gang in its namespace; None = it has none.
        share_mode: how its shares hold.
        isolation: the least level of memory that its pod accepts.
        cgroup: the directory of the cgroup whose memory the driver limits; None = it limits none.
        mig_uuids: of each card, the UUID of the MIG instance that the agent has made for it;
            ``MAKING`` from before that; empty = there is none. Empty = of no card.
        claims: whose amounts it has, if another allocator decides (``Amounts.owner``). Containers
            with the same claims share a slot.
        run: of a slice outside of Kubernetes.
    """

    slot: str
    owner: str
    namespace: str
    name: str
    container: str
    ids: tuple[str, ...]
    cards: tuple[CardAllocation, ...]
    injected: tuple[CardAllocation, ...]
    library: str
    mode: NodeMode
    priority: Priority
    gang: str | None = None
    share_mode: Mode = "hard"
    isolation: Level = "none"
    cgroup: str | None = None
    mig_uuids: tuple[str, ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()
    run: Run | None = None

    @property
    def directory(self) -> str:
        """The name of the directory of its slot."""
        if not self.claims:
            return self.slot
        return hashlib.sha256(msgspec.json.encode(self.claims)).hexdigest()[:_NAME_DIGITS]

    @property
    def seen(self) -> tuple[CardAllocation, ...]:
        """Its cards as its programs see them: the MIG instance in place of the GPU."""
        if not self.mig_uuids:
            return self.cards
        pairs = zip(self.cards, self.mig_uuids, strict=True)
        return tuple(
            msgspec.structs.replace(card, card=uuid) if uuid not in ("", MAKING) else card
            for card, uuid in pairs
        )

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of its cards, as its programs see them."""
        return [card.card for card in self.seen]

    @property
    def mig(self) -> list[bool]:
        """Of each of its cards, whether it is a MIG instance."""
        return [card.is_mig for card in self.cards]

    def made(self) -> Iterator[Made]:
        """The instances that the agent has made or is about to make."""
        for card, uuid in zip(self.cards, self.mig_uuids, strict=False):
            if card.mig is not None and uuid:
                yield Made(card.card, card.mig, None if uuid == MAKING else uuid)


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entries: tuple[Entry, ...] = ()
    changed: dict[str, Assignment] = {}
    judged: dict[str, str] = {}


class _Header(msgspec.Struct, frozen=True):
    version: int
    sha256: str


class Ledger:
    """The entries, and the file that keeps them. One process at a time may have it open.

    Args:
        path: the file; its directory must exist.

    Attributes:
        entries: the entries by the name of their slot.
        changed: by pod, its assignment since its limits were changed.
        judged: by pod, the digest of the resize request that was judged last.

    Raises:
        DamagedFile: the file is not a ledger of this version, or its checksum is wrong.
        StateError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        contents = _read(path)
        self.entries: Mapping[str, Entry] = {entry.slot: entry for entry in contents.entries}
        self.changed: Mapping[str, Assignment] = contents.changed
        self.judged: Mapping[str, str] = contents.judged
        self._is_synced = True

    def put(
        self,
        *entries: Entry,
        changed: Mapping[str, Assignment] | None = None,
        judged: Mapping[str, str] | None = None,
    ) -> None:
        """Add to what is there, or replace it; in the file when this returns.

        Args:
            entries: the entries, by their slots.
            changed: assignments by pod.
            judged: digests of resize requests by pod.

        Raises:
            StateError: the file cannot be written. Then nothing has changed.
        """
        self._write(
            {**self.entries, **{entry.slot: entry for entry in entries}},
            {**self.changed, **(changed or {})},
            {**self.judged, **(judged or {})},
        )

    def remove(self, pods: Collection[str]) -> None:
        """Remove all of these pods, by their UIDs; from the file when this returns.

        Raises:
            StateError: the file cannot be written. Then nothing has changed.
        """
        self._write(
            {slot: each for slot, each in self.entries.items() if each.owner not in pods},
            {uid: each for uid, each in self.changed.items() if uid not in pods},
            {uid: each for uid, each in self.judged.items() if uid not in pods},
        )

    def remove_slots(self, slots: Collection[str]) -> None:
        """Remove the entries of these slots; from the file when this returns.

        Raises:
            StateError: the file cannot be written. Then nothing has changed.
        """
        kept = {slot: each for slot, each in self.entries.items() if slot not in slots}
        self._write(kept, dict(self.changed), dict(self.judged))

    def _write(
        self, entries: dict[str, Entry], changed: dict[str, Assignment], judged: dict[str, str]
    ) -> None:
        if (entries, changed, judged) == (self.entries, self.changed, self.judged):
            return
        ordered = tuple(sorted(entries.values(), key=lambda entry: entry.slot))
        body = msgspec.json.encode(_Contents(ordered, changed, judged))
        header = msgspec.json.encode(_Header(VERSION, hashlib.sha256(body).hexdigest()))
        aside = self._path.with_name(f".{self._path.name}.new")
        try:
            aside.write_bytes(header + b"\n" + body + b"\n")
            aside.replace(self._path)
        except OSError as error:
            raise self._error(error) from error
        self.entries, self.changed, self.judged = entries, changed, judged
        self._is_synced = False

    def sync(self) -> None:
        """Keep what the file has through a power failure, too.

        Raises:
            StateError: the disk fails.
        """
        if self._is_synced:
            return
        # First, because another thread may replace the file meanwhile.
        self._is_synced = True
        try:
            for path in (self._path, self._path.parent):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            self._is_synced = False
            raise self._error(error) from error

    def _error(self, error: OSError) -> StateError:
        fix = "free some space, and check that the directory can be written"
        return StateError(f"ledger {self._path}", error.strerror or str(error), fix)


def set_aside(path: Path) -> Path:
    """Rename a damaged ledger, so that a new one can be made; its new path."""
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    path.rename(aside)
    return aside


def _read(path: Path) -> _Contents:
    try:
        first, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return _Contents()
    except OSError as error:
        fix = "check its owner and mode"
        raise StateError(f"ledger {path}", error.strerror or str(error), fix) from error
    body = body.rstrip(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
        if header.version not in (1, VERSION):
            raise DamagedFile(f"{path}: version {header.version} is unknown")
        if header.sha256 != hashlib.sha256(body).hexdigest():
            raise DamagedFile(f"{path}: its checksum is wrong")
        contents = msgspec.json.decode(body)
        for entry in contents["entries"] if header.version == 1 else ():
            pod = entry.pop("pod")
            entry |= {"owner": pod["uid"], "namespace": pod["namespace"], "name": pod["name"]}
        return msgspec.convert(contents, _Contents)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise DamagedFile(f"{path}: {error}") from error
