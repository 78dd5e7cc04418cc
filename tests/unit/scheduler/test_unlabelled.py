"""Pods without the webhook's label: they are followed only where a binding gives it to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hami_py.kube.errors import Unavailable
from hami_py.scheduler.settings import Timing
from hami_py.scheduler.verbs import Verbs
from unit.scheduler.small import Server, Small

LABEL = {"hami.io/pod": "true"}


class Versioned(Server):
    """An API server that says which it is."""

    def __init__(self, **said: str) -> None:
        super().__init__()
        self.said = said
        self.asked = 0

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if path != "/version":
            return super().get(path, query, deadline_s=deadline_s)
        self.asked += 1
        return json.dumps({"gitVersion": "v1", **self.said}).encode()


def follows_label(server: Server) -> Small:
    """An extender that follows labelled pods alone."""
    small = Small(["a"])
    small.server = server
    followed = {"labelSelector": "hami.io/pod=true"}
    small.verbs = Verbs(
        small.cluster,
        server,  # type: ignore[arg-type]
        Timing(),
        lambda: 0,
        followed,
    )
    return small.listed()


@pytest.mark.parametrize(
    ("said", "binds"),
    [
        ({"major": "1", "minor": "36"}, True),
        ({"major": "1", "minor": "35+"}, True),
        ({"major": "1", "minor": "34+"}, False),
        ({"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "34"}, False),
        ({"major": "2", "minor": "0"}, True),
    ],
)
def test_if_labels_of_bindings_are_dropped_only_labelled_pods_are_bound(
    said: dict[str, str], binds: bool
) -> None:
    server = Versioned(**said)
    small = follows_label(server)
    for name in ("one", "two"):
        small.create(name, 1_000)
        why = small.bind(name, "a")
        assert (why == "") is binds
        assert binds or "hami.io/webhook: ignore" in why
    assert server.asked == 1
    small.create("labelled", 1_000, labels=LABEL)
    assert small.bind("labelled", "a") == ""
    assert len(server.written) == (3 if binds else 1)


@pytest.mark.parametrize("said", [{}, {"major": "one"}])
def test_while_the_version_is_not_known_no_such_pod_is_bound(said: dict[str, str]) -> None:
    small = follows_label(Versioned(**said))
    small.create("one", 1_000)
    assert "the answer has no version" in small.bind("one", "a")
    assert small.server.written == []


def test_a_watch_of_all_pods_needs_no_version() -> None:
    small = Small(["a"]).listed()

    def reading(path: str) -> None:
        raise Unavailable(path, "nobody is to ask", "do not")

    small.server.reading = reading
    small.create("one", 1_000)
    small.told("one")
    assert small.bind("one", "a") == ""


def test_unwatched_pods_are_not_waited_for() -> None:
    """Neither while all of a node are looked at, nor when one of them is asked for."""
    small = follows_label(Versioned(major="1", minor="36"))
    for name in ("theirs", "new"):
        small.create(name, 1_000, labels=LABEL)
    theirs = small.server.pods["theirs"]
    theirs["spec"]["nodeName"] = "a"
    theirs["metadata"]["annotations"] = {"hami.io/assignment": "{}"}
    selected: list[str] = []
    page = small.server.page

    def listed(parent: str, query: Any) -> Any:
        selected.append(query["labelSelector"])
        return page(parent, query)

    small.server.page = listed  # type: ignore[method-assign]
    assert "the watch has not yet reported that pod ml/theirs is bound" in small.bind("new", "a")
    assert selected == ["hami.io/pod=true"] * 2
