"""A follower, step by step: its events, and its reaction to failed lists and watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hami_py.kube.errors import Expired, Rejected, Unavailable
from hami_py.kube.followed import Followed, Undecoded
from hami_py.kube.follower import Follower
from hami_py.kube.server import Status, failure
from hami_py.model.pods import objects
from histories.fake_api import FakeApi
from histories.faults import Client, Clock, FakeStream

NODES = "/api/v1/nodes"


class Copy:
    """A sink that keeps the names, and what happened to them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.told: list[str] = []

    def replace(self, nodes: list[objects.Node], undecoded: Sequence[Undecoded] = ()) -> None:
        self.names = {node.name for node in nodes}
        self.told.append(" ".join(["all", *(f"?{item.metadata.name}" for item in undecoded)]))

    def changed(self, node: objects.Node) -> None:
        self.names.add(node.name)
        self.told.append(node.name)

    def undecoded(self, item: Undecoded) -> None:
        self.told.append(f"?{item.metadata.name}")

    def deleted(self, node: objects.Node | Undecoded) -> None:
        self.names.discard(node.metadata.name)
        self.told.append(f"-{node.metadata.name}")


class Stand:
    """A follower of a fake server's nodes."""

    def __init__(self, *names: str) -> None:
        self.api, self.clock, self.sink = FakeApi(), Clock(), Copy()
        self.make(*names)
        client: Any = Client(self.api, self.clock)
        followed = Followed(client, NODES, objects.Node, self.sink)
        self.follower = Follower(followed, page=2, clock=lambda: self.clock.now)

    def make(self, *names: str) -> None:
        for name in names:
            assert self.api.request("POST", NODES, None, {"metadata": {"name": name}})[0] == 201

    def list(self) -> None:
        for _ in self.follower.pages():
            pass

    def watch(self) -> FakeStream:
        stream: Any = self.follower.watch()
        return stream  # type: ignore[no-any-return]

    def follow(self) -> None:
        for line in self.watch().ready():
            self.follower.take(line)


def test_a_list_is_passed_on_when_it_is_complete() -> None:
    stand = Stand("a", "b", "c")
    pages = stand.follower.pages()
    next(pages)
    stand.make("d")
    next(pages)
    assert stand.sink.told == []
    assert next(pages, None) is None
    # The list is as of its first page; the watch reports later changes.
    assert (stand.sink.told, stand.sink.names) == (["all"], {"a", "b", "c"})
    stand.follow()
    assert stand.sink.names == {"a", "b", "c", "d"}


def test_a_watch_continues_where_the_last_one_ended() -> None:
    stand = Stand("a")
    stand.list()
    stand.make("b")
    stand.follow()
    assert stand.api.request("DELETE", f"{NODES}/a")[0] == 200
    stand.follow()
    stand.follow()
    assert stand.sink.told == ["all", "b", "-a"]


def test_a_bookmark_moves_the_version_alone() -> None:
    stand = Stand("a")
    stand.list()
    path = "/api/v1/namespaces/n/pods"
    assert stand.api.request("POST", path, None, {"metadata": {"name": "p"}})[0] == 201
    (line,) = stand.watch().ready(bookmark=True)
    stand.follower.take(line)
    assert stand.follower.version == str(stand.api.version)
    assert stand.sink.told == ["all"]


def test_an_expired_watch_is_listed_again() -> None:
    stand = Stand("a", "b")
    stand.list()
    assert stand.api.request("DELETE", f"{NODES}/a")[0] == 200
    stand.api.forget()
    with pytest.raises(Expired) as expired:
        stand.follow()
    stand.follower.failed(expired.value)
    assert stand.follower.version is None
    stand.list()
    assert stand.sink.names == {"b"}


def test_a_rejected_watch_is_not_repeated_unchanged() -> None:
    stand = Stand("a")
    stand.list()
    error = failure("watch", 400, Status("invalid resource version", "BadRequest", 400))
    assert isinstance(error, Rejected)
    stand.follower.failed(error)
    assert stand.follower.version is None


def test_a_lost_watch_keeps_its_version_and_pauses_longer_each_time() -> None:
    stand = Stand("a")
    stand.list()
    lost = Unavailable("watch", "no answer", "try again later")
    pauses = [stand.follower.failed(lost) for _ in range(9)]
    assert stand.follower.version is not None
    assert 0.1 <= pauses[0] <= 0.2
    assert 7.5 <= pauses[-1] <= 15


def test_watches_that_end_at_once_are_reopened_slowly() -> None:
    stand = Stand("a")
    stand.list()

    def ended_after(seconds: float) -> float:
        stream = stand.watch()
        stand.clock.advance(stand.clock.now + seconds)
        for line in stream.ready():
            stand.follower.take(line)
        return stand.follower.ended()

    pauses = [ended_after(0.0) for _ in range(9)]
    assert 0.1 <= pauses[0] <= 0.2
    assert 7.5 <= pauses[-1] <= 15
    assert ended_after(290.0) == 0
    assert 0.1 <= ended_after(0.0) <= 0.2
    stand.make("b")
    assert ended_after(0.0) == 0


STRANGE = {"annotations": 3}


def test_an_undecodable_object_is_reported() -> None:
    stand = Stand("a", "b", "c")
    stand.list()
    for path, patch in ((f"{NODES}/b", STRANGE), (f"{NODES}/a", {"labels": {"x": "y"}})):
        assert stand.api.request("PATCH", path, None, {"metadata": patch})[0] == 200
    stand.follow()
    stand.list()
    assert stand.api.request("DELETE", f"{NODES}/b")[0] == 200
    stand.follow()
    assert stand.sink.told == ["all", "?b", "a", "all ?b", "-b"]
    assert stand.follower.undecoded == 3


def test_an_object_without_a_name_is_skipped_and_an_invalid_line_is_an_error() -> None:
    stand = Stand("a")
    stand.list()
    strange = {"type": "MODIFIED", "object": {"metadata": {"name": 3, "resourceVersion": "999"}}}
    stand.follower.take(msgspec.json.encode(strange))
    assert (stand.follower.undecoded, stand.follower.version) == (1, "999")
    assert stand.sink.told == ["all"]
    with pytest.raises(Unavailable):
        stand.follower.take(b'{"type": "MODI')


def test_an_error_of_the_sink_is_fixed_by_a_new_list() -> None:
    stand = Stand("a")
    stand.list()
    stand.follower.failed(ValueError("a fault"))
    assert stand.follower.version is None
