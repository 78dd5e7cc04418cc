"""Waiting for a cluster to come to something: polls, with a deadline, and says what it last saw."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from cluster.api import Api, ApiError, Object
from cluster.objects import PODS

T = TypeVar("T")

#: Seconds; far more than anything here takes on a busy machine.
DEADLINE = 60.0


def until(look: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
    """The first answer of ``look`` that says yes: not None, not False, and not empty."""
    give_up = time.monotonic() + deadline
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {deadline} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long it took, for people."""
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.2f} s", flush=True)


def bound(api: Api, name: str, deadline: float = DEADLINE) -> Object:
    """The pod ``default/name``, once it has a node."""

    def look() -> Object | None:
        pod = api.get(f"{PODS}/{name}")
        return pod if pod["spec"].get("nodeName") else None

    return until(look, f"pod {name} is bound", deadline)


def unschedulable(api: Api, name: str, why: str = "", deadline: float = DEADLINE) -> str:
    """The message of the pod's condition PodScheduled=False, once it says why.

    An earlier one may say less: kube-scheduler or the extender had not heard of a node.
    """
    seen = ""

    def look() -> str | None:
        nonlocal seen
        pod = api.get(f"{PODS}/{name}")
        for condition in pod["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                seen = str(condition.get("message", ""))
                return seen if why in seen else None
        return None

    try:
        return until(look, f"pod {name} is said to be unschedulable", deadline)
    except TimeoutError as error:
        raise TimeoutError(f"{error} with {why!r}; it says {seen!r}") from None


def gone(api: Api, path: str, deadline: float = DEADLINE) -> None:
    """Wait until there is no such object."""

    def look() -> bool:
        try:
            api.get(path)
        except ApiError as error:
            return error.code == 404
        return False

    until(look, f"{path} is deleted", deadline)


def takes(api: Api, pod: Object) -> None:
    """Wait until such a pod may be made: admission hears of what it names a moment late."""
    until(lambda: api.request("POST", f"{PODS}?dryRun=All", pod)[0] == 201, "the pod may be made")
