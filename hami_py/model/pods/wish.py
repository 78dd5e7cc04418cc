"""From a pod's annotations to which cards it wants.

An empty annotation says nothing, as in HAMi. Everything else has to be understood: a policy with a
typing error that is passed over in silence would place a pod where its author did not want it.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from hami_py.errors import InvalidValue
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.wire import (
    PLACEMENTS,
    SHARINGS,
    Order,
    Placement,
    Sharing,
    Topology,
    Weights,
    Wish,
)

_POLICIES: dict[str, Order] = {
    "binpack": "binpack",
    "spread": "spread",
    "numa": "numa",
    "mutex": "mutex",
    "topology-aware": "topology",
    "topology-strict": "topology",
}
_TOPOLOGIES: dict[str, Topology] = {"topology-aware": "best-effort", "topology-strict": "strict"}
# As Go's strconv.ParseBool has them, which HAMi reads the annotation with.
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,90}")
_WEIGHT = re.compile(r"0|[1-9][0-9]{0,2}|1000")
_WEIGHTS = ("slot", "core", "memory")
_MOST = 64
"""Entries of a list: four times the cards of the largest machine."""

_Value = TypeVar("_Value")


def read_wish(pod: Pod, profile: NameProfile) -> Wish:
    """What the annotations say, by the names of one profile.

    Raises:
        InvalidValue: one is not understood, or two contradict each other.
    """
    if not pod.annotations or profile.wishes.isdisjoint(pod.annotations):
        return _NOTHING

    def read(name: str | None, parse: Callable[[str, str], _Value], nothing: _Value) -> _Value:
        text = pod.annotations.get(name, "").strip() if name is not None else ""
        return parse(text, _field(name)) if text else nothing

    none: tuple[str, ...] = ()
    use, avoid = read(profile.use_uuid, _uuids, none), read(profile.avoid_uuid, _uuids, none)
    types = read(profile.use_type, _words, none)
    avoid_types = read(profile.avoid_type, _words, none)
    _refuse_nothing_left(use, lambda uuid: uuid in avoid, profile.avoid_uuid, profile.use_uuid)
    _refuse_nothing_left(
        types,
        # A model with the longer word in it has the shorter one in it too.
        lambda wanted: any(word.lower() in wanted.lower() for word in avoid_types),
        profile.avoid_type,
        profile.use_type,
    )
    order, topology = read(profile.card_policy, _card_policy, _NO_POLICY)
    weights: Weights | None = read(profile.weights, _weights, None)
    node_order: Placement | None = read(profile.node_policy, _node_policy, None)
    mode: Sharing | None = read(profile.mode, _mode, None)
    return Wish(
        use=use,
        avoid=avoid,
        types=types,
        avoid_types=avoid_types,
        numa=read(profile.numa_bind, _boolean, False),
        order=order,
        topology=topology,
        mutex="mutex" in order,
        weights=weights,
        node_order=node_order,
        mode=mode,
    )


_NOTHING = Wish()
_NO_POLICY: tuple[tuple[Order, ...], Topology] = ((), "none")


def _field(name: str | None) -> str:
    return f"metadata.annotations[{name}]"


def _list(text: str, field: str, what: str) -> tuple[str, ...]:
    """The entries of a comma list, each once, in the order in which they stand there."""
    entries = tuple(dict.fromkeys(entry.strip() for entry in text.split(",")))
    if "" in entries:
        raise InvalidValue(field, text, f"between two commas there is nothing: write {what}")
    if len(entries) > _MOST:
        raise InvalidValue(field, text, f"write {_MOST} of them at most")
    return entries


def _uuids(text: str, field: str) -> tuple[str, ...]:
    entries = _list(text, field, "UUIDs with commas between them")
    for entry in entries:
        if not _UUID.fullmatch(entry):
            fix = "write a card's UUID as `nvidia-smi -L` shows it, like GPU-8f6a…"
            raise InvalidValue(field, entry, fix)
    return entries


def _words(text: str, field: str) -> tuple[str, ...]:
    entries = _list(text, field, "parts of models with commas between them")
    for entry in entries:
        if not entry.isprintable() or len(entry) > _MOST:
            raise InvalidValue(field, entry, "write a part of the card's model, like A100")
    return entries


def _refuse_nothing_left(
    wanted: tuple[str, ...], refused: Callable[[str], bool], avoid: str | None, use: str | None
) -> None:
    if wanted and all(refused(each) for each in wanted):
        fix = f"{avoid} refuses all of that: leave one of them out"
        raise InvalidValue(_field(use), ",".join(wanted), fix)


def _boolean(text: str, field: str) -> bool:
    if text not in _BOOLEANS:
        raise InvalidValue(field, text, 'write "true" or "false"')
    return _BOOLEANS[text]


def _mode(text: str, field: str) -> Sharing:
    for sharing in SHARINGS:
        if text == sharing:
            return sharing
    raise InvalidValue(field, text, f"write {', '.join(SHARINGS[:-1])} or {SHARINGS[-1]}")


def _node_policy(text: str, field: str) -> Placement:
    for placement in PLACEMENTS:
        if text == placement:
            return placement
    raise InvalidValue(field, text, "write binpack for full nodes first, or spread for empty ones")


def _card_policy(text: str, field: str) -> tuple[tuple[Order, ...], Topology]:
    known = ", ".join(_POLICIES)
    entries = _list(text, field, f"policies with commas between them: {known}")
    for entry in entries:
        if entry not in _POLICIES:
            raise InvalidValue(field, entry, f"write one of {known}, or several with commas")
    for one, other in (("binpack", "spread"), ("topology-aware", "topology-strict")):
        if one in entries and other in entries:
            raise InvalidValue(field, text, f"{one} and {other} contradict each other: keep one")
    chosen = [_TOPOLOGIES[entry] for entry in entries if entry in _TOPOLOGIES]
    return tuple(_POLICIES[entry] for entry in entries), chosen[0] if chosen else "none"


def _weights(text: str, field: str) -> Weights:
    """All three, as HAMi demands it; 0 to 1000, one of them at least above 0."""
    example = "write slot=1,core=1,memory=3"
    found: dict[str, int] = {}
    for entry in text.split(","):
        name, _, number = (part.strip() for part in entry.partition("="))
        if name not in _WEIGHTS or name in found:
            fix = f"{example}: each of {', '.join(_WEIGHTS)} once, and nothing else"
            raise InvalidValue(field, text, fix)
        if not _WEIGHT.fullmatch(number):
            raise InvalidValue(field, entry.strip(), "write a whole number from 0 to 1000")
        found[name] = int(number)
    absent = [name for name in _WEIGHTS if name not in found]
    if absent:
        raise InvalidValue(field, text, f"{', '.join(absent)} is missing: {example}")
    if not any(found.values()):
        raise InvalidValue(field, text, f"one of them must be above 0: {example}")
    return Weights(**found)
