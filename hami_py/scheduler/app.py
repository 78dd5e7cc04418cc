"""The extender's routes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from starlette.routing import Route

from hami_py.errors import HamiError
from hami_py.model.pods.decoding import Decoder
from hami_py.scheduler.extender_api import (
    BindArgs,
    BindResult,
    ExtenderArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    filter_args,
)
from hami_py.scheduler.metrics import Meter
from hami_py.scheduler.verbs import Verbs
from hami_py.serving import json_route, page

__all__ = ["make_app", "probes"]

_log = logging.getLogger(__name__)

_NODES = 64 << 20
"""Where kube-scheduler is not told that we know the nodes it sends all of them, whole."""

_BIND = 1 << 16

A = TypeVar("A")
R = TypeVar("R")


def make_app(verbs: Verbs, meter: Meter) -> list[Route]:
    """The verbs, for kube-scheduler.

    Args:
        verbs: who answers.
        meter: who counts, and takes the time.
    """

    def verb(
        name: str,
        decode: Callable[[bytes], A],
        answer: Callable[[A], R],
        *,
        failed: Callable[[str], R],
        most_bytes: int,
        waits: bool = False,
    ) -> Route:
        timed = meter.timed(name, _answered(name, answer, failed))
        return json_route(f"/{name}", decode, timed, most_bytes=most_bytes, waits=waits)

    asked = filter_args(Decoder(ExtenderArgs, "arguments"))
    bound = Decoder(BindArgs, "bind arguments")
    preempted = Decoder(PreemptArgs, "preempt arguments")
    return [
        verb("filter", asked, verbs.filter, failed=_refuse_all, most_bytes=_NODES),
        # An error here would be ignored; without scores the pod is bound by those of others.
        verb("prioritize", asked, verbs.prioritize, failed=lambda _: [], most_bytes=_NODES),
        verb(
            "bind",
            lambda body: verbs.arrived(bound(body)),
            lambda asked: verbs.bind(*asked),
            failed=BindResult,
            most_bytes=_BIND,
            waits=True,
        ),
        # It looks at hundreds of nodes, and filters are to be answered meanwhile.
        verb(
            "preempt",
            preempted,
            verbs.preempt,
            failed=lambda _: PreemptResult(),
            most_bytes=_NODES,
            waits=True,
        ),
    ]


def _refuse_all(why: str) -> FilterResult:
    return FilterResult(node_names=[], error=why)


def _answered(name: str, answer: Callable[[A], R], failed: Callable[[str], R]) -> Callable[[A], R]:
    """The same function; where it fails, an answer that says so: of a 5xx nobody sees the text."""

    def answered(argument: A) -> R:
        try:
            return answer(argument)
        except HamiError as error:
            _log.warning("%s: %s", name, error)
            return failed(str(error))
        except Exception:
            _log.exception("%s", name)
            return failed("hami: a fault of ours; the extender's log has more")

    return answered


def probes(
    crashed: Callable[[], list[str]],
    is_ready: Callable[[], bool],
    metrics: Callable[[], str],
    cards: Callable[[], bytes],
) -> list[Route]:
    """Health and metrics.

    Args:
        crashed: what has ended and only a restart brings back.
        is_ready: whether the cluster is known.
        metrics: the metrics, as text.
        cards: those of each card, likewise.
    """

    def alive() -> tuple[int, str]:
        ended = crashed()
        return (503, f"ended: {', '.join(ended)}\n") if ended else (200, "alive\n")

    def ready() -> tuple[int, str]:
        return (200, "ready\n") if is_ready() else (503, "the cluster is not known yet\n")

    return [
        page("/healthz", alive),
        page("/readyz", ready),
        # Filters are to be answered meanwhile, also where both are asked for at one port.
        page("/metrics", lambda: (200, metrics()), waits=True),
        page("/metrics/cards", lambda: (200, cards()), waits=True),
    ]
