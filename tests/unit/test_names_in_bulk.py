"""Thousands of names are read in place, and looked up once. Here they are read and found slowly."""

import contextlib
import json
import random
from typing import Any

import pytest

from hami_py._native import Allocator
from hami_py.errors import InvalidValue, Unfit
from hami_py.model.pods.decoding import Decoder
from hami_py.scheduler.extender_api import ExtenderArgs, filter_args
from unit.test_allocator import node, request

#: Letters of names, and what may stand in the way of who reads them in a hurry.
LETTERS = 'ab-.07"\\,[] {}é\n'


def name(prng: random.Random) -> str:
    letters = LETTERS if prng.random() < 0.1 else LETTERS[:6]
    return "".join(prng.choices(letters, k=prng.choice((0, 1, 1, 3, 3, 5, 7, 45))))


def written(prng: random.Random, names: list[str]) -> bytes:
    if prng.random() < 0.7:
        return json.dumps(names, separators=(",", ":"), ensure_ascii=False).encode()
    return json.dumps(names, indent=prng.choice((None, 1))).encode()


def damaged(prng: random.Random, text: bytes) -> bytes:
    at = prng.randrange(len(text))
    return text[:at] + prng.choice((b"", b'"', b",", b"1", b"\\", b'","')) + text[at + 1 :]


def by_python(text: bytes) -> list[str] | None:
    try:
        names = json.loads(text)
    except ValueError:
        return None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        return None
    return names


@pytest.mark.parametrize("seed", range(10))
def test_names_are_parsed_as_by_python(seed: int) -> None:
    """However they are written, and also where the text is damaged."""
    prng = random.Random(seed)  # noqa: S311
    allocator, asked, refused = Allocator(), request("p"), 0
    for _ in range(300):
        text = written(prng, [name(prng) for _ in range(prng.randrange(8))])
        if prng.random() < 0.5:
            text = damaged(prng, text)
        names = by_python(text)
        if names is None:
            refused += 1
            with pytest.raises(InvalidValue, match="names"):
                allocator.filter_names(asked, text, 0)
            continue
        for each in names:
            if each and prng.random() < 0.3:
                allocator.set_node(node(each))
        feasible, failed, never = allocator.filter(asked, names, 0)
        assert not failed
        count, _, answer = allocator.filter_names(asked, text, 0)
        told = json.loads(answer)
        assert (count, told["NodeNames"]) == (len(feasible), feasible)
        assert set(told["FailedAndUnresolvableNodes"]) == set(never)
        rated = json.loads(allocator.prioritize_names(asked, text, 0, 0))
        assert [each["Host"] for each in rated] == names
    assert refused > 20


@pytest.mark.parametrize("seed", range(10))
def test_priorities_do_not_depend_on_earlier_filters(seed: int) -> None:
    """The answer of the filter is sent back; nodes may have been added and removed meanwhile."""
    prng = random.Random(seed)  # noqa: S311
    allocator = Allocator()
    names = [f"n{at}" for at in range(12)]
    for each in names:
        allocator.set_node(node(each, prng.choice((500, 700, 1000))))
    for at in range(200):
        asked = request(f"p{at}", prng.choice((100, 600)))
        prng.shuffle(names)
        listed = json.dumps(names, separators=(",", ":")).encode()
        answer = json.loads(allocator.filter_names(asked, listed, at)[2])
        back = json.dumps(answer["NodeNames"], separators=(",", ":")).encode()
        for _ in range(prng.randrange(3)):
            changed = prng.choice(names)
            if prng.random() < 0.5:
                allocator.remove_node(changed)
            else:
                allocator.set_node(node(changed, prng.choice((500, 700, 1000))))
        fresh = Allocator.restore(allocator.snapshot())
        told = allocator.prioritize_names(asked, back, at, 0)
        assert told == fresh.prioritize_names(asked, back, at, 0)
        if told != b"[]" and prng.random() < 0.2:
            best = max(json.loads(told), key=lambda each: int(each["Score"]))["Host"]
            with contextlib.suppress(Unfit):
                allocator.reserve(request(f"q{at}", 100), best, at)


DECODE = Decoder(ExtenderArgs, "arguments")
POD = {
    "metadata": {
        "name": "p",
        "namespace": "d",
        "uid": "u",
        "annotations": {"a": '"NodeNames":["x"]}'},
    },
    "spec": {"containers": [{"name": "c"}]},
}


def go(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "body",
    [
        go({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}),
        go({"Pod": POD, "Nodes": None, "NodeNames": []}),
        go({"Pod": POD, "Nodes": None, "NodeNames": None}),
        go({"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None}),
        go({"Pod": POD}),
        go({"NodeNames": ["a"], "Nodes": None, "Pod": POD}),
        go({"NodeNames": ["a"], "Pod": POD, "More": []}).replace(b'"More":[]', b'"More":{"a":[]}'),
        go({"Pod": {**POD, "NodeNames": ["x"]}, "NodeNames": ["a"]}),
        go({"Pod": {**POD, "NodeNames": ["x"]}, "Nodes": None}),
        json.dumps({"Pod": POD, "NodeNames": ["a", "b"]}, indent=1).encode(),
        go({"Pod": POD, "NodeNames": ["a"]}) + b"\n",
    ],
)
def test_arguments_are_parsed_as_by_a_full_parser(body: bytes) -> None:
    whole, read = DECODE(body), filter_args(DECODE)
    # The second time the pod is known.
    for ours in (read(body), read(body)):
        assert ours.pod == whole.pod
        assert json.loads(ours.names) == json.loads(whole.names())


def test_a_pod_is_parsed_once_and_another_pod_separately() -> None:
    read = filter_args(DECODE)
    arguments = {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}
    first = read(go(arguments))
    again = read(go({**arguments, "NodeNames": ["b"]}))
    assert (again.pod is first.pod, again.names) == (True, b'["b"]')
    other = read(go({**arguments, "Pod": {**POD, "metadata": {**POD["metadata"], "uid": "v"}}}))
    assert (other.pod.uid, first.pod.uid) == ("v", "u")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'"NodeNames":[]}',
        b'{"NodeNames":["a"]}',
        go({"Pod": 3, "Nodes": None, "NodeNames": ["a"]}),
        go({"Pod": POD, "Nodes": [3], "NodeNames": ["a"]}),
        go({"Pod": POD, "NodeNames": ["a"]})[:-1],
        go({"Pod": POD, "NodeNames": ["a"]})[1:],
        b'{"Pod":' + go(POD) + b',,"NodeNames":["a"]}',
    ],
)
def test_invalid_arguments_are_refused_as_by_a_full_parser(body: bytes) -> None:
    with pytest.raises(InvalidValue) as whole:
        DECODE(body)
    with pytest.raises(InvalidValue) as ours:
        filter_args(DECODE)(body)
    assert str(ours.value) == str(whole.value)
