"""kube-scheduler's lease: its holder, and how it passes to the next one.

A leader may not notice at once that it has lost the lease. A leader that is told to end releases
it, and the next one acquires it within a second or two, or at that very moment. A leader that is
paused counts as dead after leaseDuration; when it continues, it makes calls until it reads the
lease. A lease that was deleted belongs to the replica that recreates it. So for a while two
kube-schedulers may make calls, and a write of one extender may take effect while the other one
starts.

The lease is no object of the fake server: it has no watch, and its renewals would only make the log
long.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone
from typing import NamedTuple

from histories.faults import Clock
from histories.status_errors import Object

PLACE = ("hami-system", "hami-scheduler")

LASTS_S = 15.0
"""leaseDuration: nobody takes it from one that does not renew it before that."""

DEADLINE_S = 10.0
"""renewDeadline: who could not renew it for so long ends."""

RETRY_S = 2.0
"""retryPeriod: how often a leader looks at it, and the others do."""


class Loss(NamedTuple):
    """How a leader loses it.

    Attributes:
        how: in words.
        after: seconds until the next one takes it.
        still_s: for how long the one before asks nothing.
        ends_s: when it ends, at the latest.
    """

    how: str
    after: float
    still_s: float
    ends_s: float


class Election:
    """The lease. Hosts have different times of day, which advance at the same rate.

    Args:
        clock: the common clock.
        chance: decides when it is lost.
    """

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._ahead_s = {host: chance.uniform(-3600, 3600) for host in "ab"}
        self._spec: Object | None = None
        self._renewed_from: float | None = None
        """Since when its holder has renewed it, again and again; ``None``: nobody does."""
        self._made = 0

    def wall_s(self, host: str) -> float:
        """The time of day on a host."""
        return 1_800_000_000 + self._clock.now + self._ahead_s[host]

    def take(self, host: str, late_s: float) -> None:
        """The kube-scheduler of a host has it now, and noted the time so long before."""
        self._made += 1
        noted = _micro_time(self.wall_s(host) - late_s)
        before = -1 if self._spec is None else self._spec["leaseTransitions"]
        self._spec = {
            "holderIdentity": f"{host}_{self._made:08x}-0000-4000-8000-000000000000",
            "leaseDurationSeconds": int(LASTS_S),
            "acquireTime": noted,
            "renewTime": noted,
            "leaseTransitions": before + 1,
        }
        self._renewed_from = self._clock.now

    def read(self) -> Object | None:
        """The lease as it is."""
        if self._spec is None:
            return None
        if self._renewed_from is not None:
            self._renew(self._renewed_from)
        namespace, name = PLACE
        return {"metadata": {"name": name, "namespace": namespace}, "spec": dict(self._spec)}

    def lose(self) -> Loss:
        """Its holder loses it, somehow."""
        self.read()
        self._renewed_from = None
        return self._chance.choice((self._give_back, self._give_back, self._fail, self._delete))()

    def _give_back(self) -> Loss:
        assert self._spec is not None
        self._spec = {**self._spec, "holderIdentity": "", "leaseDurationSeconds": 1}
        # The next one may be about to ask just then.
        after = self._chance.choice((0.0, 0.0, self._chance.uniform(0, RETRY_S)))
        # Its bindings may still be requested.
        return Loss("it is given back", after, 0.0, self._chance.choice((0.0, after + 0.5)))

    def _fail(self) -> Loss:
        after = LASTS_S + self._chance.uniform(0, RETRY_S)
        if self._chance.random() < 0.3:
            return Loss("it cannot be renewed", after, 0.0, DEADLINE_S)
        woken = after + self._chance.uniform(-1, 3)
        return Loss("its holder stands still", after, woken, woken + RETRY_S)

    def _delete(self) -> Loss:
        self._spec = None
        after = self._chance.uniform(0, RETRY_S)
        return Loss("it is deleted", after, 0.0, after + self._chance.uniform(0, RETRY_S))

    def _renew(self, since: float) -> None:
        assert self._spec is not None
        times = (self._clock.now - since) // RETRY_S
        host = str(self._spec["holderIdentity"])[0]
        at = self.wall_s(host) - self._clock.now + since + times * RETRY_S
        if times:
            self._spec = {**self._spec, "renewTime": _micro_time(at)}


def _micro_time(seconds: float) -> str:
    """As Kubernetes writes it."""
    written = datetime.fromtimestamp(seconds, timezone.utc)
    return written.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
