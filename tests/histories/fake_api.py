"""An API server in memory: the part that the extender reads and writes, without HTTP and threads.

Its responses are those of recordings of a real server (``test_fake_api.py`` compares them). It does
no more than the extender and its surroundings need, and nothing at random: faults belong to the
client (``faults.py``).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from histories import status_errors
from histories.status_errors import Object, Refused

KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "resourcequotas": "ResourceQuota",
    "storageclasses": "StorageClass",
}

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "gitVersion": "v1.36.0",
}
"""Which it is: those before 1.35 drop the labels of a binding."""

_GROUPS = ("/api/v1/", "/apis/storage.k8s.io/v1/", "/apis/coordination.k8s.io/v1/")

_encode = msgspec.json.encode


class Event(NamedTuple):
    """One line of the history from which watches get their events.

    Attributes:
        before: the old object, with the version of the event; ``None``: it did not exist.
        after: the new object; ``None``: it was deleted.
        line: the event without a selector.
    """

    version: int
    type: str
    kind: str
    key: tuple[str, str]
    before: Object | None
    after: Object | None
    line: bytes

    def told(self, selector: str | None) -> bytes | None:
        """The line for a watch with a selector of labels, if there is one.

        If an object begins to match the selector, the watch reports it as added. If it ceases to
        match, the watch reports it as deleted, with its old content.
        """
        was, is_ = (
            one is not None and selects(selector, _labels(one)) for one in (self.before, self.after)
        )
        if was == is_:
            return self.line if is_ else None
        type_, item = ("ADDED", self.after) if is_ else ("DELETED", self.before)
        return self.line if type_ == self.type else _encode({"type": type_, "object": item})


@dataclass(frozen=True)
class Place:
    """The parts of a path."""

    kind: str
    namespace: str | None = None
    name: str | None = None
    part: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace or "", self.name or ""


class FakeApi:
    """The server's state. Objects are never changed in place: each write makes a new one.

    Attributes:
        objects: by kind, then by namespace and name.
        version: of the last write.
        log: the events that watches may still be told.
        floor: versions up to this one are forgotten.
        on_write: told of every change, with the object before and after.
        lease: the one there is, if any. It is no part of the log.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Object]] = {kind: {} for kind in KINDS}
        self.version = 100
        self.floor = 100
        self.log: list[Event] = []
        self.on_write: Callable[[str, Object | None, Object | None], None] | None = None
        self.lease: Callable[[], Object | None] = lambda: None
        self._lists: dict[tuple[int, str], list[bytes]] = {}
        self._uids = 0

    def request(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> tuple[int, bytes]:
        """One request: the status code and the body."""
        path, _, rest = path.partition("?")
        query = {**dict(parse_qsl(rest)), **(query or {})}
        if path == "/version":
            return 200, _encode(VERSION)
        try:
            answer = self._answer(method, _place(path), query, body)
        except Refused as error:
            return error.code, _encode(error.body)
        return (201 if method == "POST" else 200), answer

    def forget(self) -> None:
        """Old versions and unfinished lists are compacted away."""
        self.floor = self.version
        self.log = []
        self._lists = {}

    def since(self, version: int) -> list[Event]:
        """The events after a version; an error if that version has expired."""
        if version < self.floor:
            raise status_errors.too_old(version, self.floor + 1)
        low, high = 0, len(self.log)
        while low < high:
            middle = (low + high) // 2
            if self.log[middle].version <= version:
                low = middle + 1
            else:
                high = middle
        return self.log[low:]

    def is_past(self, event: Event) -> bool:
        """Whether the object has been written again since."""
        there = self.objects[event.kind].get(event.key)
        told = event.type == "DELETED"
        if there is None or told:
            return (there is None) != told
        return bool(there["metadata"]["resourceVersion"] != str(event.version))

    def bookmark(self, kind: str) -> bytes:
        """The event that says how far a watch has come."""
        made = {
            "apiVersion": "v1",
            "kind": KINDS[kind],
            "metadata": {"resourceVersion": str(self.version)},
        }
        return _encode({"type": "BOOKMARK", "object": made})

    def _answer(self, method: str, place: Place, query: Mapping[str, str], body: Any) -> bytes:
        if method == "GET":
            return _encode(self._find(place)) if place.name else self._list(place, query)
        if method == "POST" and place.part == "binding":
            return self._bind(place, body)
        if method == "POST":
            return self._create(place, body)
        if method == "PUT":
            self._check_version(place, body)
            return _encode(self._change(place, body))
        if method == "PATCH":
            self._check_version(place, body)
            return _encode(self._change(place, _merged(self._find(place), body)))
        return self._delete(place, query)

    def _find(self, place: Place) -> Object:
        is_lease = place.kind == "leases"
        found = self.lease() if is_lease else self.objects[place.kind].get(place.key)
        if found is None:
            raise status_errors.not_found(place.kind, place.name)
        return found

    def _list(self, place: Place, query: Mapping[str, str]) -> bytes:
        limit = int(query.get("limit", 0))
        if token := query.get("continue"):
            at = msgspec.json.decode(base64.b64decode(token))
            version, start = at["rv"], at["start"]
            if (version, place.kind) not in self._lists:
                fresh = _token({"v": "meta.k8s.io/v1", "rv": -1, "start": start})
                raise status_errors.page_too_old(fresh)
            items = self._lists[version, place.kind]
        else:
            version, start = self.version, 0
            items = [
                _encode(item)
                for (namespace, _), item in sorted(self.objects[place.kind].items())
                if place.namespace in (None, namespace) and _selected(item, query)
            ]
        page = items[start : start + limit] if limit else items[start:]
        metadata = {"resourceVersion": str(version)}
        if limit and start + limit < len(items):
            self._lists[version, place.kind] = items
            metadata["continue"] = _token({"rv": version, "start": start + limit})
        head = {"apiVersion": "v1", "kind": f"{KINDS[place.kind]}List", "metadata": metadata}
        return _encode({**head, "items": [msgspec.Raw(item) for item in page]})

    def _create(self, place: Place, body: Object) -> bytes:
        metadata = body["metadata"]
        place = Place(place.kind, place.namespace, metadata["name"])
        if place.key in self.objects[place.kind]:
            raise status_errors.already_there(place.kind, place.name)
        self._uids += 1
        named = {"uid": f"{self._uids:08x}-0000-4000-8000-000000000000", **metadata}
        if place.namespace is not None:
            named["namespace"] = place.namespace
        return _encode(self._write(place, "ADDED", None, {**body, "metadata": named}))

    def _bind(self, place: Place, binding: Object) -> bytes:
        pod = self._find(place)
        metadata, wanted = pod["metadata"], binding["metadata"]
        uid = wanted.get("uid", metadata["uid"])
        if uid != metadata["uid"]:
            why = (
                "StorageError: invalid object, Code: 4, Key: "
                f"/registry/pods/{place.namespace}/{place.name}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {metadata['uid']}"
            )
            raise status_errors.conflict("pods", place.name, why)
        if metadata.get("deletionTimestamp"):
            why = f"pod {place.name} is being deleted, cannot be assigned to a host"
            raise status_errors.conflict("pods/binding", place.name, why)
        if bound := pod["spec"].get("nodeName"):
            why = f'pod {place.name} is already assigned to node "{bound}"'
            raise status_errors.conflict("pods/binding", place.name, why)
        # A node that is not there is no error to the API server.
        merged = {
            field: {**metadata.get(field, {}), **wanted.get(field, {})}
            for field in ("annotations", "labels")
        }
        self._change(
            place,
            {
                **pod,
                "metadata": {**metadata, **merged},
                "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
            },
        )
        done = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}
        return _encode({**done, "code": 201})

    def _check_version(self, place: Place, body: Object) -> None:
        stale = body["metadata"].get("resourceVersion")
        if stale not in (None, self._find(place)["metadata"]["resourceVersion"]):
            raise status_errors.conflict(place.kind, place.name, status_errors.MODIFIED)

    def _change(self, place: Place, new: Object) -> Object:
        return self._write(place, "MODIFIED", self._find(place), new)

    def _delete(self, place: Place, query: Mapping[str, str]) -> bytes:
        there = self._find(place)
        metadata, spec = there["metadata"], there.get("spec", {})
        grace = int(query.get("gracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 0)))
        # A pod that was never bound has no kubelet to wait for.
        if metadata.get("finalizers") or (grace and spec.get("nodeName")):
            if not metadata.get("deletionTimestamp"):
                going = {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}
                there = self._change(place, {**there, "metadata": going})
            return _encode(there)
        return _encode(self._write(place, "DELETED", there, None))

    def _write(self, place: Place, type_: str, old: Object | None, new: Object | None) -> Object:
        self.version += 1

        def as_of_now(item: Object) -> Object:
            metadata = {**item["metadata"], "resourceVersion": str(self.version)}
            return {"apiVersion": "v1", "kind": KINDS[place.kind], **item, "metadata": metadata}

        before = None if old is None else as_of_now(old)
        after = None if new is None else as_of_now(new)
        told = after or before
        assert told is not None
        if after is None:
            del self.objects[place.kind][place.key]
        else:
            self.objects[place.kind][place.key] = after
        line = _encode({"type": type_, "object": told})
        self.log.append(Event(self.version, type_, place.kind, place.key, before, after, line))
        if self.on_write is not None:
            self.on_write(place.kind, old, after)
        return told


def _place(path: str) -> Place:
    for group in _GROUPS:
        path = path.removeprefix(group)
    parts = path.split("/")
    namespace = None
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    kind, name, part, *_ = [*parts, None, None]
    return Place(str(kind), namespace, name, part)


def _token(content: Object) -> str:
    return base64.b64encode(_encode(content)).decode()


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def selects(selector: str | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector of the form ``key=value`` takes something with these labels."""
    key, _, value = (selector or "").partition("=")
    return not key or labels.get(key) == value


def _is(item: Object, field: str) -> bool:
    """Whether a field selector matches: ``spec.nodeName=a``, ``status.phase!=Failed``."""
    path, sign, value = field.rpartition("!=") if "!=" in field else field.partition("=")
    part, _, name = path.partition(".")
    there: object = item.get(part, {}).get(name, "")
    return (there == value) == (sign == "=")


def _selected(item: Object, query: Mapping[str, str]) -> bool:
    fields = filter(None, query.get("fieldSelector", "").split(","))
    is_labelled = selects(query.get("labelSelector"), _labels(item))
    return is_labelled and all(_is(item, field) for field in fields)


def _labels(item: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = item["metadata"].get("labels", {})
    return labels
