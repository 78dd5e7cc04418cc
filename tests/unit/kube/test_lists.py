"""An invalid list is not treated as an empty one, and all pages have one deadline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from cluster import recordings
from hami_py.kube import ApiServer, Followed, Undecoded, list_objects
from hami_py.kube.errors import Unavailable
from hami_py.kube.follower import Follower
from hami_py.model.pods import objects

NODES = "/api/v1/nodes"
META = {"resourceVersion": "7"}
NODE = {"metadata": {"name": "n"}}

NO_LISTS: dict[str, object] = {
    "a status": {"kind": "Status", "metadata": META, "items": [], "status": "Failure", "code": 503},
    "another object": {"kind": "Node", "metadata": {"name": "n", **META}, "items": []},
    "no kind": {"metadata": META, "items": []},
    "no version": {"kind": "NodeList", "metadata": {}, "items": []},
    "an empty version": {"kind": "NodeList", "metadata": {"resourceVersion": ""}, "items": []},
    "no metadata": {"kind": "NodeList", "items": []},
    "no items": {"kind": "NodeList", "metadata": META},
    "null": {"kind": "NodeList", "metadata": META, "items": None},
    "an empty mapping": {},
    "an array": [],
    "a page of a proxy": "<html>",
}


class Server:
    """Says what is in ``answers``, one after the other; each takes ``takes_s``."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.deadlines: list[float] = []

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        self.deadlines.append(deadline_s)
        return json.dumps(self.answers.pop(0)).encode()


class Names:
    def __init__(self) -> None:
        self.names: list[str] | None = None

    def replace(self, nodes: list[objects.Node], undecoded: Sequence[Undecoded] = ()) -> None:
        self.names = [node.name for node in nodes]


def listed(*items: object, rest: str = "") -> dict[str, Any]:
    return {"kind": "NodeList", "metadata": {**META, "continue": rest}, "items": list(items)}


def made(*answers: object) -> tuple[Follower[objects.Node], Names]:
    server, sink = cast(Any, Server(*answers)), Names()
    return Follower(Followed(server, NODES, objects.Node, cast(Any, sink))), sink


@pytest.mark.parametrize("what", NO_LISTS)
def test_an_invalid_list_changes_nothing_and_is_retried(what: str) -> None:
    """Each was treated as the whole list: no pod existed, and all cards looked free."""
    follower, sink = made(listed(NODE), NO_LISTS[what], listed(NODE, NODE))
    list(follower.pages())
    follower.version = None
    with pytest.raises(Unavailable) as error:
        list(follower.pages())
    assert follower.failed(error.value) > 0
    assert (follower.version, sink.names) == (None, ["n"])
    list(follower.pages())
    assert (follower.version, sink.names) == ("7", ["n", "n"])


@pytest.mark.parametrize("what", NO_LISTS)
def test_an_invalid_later_page_is_not_the_end(what: str) -> None:
    follower, sink = made(listed(NODE, rest="more"), NO_LISTS[what])
    with pytest.raises(Unavailable):
        list(follower.pages())
    assert (follower.version, sink.names) == (None, None)


@pytest.mark.parametrize("what", NO_LISTS)
def test_list_objects_raises_for_an_invalid_list(what: str) -> None:
    """A new leader assumes that pods that are not in the list do not exist."""
    with pytest.raises(Unavailable):
        list_objects(cast(ApiServer, Server(NO_LISTS[what])), NODES, objects.Node)


@pytest.mark.parametrize("name", ["list-empty", "list-custom-empty", "list-page"])
def test_real_lists_are_valid(name: str) -> None:
    answer = recordings.read(name)
    answer["metadata"].pop("continue", None)
    there, undecoded = list_objects(cast(ApiServer, Server(answer)), NODES, objects.Node)
    assert ([node.name for node in there], undecoded) == (
        [item["metadata"]["name"] for item in answer["items"]],
        [],
    )


def test_all_pages_together_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*(listed(NODE, rest=rest) for rest in ("a", "b", "")))
    now_s = 100.0

    def clock() -> float:
        nonlocal now_s
        now_s += 2.0
        return now_s

    monkeypatch.setattr("hami_py.kube.lists.time.monotonic", clock)
    there, _ = list_objects(cast(ApiServer, server), NODES, objects.Node, deadline_s=10.0)
    assert len(there) == 3
    assert server.deadlines == [8.0, 6.0, 4.0]
