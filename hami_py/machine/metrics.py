"""Prometheus' metrics of the slices and their users, at an address that the administrator names.

Needs the package's extra ``kubernetes``, so the service imports it only for such an address.
"""

from __future__ import annotations

import platform

from starlette.routing import Router

from hami_py.machine.overview import Overview
from hami_py.machine.usage import Usage
from hami_py.model import NodeCard, SliceUse
from hami_py.monitor import NodeFigures, machine_exposition
from hami_py.node.cards import Cards
from hami_py.node.ledger import Ledger
from hami_py.node.observer import Observer
from hami_py.serving import Listen, Server, page


def metrics(
    listen: Listen,
    *,
    cards: Cards,
    ledger: Ledger,
    overview: Overview,
    observer: Observer,
    usage: Usage,
) -> Server:
    """A server of them, which is not started.

    Raises:
        StateError: nothing can listen there.
    """

    def read() -> tuple[int, bytes]:
        entries = [(each, each.run) for each in list(ledger.entries.values())]
        slices = [
            SliceUse(use=card, namespace=each.namespace, pod=each.name or each.slot, container=kind)
            for each, kind in ((each, run.kind) for each, run in entries if run is not None)
            for card in overview.of(each).cards
        ]
        known = [
            NodeCard(card.uuid, card.index, card.model, card.memory_mib << 20, used.get(card.uuid))
            for used in [observer.used]
            for card in cards.all
        ]
        figures = NodeFigures(platform.node(), known, slices)
        return 200, machine_exposition(figures, usage.totals)

    return Server(Router([page("/metrics", read, blocks=True)]), listen)
