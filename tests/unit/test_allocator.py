"""The allocator at its boundary: JSON in and out, what is refused. Its rules are tested in Rust."""

import json
import threading
from typing import Any

import pytest

from hami_py._native import Allocator
from hami_py.errors import InvalidValue, Unfit
from unit.machine import DEADLINE


def node(name: str, memory_mib: int = 1000, cards: int = 2) -> bytes:
    card = {"model": "NVIDIA A100-SXM4-80GB", "memory_mib": memory_mib}
    return json.dumps(
        {
            "name": name,
            "cards": [{**card, "uuid": f"GPU-{name}-{i}", "index": i} for i in range(cards)],
        }
    ).encode()


def request(uid: str, mib: int = 600, **more: Any) -> bytes:
    ask = {"container": "main", "kind": "app", "cards": 1, "memory": {"mib": mib}, "cores": 30}
    pod = {"uid": uid, "namespace": "team", "name": uid}
    return json.dumps({"pod": pod, "containers": [ask], **more}).encode()


@pytest.fixture
def allocator() -> Allocator:
    allocator = Allocator()
    for name in ("a", "b"):
        allocator.set_node(node(name))
    return allocator


def test_encoded_names_return_the_same_as_a_list(allocator: Allocator) -> None:
    """Also a name that JSON has to escape, and one that is escaped without need."""
    odd = 'o"d\\d'
    allocator.set_node(node(odd))
    allocator.set_node(node("small", 500))
    asked = request("p")
    allocator.reserve(request("q", 700), "a", 0)
    names = ["b", "small", odd, "none", "a"]
    feasible, failed, unresolvable = allocator.filter(asked, names, 0)
    listed = json.dumps(names).replace('"b"', r'"\u0062"').encode()
    count, whole, answer = allocator.filter_names(asked, listed, 0)
    assert whole
    assert json.loads(answer) == {
        "NodeNames": feasible,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }
    assert count == len(feasible) == 3
    scores = allocator.score(asked, feasible, 0, 0)
    rated = json.loads(allocator.prioritize_names(asked, json.dumps(feasible).encode(), 0, 0))
    assert [one["Host"] for one in rated] == feasible
    best = min(scores, key=lambda scored: (-scored[1], scored[0]))[0]
    assert [one["Host"] for one in rated if one["Score"] == 10] == [best]
    by_score = [one["Score"] for one in sorted(rated, key=lambda one: dict(scores)[one["Host"]])]
    assert by_score == sorted(by_score)
    assert json.loads(allocator.filter_names(asked, b"[]", 0)[2])["NodeNames"] == []
    for wrong in (b"null", b"{}", b"[1]", b'["a"', b""):
        with pytest.raises(InvalidValue, match="names"):
            allocator.filter_names(asked, wrong, 0)


def test_a_pod_is_filtered_scored_reserved_and_placed(allocator: Allocator) -> None:
    empty = allocator.digest()
    allocator.set_node(node("small", 500))
    feasible, failed, unresolvable = allocator.filter(request("p"), ["b", "small", "a", "c"], 0)
    assert feasible == ["b", "a"]
    assert failed == {}
    assert unresolvable == {
        "small": "never fits: its cards have less memory than requested",
        "c": "no cards are registered",
    }
    scores = allocator.score(request("p"), feasible, 0, 1000)
    assert [name for name, _ in scores] == feasible
    assert all(0 <= score <= 10_000 for _, score in scores)
    assignment = allocator.reserve(request("p"), "b", 10)
    assert json.loads(assignment) == {
        "version": 1,
        "pod": "p",
        "node": "b",
        "containers": {"main": [{"card": "GPU-b-0", "memory_mib": 600, "cores": 30}]},
    }
    assert allocator.reserve(request("p"), "b", 10**12) == assignment
    allocator.place(request("p"), assignment, True)
    (card, _) = next(node for node in json.loads(allocator.usage()) if node["name"] == "b")["cards"]
    assert (card["memory_allocated_mib"], card["cores_allocated"], card["slots_allocated"]) == (
        600,
        30,
        1,
    )
    assert [pod["uid"] for pod in card["pods"]] == ["p"]
    allocator.remove("p")
    allocator.remove_node("small")
    assert allocator.digest() == empty


def test_a_full_node_has_a_reason(allocator: Allocator) -> None:
    for uid in ("p", "q"):
        allocator.reserve(request(uid), "a", 0)
    with pytest.raises(Unfit, match="most free 400") as caught:
        allocator.reserve(request("r"), "a", 0)
    assert caught.value.node == "a"
    assert caught.value.reason == (
        "2 cards: 2 have too little memory (600 MiB requested, most free 400)"
    )
    brief = "too little memory free on its cards"
    assert allocator.filter(request("r"), ["a"], 0) == ([], {"a": brief}, {})
    explained = json.loads(allocator.explain(request("r"), "a"))
    assert not explained["fits"]
    assert [card["containers"][0]["code"] for card in explained["cards"]] == ["memory", "memory"]


