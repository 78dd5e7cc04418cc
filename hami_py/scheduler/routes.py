"""The extender's HTTP routes."""

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
from hami_py.scheduler.metrics import Metrics
from hami_py.scheduler.verbs import Verbs
from hami_py.serving import json_route, page

_log = logging.getLogger(__name__)

_NODES = 64 << 20
"""The largest body with nodes. kube-scheduler sends whole nodes unless its configuration says that
the extender caches them (``nodeCacheCapable``)."""

_BIND = 1 << 16

A = TypeVar("A")
R = TypeVar("R")


def verb_routes(verbs: Verbs, metrics: Metrics) -> list[Route]:
    """The routes for kube-scheduler."""

    def verb(
        name: str,
        decode: Callable[[bytes], A],
        answer: Callable[[A], R],
        *,
        failed: Callable[[str], R],
        most_bytes: int,
        blocks: bool = False,
    ) -> Route:
        timed = metrics.timed(name, _without_errors(name, answer, failed))
        return json_route(f"/{name}", decode, timed, most_bytes=most_bytes, blocks=blocks)

    decode_filter = filter_args(Decoder(ExtenderArgs, "arguments"))

    def refuse_all(why: str) -> FilterResult:
        return FilterResult(node_names=[], error=why)

    decode_bind = Decoder(BindArgs, "bind arguments")
    decode_preempt = Decoder(PreemptArgs, "preempt arguments")
    return [
        verb("filter", decode_filter, verbs.filter, failed=refuse_all, most_bytes=_NODES),
        # kube-scheduler ignores an error here; without scores, other plugins' scores decide.
        verb("prioritize", decode_filter, verbs.prioritize, failed=lambda _: [], most_bytes=_NODES),
        verb(
            "bind",
            lambda body: verbs.arrived(decode_bind(body)),
            lambda arrived: verbs.bind(*arrived),
            failed=BindResult,
            most_bytes=_BIND,
            blocks=True,
        ),
        # It searches hundreds of nodes, and filters must be answered meanwhile.
        verb(
            "preempt",
            decode_preempt,
            verbs.preempt,
            failed=lambda _: PreemptResult(),
            most_bytes=_NODES,
            blocks=True,
        ),
    ]


def _without_errors(
    name: str, answer: Callable[[A], R], failed: Callable[[str], R]
) -> Callable[[A], R]:
    """The function with errors as answers: kube-scheduler does not show the text of a 5xx."""

    def answered(argument: A) -> R:
        try:
            return answer(argument)
        except HamiError as error:
            _log.warning("%s: %s", name, error)
            return failed(str(error))
        except Exception:
            _log.exception("%s", name)
            return failed("hami: internal error; see the extender's log")

    return answered


def probe_routes(
    ended_threads: Callable[[], list[str]],
    is_ready: Callable[[], bool],
    metrics: Callable[[], str],
    card_metrics: Callable[[], bytes],
    hami_metrics: Callable[[], bytes],
) -> list[Route]:
    """The routes for health and metrics."""

    def alive() -> tuple[int, str]:
        ended = ended_threads()
        return (503, f"ended: {', '.join(ended)}\n") if ended else (200, "alive\n")

    def ready() -> tuple[int, str]:
        return (200, "ready\n") if is_ready() else (503, "the cluster is not known yet\n")

    return [
        page("/healthz", alive),
        page("/readyz", ready),
        # In a thread, because the same listener has to answer filters meanwhile.
        page("/metrics", lambda: (200, metrics()), blocks=True),
        page("/metrics/cards", lambda: (200, card_metrics()), blocks=True),
        page("/metrics/hami", lambda: (200, hami_metrics()), blocks=True),
    ]
