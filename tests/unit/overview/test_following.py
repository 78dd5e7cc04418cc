"""A reader that follows the cluster: what it asks, and what it judges again."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from hami_py.kube import ApiServer
from hami_py.kube.errors import KubeError
from hami_py.model.pods import PodSettings
from hami_py.overview import Reader, Scope, reading
from hami_py.overview.build import Judged, Objects, judge
from support.launcher import until
from unit.overview.fake_cluster import GIB, FakeCluster, figures


class Changing(FakeCluster):
    """Its watch of pods reports what a test puts into ``events``."""

    def __init__(self) -> None:
        super().__init__()
        self.events: queue.Queue[bytes | None] = queue.Queue()
        #: The versions from which each path was watched.
        self.watched: dict[str, list[str]] = {}
        self.is_away = False
        self.watches: list[Watch] = []

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> Watch:
        if self.is_away:
            raise KubeError(f"watch {path}", "connection refused", "start the API server")
        self.watched.setdefault(path, []).append(query["resourceVersion"])
        self.watches.append(Watch(self.events if path == "/api/v1/pods" else queue.Queue()))
        return self.watches[-1]


class Watch:
    def __init__(self, events: queue.Queue[bytes | None]) -> None:
        self.events = events

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.events.get, None)

    def stop(self) -> None:
        self.events.put(None)


def test_pods_are_judged_again_when_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading without changes asks the node agents and judges nothing."""
    cluster = Changing()
    cluster.add_node("gpu-a")
    cluster.add_pod("waits", mib=50_000)
    cluster.figures = {"gpu-a": figures("gpu-a", used=GIB)}
    judged: list[int] = []

    def counted(found: Objects, settings: PodSettings, namespace: str | None) -> Judged:
        judged.append(len(found.pods.objects))
        return judge(found, settings, namespace)

    monkeypatch.setattr(reading, "judge", counted)
    reader = Reader(cast(ApiServer, cluster), Scope(own="team"))
    with reader.following():
        reader.read()
        before = len(judged)
        cluster.figures = {"gpu-a": figures("gpu-a", used=2 * GIB)}
        seen = reader.read()
        assert seen.nodes[0].cards[0].memory_used == 2 * GIB
        assert len(judged) == before
        (pod,) = cluster.lists["/api/v1/pods"]
        written = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "2"}}
        moved = {**written, "spec": {**pod["spec"], "schedulingGates": [{"name": "held"}]}}
        for event in (written, moved):
            cluster.events.put(json.dumps({"type": "MODIFIED", "object": event}).encode())
        until(lambda: "held" in str(reader.read().waiting), "the pod is not held")
        # Of two events, one has changed nothing but the version.
        assert len(judged) == before + 1
        # One list of each kind, and one watch that goes on from its version.
        until(lambda: len(cluster.watched) == len(cluster.lists), "a list is not watched")
    assert sorted(path for path in cluster.asked if "/proxy/" not in path) == sorted(cluster.lists)
    assert cluster.watched == {path: ["1"] for path in cluster.lists}


def test_an_api_server_that_is_away_is_named_until_it_is_back() -> None:
    """The node agents still answer, so figures are new and objects are old."""
    cluster = Changing()
    cluster.add_node("gpu-a")
    reader = Reader(cast(ApiServer, cluster), Scope(own="team"))
    with reader.following():
        until(lambda: len(cluster.watches) >= len(cluster.lists), "a list is not watched")
        assert not reader.read().notes
        cluster.is_away = True
        for watch in cluster.watches:
            watch.stop()
        until(lambda: bool(reader.read().notes), "there is no note")
        (note,) = reader.read().notes
        assert "changes are shown late" in note and "connection refused" in note
        cluster.is_away = False
        until(lambda: not reader.read().notes, "the note stays")
