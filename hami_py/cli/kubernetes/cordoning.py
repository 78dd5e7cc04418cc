"""``hami cordon`` and ``hami uncordon``: cards of a node that get no new pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.settings import read_settings, settings_option
from hami_py.errors import InvalidValue
from hami_py.model import check_object_name

if TYPE_CHECKING:
    from hami_py.kube import ApiServer
    from hami_py.model.pods import PodSettings
    from hami_py.model.pods.wire import Card

_DEADLINE_S = 10.0
_ALL = "all"


def _command(change: Callable[[_Change, tuple[str, ...]], None]) -> click.Command:
    """A command that changes the cordoned cards of a node."""

    @click.command(change.__name__, help=change.__doc__)
    @click.argument("node")
    @click.argument("cards", nargs=-1, metavar="[CARD]...")
    @settings_option
    @api_server_options
    def command(
        *,
        node: str,
        cards: tuple[str, ...],
        settings_file: Path | None,
        kubeconfig: Path | None,
        context: str | None,
    ) -> None:
        server, settings = connect(kubeconfig, context), read_settings(settings_file)
        change(_Change(server, settings, node), cards)

    return command


@_command
def cordon(change: _Change, cards: tuple[str, ...]) -> None:
    """Give cards of a node to no new pods: these, by UUID or index, or without a CARD all of them.

    Running pods keep them. Without cards, `kubectl cordon` also stops pods that request no card.
    """
    change.write({*change.cordoned, *change.named(cards)} if cards else {_ALL})


@_command
def uncordon(change: _Change, cards: tuple[str, ...]) -> None:
    """Give cards of a node to new pods again: these, by UUID or index, or all of them."""
    before = change.cordoned
    if _ALL in before:
        before = {card.uuid for card in change.cards}
    change.write(before - change.named(cards) if cards else set())


class _Change:
    """A change of the cordoned cards of a node, which has been read."""

    def __init__(self, server: ApiServer, settings: PodSettings, node: str) -> None:
        from hami_py.model import pods  # noqa: PLC0415

        self._path = f"/api/v1/nodes/{quote(check_object_name('NODE', node), safe='')}"
        self._server = server
        read = pods.decode_node(server.get(self._path, deadline_s=_DEADLINE_S))
        described = pods.read_node(read, settings)
        self.cards: tuple[Card, ...] = described.cards if described is not None else ()
        self._names = settings.profiles[0].cordon
        texts = (read.annotations.get(name, "") for name in self._names)
        parts = (part.strip() for text in texts for part in text.split(","))
        self.cordoned = {part for part in parts if part}

    def named(self, cards: Iterable[str]) -> set[str]:
        """The UUIDs of cards that are named by UUID or index."""
        by_name = {str(card.index): card.uuid for card in self.cards}
        by_name |= {card.uuid: card.uuid for card in self.cards}
        for card in cards:
            if card not in by_name:
                known = ", ".join(f"{card.index} ({card.uuid})" for card in self.cards)
                raise InvalidValue("CARD", card, f"write one of {known or 'none: it has no cards'}")
        return {by_name[card] for card in cards}

    def write(self, cordoned: set[str]) -> None:
        """Cordon these cards and no others; all other names of the annotation are removed."""
        from hami_py.kube import patch_metadata  # noqa: PLC0415

        text = _ALL if _ALL in cordoned else ",".join(sorted(cordoned))
        first, *others = self._names
        annotations: dict[str, str | None] = dict.fromkeys(others)
        annotations[first] = text or None
        patch_metadata(self._server, self._path, annotations=annotations, deadline_s=_DEADLINE_S)