def changed(old: bytes, new: bytes) -> bytes:
    return request("p").replace(old, new)


def test_holds_expire(allocator: Allocator) -> None:
    empty = allocator.digest()
    allocator.score(request("p"), ["a"], 0, 100)
    assert allocator.digest() != empty
    allocator.expire(99)
    assert allocator.digest() != empty
    allocator.expire(100)
    assert allocator.digest() == empty
    allocator.score(request("p"), ["a"], 100, 100)
    allocator.release("p")
    assert allocator.digest() == empty


@pytest.mark.parametrize(
    ("bad", "field", "value", "fix"),
    [
        (b"", "", "", "EOF"),
        (b"\xff\xff", "", "\ufffd", "expected value"),
        (b"[" * 100_000, "[0][0]", "[[[", "invalid type"),
        (b"[]", "", "[]", "invalid length"),
        (changed(b'"cards": 1', b'"cards": "1"'), ".containers[0].cards", "1", "u32"),
        (changed(b'"cards": 1', b'"cards": 0'), ".containers[0].cards", "0", "1 to 64"),
        (changed(b'"cores": 30', b'"cores": 101'), ".containers[0].cores", "101", "0 to 100"),
        (changed(b'"cores": 30', b'"cors": 30'), ".containers[0].cors", "30", "cores"),
        (changed(b'"app"', b'"apps"'), ".containers[0].kind", "apps", "sidecar"),
        (request(""), ".pod.uid", "", "a name"),
        (request("p", priority=2**31), ".priority", "2147483648", "i32"),
        (request("p", containers=[]), ".containers", "0", "1 to 64"),
        (request("p", card_request={"mode": "fast"}), ".card_request.mode", "fast", "hami-core"),
        (request("p", card_request={"order": ["x"]}), ".card_request.order[0]", "x", "binpack"),
    ],
)
def test_bad_requests_are_refused(
    allocator: Allocator, bad: bytes, field: str, value: str, fix: str
) -> None:
    assignment = allocator.reserve(request("good"), "a", 0)
    before = allocator.digest()
    for ask in (
        lambda: allocator.filter(bad, ["a"], 0),
        lambda: allocator.score(bad, ["a"], 0, 1),
        lambda: allocator.reserve(bad, "a", 0),
        lambda: allocator.explain(bad, "a"),
        lambda: allocator.victims(bad, "a", b"[]", 0),
        lambda: allocator.place(bad, assignment, True),
    ):
        with pytest.raises(InvalidValue) as caught:
            ask()
        assert caught.value.field == f"request{field}"
        assert caught.value.value.startswith(value)
        assert fix in caught.value.fix
    assert allocator.digest() == before


def test_other_bad_values_are_refused(allocator: Allocator) -> None:
    before = allocator.digest()
    assignment = allocator.reserve(request("p"), "a", 0)
    allocator.release("p")
    refused = {
        "node.cards[1].uuid": lambda: allocator.set_node(node("a").replace(b"GPU-a-1", b"GPU-a-0")),
        "node.cards[0].memory_mib": lambda: allocator.set_node(node("a", 99)),
        "quota.namespace": lambda: allocator.set_quota(b'{"namespace": "", "name": "q"}'),
        "assignment.pod": lambda: allocator.place(request("q"), assignment, True),
        "assignment.version": lambda: allocator.place(
            request("p"), assignment.replace(b'"version":1', b'"version":2'), True
        ),
        "assignment.containers.other": lambda: allocator.place(
            request("p"), assignment.replace(b"main", b"other"), True
        ),
        "candidates[0].priority": lambda: allocator.victims(
            request("p"), "a", b'[{"uid": "x", "priority": "high"}]', 0
        ),
        "snapshot.nodes": lambda: Allocator.restore(b'{"version": 2, "nodes": 0}'),
    }
    for field, call in refused.items():
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.field == field
    with pytest.raises(TypeError):
        allocator.filter("text", ["a"], 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        allocator.score(3, ["a"], 0, 0)  # type: ignore[arg-type]
    assert allocator.digest() == before


def test_threads_can_share_an_allocator(allocator: Allocator) -> None:
    """Sum <= card also where many ask at once."""
    allocator.set_node(node("wide", 100_000, cards=8))
    taken: list[bytes] = []

    def work(thread: int) -> None:
        for at in range(50):
            try:
                taken.append(allocator.reserve(request(f"{thread}-{at}", 10_000), "wide", 0))
            except Unfit:
                continue

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    # Three times 30 percent on each card.
    assert len(taken) == 24
    cards = next(node for node in json.loads(allocator.usage()) if node["name"] == "wide")["cards"]
    assert [card["cores_allocated"] for card in cards] == [90] * 8
