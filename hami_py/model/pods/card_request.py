"""Reading a pod's annotations: which cards it requests, and in which order.

An empty annotation counts as absent, as in HAMi. Any other value must be valid: if a policy with a
typing error were ignored, the pod would run where its author did not want it.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from hami_py.errors import InvalidValue
from hami_py.model.limits import LEVELS, Level
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import (
    PLACEMENTS,
    SHARINGS,
    CardRequest,
    Order,
    Placement,
    Sharing,
    Topology,
    Weights,
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
# The values of Go's strconv.ParseBool, with which HAMi reads the annotation.
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,90}")
_WEIGHT = re.compile(r"0|[1-9][0-9]{0,2}|1000")
_WEIGHTS = ("slot", "core", "memory")
_MAX_ENTRIES = 64
"""Entries of a list: four times the cards of the largest machine."""
_MAX_WORD = 64

_Value = TypeVar("_Value")


def read_card_request(pod: Pod, settings: PodSettings) -> CardRequest:
    """The cards that the annotations select, by the names of the first profile.

    Raises:
        InvalidValue: an annotation is malformed, or two contradict each other.
    """
    profile, least = settings.profiles[0], settings.isolations.get(pod.metadata.namespace or "")
    if not pod.annotations or profile.card_annotations.isdisjoint(pod.annotations):
        return CardRequest(isolation=least) if least is not None else _ANY

    def read(name: str | None, parse: Callable[[str, str], _Value], default: _Value) -> _Value:
        text = pod.annotations.get(name, "").strip() if name is not None else ""
        return parse(text, _field(name)) if text else default

    none: tuple[str, ...] = ()
    use, avoid = read(profile.use_uuid, _uuids, none), read(profile.avoid_uuid, _uuids, none)
    types = read(profile.use_type, _words, none)
    avoid_types = read(profile.avoid_type, _words, none)
    _check_any_left(use, lambda uuid: uuid in avoid, profile.avoid_uuid, profile.use_uuid)
    _check_any_left(
        types,
        # A model that contains the longer word contains the shorter one too.
        lambda use: any(word.lower() in use.lower() for word in avoid_types),
        profile.avoid_type,
        profile.use_type,
    )
    order, topology = read(profile.card_policy, _card_policy, _NO_POLICY)
    weights: Weights | None = read(profile.weights, _weights, None)
    node_order: Placement | None = read(profile.node_policy, _node_policy, None)
    mode: Sharing | None = read(profile.mode, _mode, None)
    isolation: Level = read(profile.isolation, _isolation, "none")
    return CardRequest(
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
        isolation=max(isolation, least or "none", key=LEVELS.index),
    )


_ANY = CardRequest()
_NO_POLICY: tuple[tuple[Order, ...], Topology] = ((), "none")


def _field(name: str | None) -> str:
    return f"metadata.annotations[{name}]"


def _list(text: str, field: str, what: str) -> tuple[str, ...]:
    """The entries of a comma-separated list, without duplicates, in their order."""
    entries = tuple(dict.fromkeys(entry.strip() for entry in text.split(",")))
    if "" in entries:
        raise InvalidValue(field, text, f"an entry is empty: write {what}")
    if len(entries) > _MAX_ENTRIES:
        raise InvalidValue(field, text, f"write at most {_MAX_ENTRIES} entries")
    return entries


def _uuids(text: str, field: str) -> tuple[str, ...]:
    entries = _list(text, field, "UUIDs separated by commas")
    for entry in entries:
        if not _UUID.fullmatch(entry):
            fix = "write a card's UUID as `nvidia-smi -L` shows it, like GPU-8f6a…"
            raise InvalidValue(field, entry, fix)
    return entries


def _words(text: str, field: str) -> tuple[str, ...]:
    entries = _list(text, field, "parts of model names separated by commas")
    for entry in entries:
        if not entry.isprintable() or len(entry) > _MAX_WORD:
            raise InvalidValue(field, entry, "write a part of the card's model, like A100")
    return entries


def _check_any_left(
    used: tuple[str, ...], is_avoided: Callable[[str], bool], avoid: str | None, use: str | None
) -> None:
    """Refuse a list of cards that another annotation excludes as a whole."""
    if used and all(is_avoided(each) for each in used):
        fix = f"{avoid} excludes all of them: remove one of the two annotations"
        raise InvalidValue(_field(use), ",".join(used), fix)


def _boolean(text: str, field: str) -> bool:
    if text not in _BOOLEANS:
        raise InvalidValue(field, text, 'write "true" or "false"')
    return _BOOLEANS[text]


def _mode(text: str, field: str) -> Sharing:
    for sharing in SHARINGS:
        if text == sharing:
            return sharing
    raise InvalidValue(field, text, f"write {', '.join(SHARINGS[:-1])} or {SHARINGS[-1]}")


def _isolation(text: str, field: str) -> Level:
    if text == "any":
        return "none"
    for level in LEVELS[1:]:
        if text == level:
            return level
    fix = f"write any, or the least level that the pod accepts: {', '.join(LEVELS[1:])}"
    raise InvalidValue(field, text, fix)


def _node_policy(text: str, field: str) -> Placement:
    for placement in PLACEMENTS:
        if text == placement:
            return placement
    raise InvalidValue(field, text, "write binpack for full nodes first, or spread for empty ones")


def _card_policy(text: str, field: str) -> tuple[tuple[Order, ...], Topology]:
    known = ", ".join(_POLICIES)
    entries = _list(text, field, f"policies separated by commas: {known}")
    for entry in entries:
        if entry not in _POLICIES:
            raise InvalidValue(
                field, entry, f"write one of {known}, or several separated by commas"
            )
    for one, other in (("binpack", "spread"), ("topology-aware", "topology-strict")):
        if one in entries and other in entries:
            raise InvalidValue(field, text, f"{one} and {other} contradict each other: keep one")
    chosen = [_TOPOLOGIES[entry] for entry in entries if entry in _TOPOLOGIES]
    return tuple(_POLICIES[entry] for entry in entries), chosen[0] if chosen else "none"


def _weights(text: str, field: str) -> Weights:
    """All three weights, as HAMi requires; each from 0 to 1000, and at least one above 0."""
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
        raise InvalidValue(field, text, f"at least one must be above 0: {example}")
    return Weights(**found)
