"""Looks all the time whether part of a card is allocated twice, by two of `card_owners`."""

import threading
from collections.abc import Mapping
from contextlib import suppress

import urllib3

from cluster import card_owners
from cluster.api import ApiError
from cluster.card_owners import MIB, Allocations, Container
from cluster.objects import PODS
from cluster.whole import WholeCluster

#: Seconds between two looks.
_PERIOD = 0.3


class Watch:
    """A thread that looks; used in `with`.

    What the node agent has allocated of a card is never more than the card, and no container ever
    holds more than was allocated to it.
    """

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._allocated: Allocations = {}
        self._ended: set[Container] = set()
        # What was seen while the API server could not say which init containers have ended.
        self._unchecked: list[Allocations] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: How often it has looked.
        self.looks = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *unused: object) -> None:
        self._stopping.set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what was found until now."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_PERIOD):
                self._look()
        except BaseException as error:
            self._error = error

    def _look(self) -> None:
        try:
            # A container is in the node agent's ledger before it starts.
            held = card_owners.held(self._cluster.gpu)
            allocated = card_owners.ledger(self._cluster.node)
        except (OSError, AssertionError):
            if self._cluster.node.is_running and self._cluster.gpu.is_running:
                raise
            return
        self._allocated |= allocated
        self._unchecked.append(allocated)
        for container, cards in held.items():
            self._check_held(container, cards)
        with suppress(ApiError, urllib3.exceptions.HTTPError):
            self._ended |= card_owners.ended(self._cluster.api.list(PODS))
            for each in self._unchecked:
                card_owners.check_sums(each, self._ended)
            self._unchecked.clear()
        self.looks += 1

    def _check_held(self, container: Container, cards: Mapping[str, int]) -> None:
        # It may have started and ended since the last look.
        allocated = self._allocated.get(container)
        if allocated is not None:
            limits = {card: amount.memory_mib * MIB for card, amount in allocated.items()}
            for card, amount in cards.items():
                assert amount <= limits.get(card, 0), (container, cards, limits)
