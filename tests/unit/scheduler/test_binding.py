"""Failed bindings, and the pods that have the cards then."""

import threading

import pytest

from hami_py.kube.errors import Forbidden
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.extender_api import BindArgs
from unit.scheduler.small import Object, Small, away


def test_a_written_binding_without_an_answer_is_kept(small: Small) -> None:
    small.create("p")
    small.server.after = away
    assert "no answer" in small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    small.create("next")
    assert small.fits("next", "a") == []
    # The watch tells, late and twice.
    small.told("p")
    small.told("p")
    small.verbs.binder.check_unreported()
    assert small.fits("next", "a") == []
    assert small.bind("p", "a") == ""
    small.cluster.pods.deleted(small.seen("p"))
    assert small.fits("next", "a") == ["a"]


def test_it_is_kept_while_the_api_server_is_unreachable(small: Small) -> None:
    small.create("p")
    small.told("p")
    small.server.before = away
    small.server.reading = away
    small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    small.create("next")
    assert small.fits("next", "a") == []
    small.server.reading = lambda _: None
    small.now_s = 62.0
    small.verbs.binder.check_unreported()
    assert small.fits("next", "a") == ["a"]


def test_a_pod_with_a_binding_in_doubt_is_bound_nowhere_else(small: Small) -> None:
    small.create("p")
    small.server.before = away
    small.bind("p", "a")
    assert small.fits("p") == ["a"]
    assert "it is being bound to node a" in small.bind("p", "b")
    small.server.before = lambda _: None
    assert small.bind("p", "a") == ""
    assert [body["target"]["name"] for body in small.server.written] == ["a"]
    small.create("next")
    assert small.fits("next") == ["b"]


def test_a_bound_pod_is_not_kept_as_waiting(small: Small) -> None:
    """The watch may be away for long."""
    small.create("p")
    small.told("p")
    assert small.cluster.waiting.find("uid-p") is not None
    assert small.bind("p", "a") == ""
    assert small.cluster.waiting.find("uid-p") is None


def test_a_binding_in_progress_is_not_read_again(small: Small) -> None:
    """It is not written yet, which tells nothing of what becomes of it."""
    small.create("p")
    small.now_s = 31.0

    def checks(_: Object) -> None:
        small.verbs.binder.check_unreported()

    small.server.before = checks
    assert small.bind("p", "a") == ""
    small.create("next")
    assert small.fits("next", "a") == []


def test_a_watched_binding_is_not_read_again(small: Small) -> None:
    small.create("p")
    assert small.bind("p", "a") == ""
    small.told("p")
    read: list[str] = []
    small.server.reading = read.append
    for _ in range(2):
        small.now_s += 31.0
        small.verbs.binder.check_unreported()
    assert read == []


def test_a_binding_in_doubt_is_not_read_each_second(small: Small) -> None:
    """It is there, and the watch is away."""
    small.create("p")
    small.told("p")
    assert small.bind("p", "a") == ""
    read: list[str] = []
    small.server.reading = read.append
    for at in range(92):
        small.now_s = float(at)
        small.verbs.binder.check_unreported()
    assert read == ["p"] * 3


@pytest.mark.parametrize("how", ["it is over", "another of that name"])
def test_cards_of_a_lost_binding_are_released(small: Small, how: str) -> None:
    """The watch has told of none of it."""
    small.create("p")
    small.server.after = away
    assert "no answer" in small.bind("p", "a")
    if how == "it is over":
        small.server.pods["p"]["status"] = {"phase": "Succeeded"}
    else:
        small.create("p", uid="uid-other")
        small.bound_elsewhere("p", "b", wire.CardAllocation("GPU-b-0", 10_000, 0))
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    small.create("next")
    assert small.fits("next", "a") == ["a"]


def test_a_pod_of_the_same_name_is_another(small: Small) -> None:
    """There was no event; it was created when the first was to be bound."""
    small.create("p", uid="uid-other")
    assert "it was replaced by another pod of the same name" in small.bind("p", "a")
    small.create("next")
    assert small.fits("next", "a") == ["a"]


@pytest.mark.parametrize("node", ["a", "b"])
def test_two_binds_of_one_pod_at_once_take_the_cards_of_one(small: Small, node: str) -> None:
    small.create("p")
    sent, go_on = threading.Event(), threading.Event()

    def slow(_: Object) -> None:
        sent.set()
        assert go_on.wait(60)

    small.server.before = slow
    said: list[str] = []
    first = threading.Thread(target=lambda: said.append(small.bind("p", "a")))
    first.start()
    try:
        assert sent.wait(60)
        assert "it is being bound to node a" in small.bind("p", node)
        small.create("next")
        assert small.fits("next") == ["b"]
    finally:
        go_on.set()
        first.join(60)
    assert said == [""]
    assert small.fits("next") == ["b"]


def test_cards_of_another_replicas_binding_stay_until_its_event(small: Small) -> None:
    small.create("p")
    small.bound_elsewhere("p", "b", wire.CardAllocation("GPU-b-0", 10_000, 0))
    assert "409" in small.bind("p", "a")
    small.create("next")
    assert small.fits("next", "a") == []
    small.told("p")
    assert small.fits("next") == ["a"]


@pytest.mark.parametrize(
    "how", ["bound without cards", "another of that name", "gone", "forbidden"]
)
def test_a_rejected_binding_is_released_at_once(small: Small, how: str) -> None:
    small.create("p")
    small.told("p")

    def happens(_: Object) -> None:
        if how == "bound without cards":
            small.server.pods["p"]["spec"]["nodeName"] = "b"
        elif how == "another of that name":
            small.server.pods["p"]["metadata"]["uid"] = "uid-other"
        elif how == "gone":
            del small.server.pods["p"]
        else:
            raise Forbidden("POST binding", "403: no", "give it the right", 403)

    small.server.before = happens
    assert small.bind("p", "a") != ""
    small.server.before = lambda _: None
    small.create("next")
    assert small.fits("next", "a") == ["a"]


def test_a_binding_is_one_write(small: Small) -> None:
    small.create("p", 3_000)
    assert small.bind("p", "a") == ""
    (written,) = small.server.written
    text = written["metadata"]["annotations"].pop(pods.annotations.ASSIGNMENT)
    assert pods.assignment_of(small.seen("p")) == pods.decode_assignment(text)
    assert written == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "uid": "uid-p",
            "labels": {"hami.io/pod": "true"},
            "annotations": {},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "a"},
    }


@pytest.mark.parametrize(
    ("namespace", "name", "node"),
    [
        ("..", "../../../api/v1/secrets", "a"),
        ("ml", "..", "a"),
        ("ml", "p/log", "a"),
        ("ml/secrets", "p", "a"),
        ("ml", "p?watch=1", "a"),
        ("ml", "p", "a,spec.nodeName!=a"),
        ("ml", "\ud800", "a"),
        ("ml", "", "a"),
    ],
)
def test_an_invalid_object_name_is_not_requested(
    small: Small, namespace: str, name: str, node: str
) -> None:
    """With our account any path of the API could be read; the server resolves the dots."""
    asked: list[str] = []

    def get(path: str, query: object = None, *, deadline_s: float) -> bytes:
        asked.append(path)
        return b"{}"

    small.server.get = get  # type: ignore[method-assign]
    said = small.verbs.bind(BindArgs(name, namespace, "uid-p", node)).error
    assert "is refused: write a name as kubectl shows it" in said
    assert asked == []
    assert small.server.written == []
