"""The webhook's routes."""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import Route, Router

from hami_py.serving import Bodies, json_route, page
from hami_py.webhook.review import Review, Reviewer, read_review

__all__ = ["make_app"]

_REVIEW = 4 << 20
"""An object is 1.5 MiB at most in etcd; a review has it once, or twice."""


def make_app(
    reviewer: Reviewer,
    bodies: Bodies,
    is_ready: Callable[[], bool],
    metrics: Callable[[], str],
) -> Router:
    """The application.

    Args:
        reviewer: who judges.
        bodies: bounds what is read of all reviews at once.
        is_ready: whether there is a certificate that the API server trusts.
        metrics: the metrics as text.
    """

    def review(path: str, answer: Callable[[Review], object]) -> Route:
        return json_route(path, read_review, answer, most_bytes=_REVIEW, bodies=bodies)

    def ready() -> tuple[int, str]:
        why = "there is no certificate yet: the log says why\n"
        return (200, "ready\n") if is_ready() else (503, why)

    return Router(
        [
            review("/mutate", reviewer.mutate),
            review("/validate", reviewer.validate),
            page("/healthz", lambda: (200, "alive\n")),
            page("/readyz", ready),
            page("/metrics", lambda: (200, metrics())),
        ]
    )
