"""Nodes as their annotations and labels say them, for the allocator.

| on the node | written by | says |
|---|---|---|
| annotation ``hami.io/cards`` | the node agent | ``{"version":1,"cards":[…]}``, of wire.Card |
| annotation ``hami.io/cordon`` | an operator | cards that get nothing new: UUIDs, or ``all`` |
| label ``hami.io/mode`` | an operator | what the cards are for (wire.NodeMode) |
| label ``hami.io/placement`` | an operator | ``binpack`` or ``spread`` |

The labels' names and values are the profile's (names.py).
"""

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.pods.annotations import CARDS
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Node as ApiNode
from hami_py.model.pods.settings import DEFAULT, PodSettings
from hami_py.model.pods.versioned import VERSION, VersionedAnnotation
from hami_py.model.pods.wire import PLACEMENTS, Card, Cards, Node, NodeMode, Placement

MAX_BYTES = 128 * 1024
"""64 MIG cards with their links need 60 KiB."""

FIELD = f"metadata.annotations[{CARDS}]"

ALL = "all"


def _check(annotation: Cards) -> None:
    for name in ("uuid", "index"):
        values = [getattr(card, name) for card in annotation.cards]
        for value in values:
            if values.count(value) > 1:
                raise InvalidValue(f"{FIELD}.cards.{name}", str(value), "each card has its own")
            if value == "":
                raise InvalidValue(f"{FIELD}.cards.{name}", "", "write the card's UUID")


_annotation = VersionedAnnotation(FIELD, Cards, MAX_BYTES, _check)


def encode_cards(cards: tuple[Card, ...]) -> str:
    """The annotation's value: the same bytes for the same cards, whatever their order was.

    ``cordoned`` is left out: that is the operator's, and stands in an annotation of its own.

    Raises:
        InvalidValue: they cannot be the cards of a node.
    """
    own = (msgspec.structs.replace(card, cordoned=False) for card in cards)
    ordered = tuple(sorted(own, key=lambda card: (card.index, card.uuid)))
    return _annotation.encode(Cards(VERSION, ordered))


def decode_cards(text: str) -> tuple[Card, ...]:
    """The cards that an annotation says.

    Raises:
        InvalidValue: it says none.
        UnknownVersion: it is one of another version.
    """
    return _annotation.decode(text).cards


def read_node(node: ApiNode, settings: PodSettings = DEFAULT) -> Node | None:
    """The node for the allocator, or None if no node agent has described its cards.

    Raises:
        InvalidValue: an annotation or label is not understood.
        UnknownVersion: its node agent is of another version.
    """
    text = node.annotations.get(CARDS)
    if text is None:
        return None
    cordoned = _cordoned(node, settings)
    cards = tuple(
        msgspec.structs.replace(card, cordoned=ALL in cordoned or card.uuid in cordoned)
        for card in decode_cards(text)
    )
    profile = _profile(node, settings)
    return Node(node.name, cards, _mode(node, profile), _placement(node, profile))


def unknown_cordons(node: ApiNode, settings: PodSettings = DEFAULT) -> tuple[str, ...]:
    """What is cordoned and not there: a card that has gone, or a typing error to tell of."""
    cordoned = _cordoned(node, settings) - {ALL}
    # Reading all cards takes its time, and few nodes have a cordon.
    read = read_node(node, settings) if cordoned else None
    known = {card.uuid for card in read.cards} if read else set()
    return tuple(sorted(cordoned - known))


def _cordoned(node: ApiNode, settings: PodSettings) -> set[str]:
    found: set[str] = set()
    for profile in settings.profiles:
        for name in profile.cordon:
            entries = [part.strip() for part in node.annotations.get(name, "").split(",")]
            for entry in filter(None, entries):
                if entry != ALL and not entry.startswith(("GPU-", "MIG-")):
                    fix = f"write UUIDs of cards with commas between them, or {ALL}"
                    raise InvalidValue(f"metadata.annotations[{name}]", entry, fix)
                found.add(entry)
    return found


def _profile(node: ApiNode, settings: PodSettings) -> NameProfile:
    """Whose labels the node has; without any, the first profile's defaults hold."""
    labelled = [
        profile
        for profile in settings.profiles
        if profile.mode_label in node.labels or profile.placement_label in node.labels
    ]
    if len(labelled) > 1:
        label, other = labelled[1].mode_label, labelled[0].mode_label
        value = node.labels.get(label, "")
        fix = f"labels of {other.split('/')[0]} are there too: keep one kind"
        raise InvalidValue(f"metadata.labels[{label}]", value, fix)
    return labelled[0] if labelled else settings.profiles[0]


def _mode(node: ApiNode, profile: NameProfile) -> NodeMode:
    value = node.labels.get(profile.mode_label)
    if value is None:
        return profile.default_mode
    if value not in profile.modes:
        fix = f"write one of {', '.join(profile.modes)}"
        raise InvalidValue(f"metadata.labels[{profile.mode_label}]", value, fix)
    return profile.modes[value]


def _placement(node: ApiNode, profile: NameProfile) -> Placement | None:
    value = node.labels.get(profile.placement_label)
    if value is None:
        return profile.default_placement
    for placement in PLACEMENTS:
        if value == placement:
            return placement
    fix = f"write {' or '.join(PLACEMENTS)}"
    raise InvalidValue(f"metadata.labels[{profile.placement_label}]", value, fix)
