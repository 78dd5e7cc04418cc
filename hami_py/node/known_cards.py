"""The cards that an agent has seen on this node, on disk: a lost card stays known after a restart.

MIG slices are left out: they get new UUIDs when they are made again. To forget a card that was
taken out of the node, remove the file.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from hami_py.model.pods.wire import Card


def read_cards(path: Path) -> tuple[Card, ...]:
    """The cards; none if the file is missing or damaged, because they are only a memory."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=tuple[Card, ...])
    return ()


def write_cards(path: Path, cards: Iterable[Card]) -> None:
    """Replace the file, unless it has these cards.

    Raises:
        OSError: it cannot be written.
    """
    whole = [card for card in cards if not card.uuid.startswith("MIG-")]
    lasting = [msgspec.structs.replace(card, healthy=True, foreign_mib=0) for card in whole]
    content = msgspec.json.encode(lasting)
    with suppress(OSError):
        if path.read_bytes() == content:
            return
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(content)
    aside.replace(path)
