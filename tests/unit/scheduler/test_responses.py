"""Responses to kube-scheduler: few texts, none that makes a pod wait needlessly, never a 5xx."""

from collections.abc import Iterator

import pytest
import urllib3
from starlette.routing import Router

from hami_py.model import pods
from hami_py.scheduler.extender_api import PreemptArgs
from hami_py.scheduler.metrics import Metrics
from hami_py.scheduler.routes import verb_routes
from hami_py.serving import Listen, Server
from support.extender_calls import filtered, rated
from unit.scheduler.small import Small


def test_reasons_of_twenty_full_nodes_are_short() -> None:
    """kube-scheduler counts nodes by text, and shows all texts on the pod."""
    names = [f"n{i}" for i in range(20)]
    small = Small(names, cards=8).listed()
    for i, name in enumerate(names):
        for card in range(8):
            small.create(f"p{i}-{card}", mib=6000 + 100 * i + card)
            assert small.bind(f"p{i}-{card}", name) == ""
            small.told(f"p{i}-{card}")
    small.create("next", mib=5000)
    answer = filtered(small.verbs, small.seen("next"), names)
    assert answer.error == ""
    assert set(answer.failed_nodes) == set(names)
    assert set(answer.failed_nodes.values()) == {"too little memory free on its cards"}


def test_held_cards_are_retried() -> None:
    """No event says that a hold is over: a pod that is refused for one would wait for minutes."""
    small = Small().listed()
    small.create("first")
    rated(small.verbs, small.seen("first"), ["a"])
    small.create("next")
    answer = filtered(small.verbs, small.seen("next"), ["a"])
    assert "held for other pods for some seconds" in answer.error
    assert "1 too little memory free on its cards" in answer.error
    # Elsewhere it fits: no error.
    assert small.fits("next") == ["b"]
    # It would not fit on an empty node: it waits for good.
    small.create("large", mib=20_000)
    answer = filtered(small.verbs, small.seen("large"), ["a"])
    assert answer.error == ""
    small.now_s = 6.0
    assert small.fits("next", "a") == ["a"]


def test_bound_cards_are_not_retried() -> None:
    small = Small(nodes="a").listed()
    small.create("first")
    small.told("first")
    assert small.bind("first", "a") == ""
    small.told("first")
    small.create("next")
    answer = filtered(small.verbs, small.seen("next"), ["a"])
    assert answer.error == ""
    assert list(answer.failed_nodes) == ["a"]


def test_an_invalid_request_evicts_no_pod() -> None:
    small = Small().listed()
    small.create("p")
    limits = small.server.pods["p"]["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/gpumem"] = "-1"
    assert small.verbs.preempt(PreemptArgs(small.seen("p"), meta_victims={})).meta_victims == {}


def test_a_request_that_the_allocator_refuses_is_not_retried() -> None:
    """More containers than it takes."""
    small = Small().listed()
    small.create("p")
    containers = small.server.pods["p"]["spec"]["containers"]
    containers[:] = [{**containers[0], "name": f"c{i}"} for i in range(65)]
    answer = filtered(small.verbs, small.seen("p"), ["a", "b"])
    assert answer.error == ""
    assert set(answer.failed_and_unresolvable_nodes) == {"a", "b"}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An extender whose every verb fails; its URL."""
    small = Small().listed()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(pods, "read_request", fail)
    monkeypatch.setattr(small.verbs.binder, "bind", fail)
    server = Server(Router(verb_routes(small.verbs, Metrics(small.cluster))), Listen())
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def test_an_internal_error_is_a_response(broken: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
    asked = {"Pod": pod, "NodeNames": ["a"]}
    answers = {
        "filter": asked,
        "prioritize": asked,
        "bind": {"PodName": "p", "PodNamespace": "ml", "PodUID": "u", "Node": "a"},
        "preempt": {"Pod": pod, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v"}]}}},
    }
    said = {}
    for verb, arguments in answers.items():
        answer = urllib3.request("POST", f"{broken}/{verb}", json=arguments, timeout=30.0)
        assert answer.status == 200, answer.data
        said[verb] = answer.json()
    assert "internal error" in said["filter"]["Error"]
    assert said["filter"]["NodeNames"] == []
    assert said["prioritize"] == []
    assert "internal error" in said["bind"]["Error"]
    assert said["preempt"] == {"NodeNameToMetaVictims": {}}


class DeadWatch:
    undecoded = 3

    def silent_s(self) -> float | None:
        return 4000.0


def test_an_ended_watch_is_detected() -> None:
    text = Metrics(Small().cluster, {"pods": DeadWatch()}).exposition()
    assert 'hami_scheduler_watch_silence_seconds{kind="pods"} 4000.0' in text
    assert 'hami_scheduler_undecodable_objects_total{kind="pods"} 3.0' in text
