"""``hami set --pod``: the errors of a request that is refused, or that nobody decides."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from hami_py.cli.kubernetes import resize
from hami_py.cli.kubernetes.resize import resize_pod
from hami_py.errors import StateError
from hami_py.kube import ApiServer
from hami_py.model import parse_options
from hami_py.model.pods import encode_assignment
from hami_py.model.pods.wire import Assignment, CardAllocation

ASSIGNMENT = encode_assignment(
    Assignment(1, "u", "n1", {"main": (CardAllocation("GPU-0", 3000, 30),)})
)


class Server:
    """One pod, and the event that its agent writes after a request; None = it writes none."""

    def __init__(self, message: str | None) -> None:
        self._message = message
        self._events: list[dict[str, Any]] = []

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        if path.endswith("/events"):
            page = {"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
            return json.dumps({**page, "items": self._events}).encode()
        metadata = {"name": "p", "uid": "u", "annotations": {"hami.io/assignment": ASSIGNMENT}}
        spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
        return json.dumps({"metadata": metadata, "spec": spec}).encode()

    def patch(self, path: str, body: object, kind: str, *, deadline_s: float) -> bytes:
        if self._message is not None:
            self._events.append({"metadata": {"name": "p.1"}, "message": self._message})
        return b"{}"


def failed(message: str | None) -> StateError:
    request = parse_options(("5000MiB",), (), None, None)
    with pytest.raises(StateError) as told:
        resize_pod(cast(ApiServer, Server(message)), "ml/p", request)
    return told.value


@pytest.mark.parametrize(
    ("message", "why", "fix"),
    [
        (
            "pod ml/p: card GPU-0 has 100 MiB free, and 2000 more are needed; request less, or "
            "retry when other pods have ended",
            "card GPU-0 has 100 MiB free, and 2000 more are needed",
            "request less, or retry when other pods have ended",
        ),
        (
            "namespace ml: quota q allows 4000 MiB, and 5000 would be allocated; request less",
            "quota q allows 4000 MiB, and 5000 would be allocated",
            "request less",
        ),
        ("pod ml/p: a text that Kube", "pod ml/p: a text that Kube", "request other limits"),
    ],
)
def test_the_reason_and_the_fix_of_a_refusal_are_those_of_the_event(
    message: str, why: str, fix: str
) -> None:
    error = failed(message)
    assert (error.what, error.why) == ("pod ml/p", f"the node agent refuses: {why}")
    assert error.fix == fix


def test_without_a_decision_the_error_names_the_node_and_the_command_for_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`hami explain`, which it named before, says nothing about the agent."""
    monkeypatch.setattr(resize, "_DECISION_S", 0.01)
    error = failed(None)
    assert error.why == "the agent of node n1 has not decided after 0.01 s"
    assert "kubectl -n hami-system logs" in error.fix
    assert "--field-selector spec.nodeName=n1" in error.fix
