"""The cards that an agent has seen on this node, on disk: a lost card stays known after a restart.

MIG slices are left out: they get new UUIDs when they are made again. To forget a card that was
taken out of the node, remove the file, and restart the agent.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from hami_py.model.pods.wire import Card


class KnownCards:
    """The file, which is written when the cards change, and not when the file does."""

    def __init__(self, path: Path) -> None:
        self._path, self._written = path, b""

    def read(self) -> tuple[Card, ...]:
        """The cards; none if the file is missing or damaged, because they are only a memory."""
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[Card, ...])
        return ()

    def remember(self, cards: Iterable[Card]) -> None:
        """Replace the file, unless these cards were written last.

        Raises:
            OSError: it cannot be written.
        """
        whole = [card for card in cards if not card.uuid.startswith("MIG-")]
        lasting = [msgspec.structs.replace(card, healthy=True, foreign_mib=0) for card in whole]
        content = msgspec.json.encode(lasting)
        if content != self._written:
            aside = self._path.with_name(f".{self._path.name}.new")
            aside.write_bytes(content)
            aside.replace(self._path)
            self._written = content
