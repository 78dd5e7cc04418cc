"""Reading a node's annotations and labels into a node for the allocator.

| on the node | written by | contains |
|---|---|---|
| annotation ``hami.io/cards`` | the node agent | ``{"version":1,"cards":[…]}`` with wire.Card |
| annotation ``hami.io/cordon`` | an operator | cards that receive no new pods: UUIDs, or ``all`` |
| label ``hami.io/mode`` | an operator | how the cards are used (wire.NodeMode) |
| label ``hami.io/placement`` | an operator | ``binpack`` or ``spread`` |

The names and values of the labels depend on the profile (names.py).
"""

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.pods.annotations import CARDS, VERSION, VersionedAnnotation
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Node as ApiNode
from hami_py.model.pods.settings import DEFAULT, PodSettings
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
                raise InvalidValue(
                    f"{FIELD}.cards.{name}", str(value), "each card must have its own"
                )
            if value == "":
                raise InvalidValue(f"{FIELD}.cards.{name}", "", "write the card's UUID")


_annotation = VersionedAnnotation(FIELD, Cards, MAX_BYTES, _check)


def encode_cards(cards: tuple[Card, ...]) -> str:
    """The annotation's value: the same bytes for the same cards in any order.

    ``cordoned`` is left out: the operator sets it in another annotation.

    Raises:
        InvalidValue: two cards have the same UUID or index, or one has no UUID.
    """
    own = (msgspec.structs.replace(card, cordoned=False) for card in cards)
    ordered = tuple(sorted(own, key=lambda card: (card.index, card.uuid)))
    return _annotation.encode(Cards(VERSION, ordered))


def decode_cards(text: str) -> tuple[Card, ...]:
    """The cards in an annotation's value.

    Raises:
        InvalidValue: the value is malformed.
        UnknownVersion: another version wrote it.
    """
    return _annotation.decode(text).cards


def read_node(node: ApiNode, settings: PodSettings = DEFAULT) -> Node | None:
    """The node for the allocator, or None if no node agent has described its cards.

    Raises:
        InvalidValue: an annotation or label is invalid.
        UnknownVersion: the node agent has another version.
    """
    text = node.annotations.get(CARDS)
    if text is None:
        return None
    cordoned = _cordoned(node, settings)
    cards = tuple(
        msgspec.structs.replace(card, cordoned=ALL in cordoned or card.uuid in cordoned)
        for card in decode_cards(text)
    )
    return Node(node.name, cards, read_mode(node, settings), _placement(node, settings))


def unknown_cordons(node: ApiNode, settings: PodSettings = DEFAULT) -> tuple[str, ...]:
    """Cordoned UUIDs that the node does not have: a removed card, or a typing error."""
    cordoned = _cordoned(node, settings) - {ALL}
    # Decoding all cards is slow, and few nodes have a cordon.
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
                    fix = f"write UUIDs of cards separated by commas, or {ALL}"
                    raise InvalidValue(f"metadata.annotations[{name}]", entry, fix)
                found.add(entry)
    return found


def _profile(node: ApiNode, settings: PodSettings) -> NameProfile:
    """The profile of the node's labels; without any, the first profile."""
    labelled = [
        profile
        for profile in settings.profiles
        if profile.mode_label in node.labels or profile.placement_label in node.labels
    ]
    if len(labelled) > 1:
        label, other = labelled[1].mode_label, labelled[0].mode_label
        value = node.labels.get(label, "")
        fix = f"the node also has labels of {other.split('/')[0]}: keep one kind"
        raise InvalidValue(f"metadata.labels[{label}]", value, fix)
    return labelled[0] if labelled else settings.profiles[0]


def read_mode(node: ApiNode, settings: PodSettings = DEFAULT) -> NodeMode:
    """How the node's cards are used.

    Raises:
        InvalidValue: a label is invalid.
    """
    profile = _profile(node, settings)
    value = node.labels.get(profile.mode_label)
    if value is None:
        return profile.default_mode
    if value not in profile.modes:
        fix = f"write one of {', '.join(profile.modes)}"
        raise InvalidValue(f"metadata.labels[{profile.mode_label}]", value, fix)
    return profile.modes[value]


def _placement(node: ApiNode, settings: PodSettings) -> Placement | None:
    profile = _profile(node, settings)
    value = node.labels.get(profile.placement_label)
    if value is None:
        return profile.default_placement
    for placement in PLACEMENTS:
        if value == placement:
            return placement
    fix = f"write {' or '.join(PLACEMENTS)}"
    raise InvalidValue(f"metadata.labels[{profile.placement_label}]", value, fix)
