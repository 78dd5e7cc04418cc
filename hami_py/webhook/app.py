"""The webhook's routes."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette

from hami_py.serving import json_route, page
from hami_py.webhook.review import Reviewer, read_review

__all__ = ["make_app"]

_REVIEW = 4 << 20
"""An object is 1.5 MiB at most in etcd; a review has it once, or twice."""


def make_app(reviewer: Reviewer, metrics: Callable[[], str]) -> Starlette:
    """The application.

    Args:
        reviewer: who judges.
        metrics: the metrics as text.
    """
    return Starlette(
        routes=[
            json_route("/mutate", read_review, reviewer.mutate, most_bytes=_REVIEW),
            json_route("/validate", read_review, reviewer.validate, most_bytes=_REVIEW),
            page("/healthz", lambda: (200, "alive\n")),
            page("/metrics", lambda: (200, metrics())),
        ]
    )
