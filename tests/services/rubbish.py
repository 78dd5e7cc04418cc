"""Malformed requests, made from real ones: the same for the same seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "cluster" / "recordings"

#: Which recorded request goes to which of our routes.
ROUTES = {
    "admission-review-create": ("/mutate", "/validate"),
    "admission-review-binding": ("/mutate",),
    "extender-filter-names": ("/filter", "/prioritize"),
    "extender-filter-nodes": ("/filter", "/prioritize"),
    "extender-bind": ("/bind",),
    "extender-preempt-names": ("/preempt",),
    "extender-preempt-nodes": ("/preempt",),
}

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1 << 70,
    1e308,
    "",
    "x" * 300,
    "\ud800",
    "\x00",
    "💥",
    [],
    {},
    [None],
    {"": None},
    [[[[]]]],
)


def requests(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies. About one in a thousand is large."""
    prng = random.Random(seed)  # noqa: S311
    recorded = {
        name: json.loads((RECORDINGS / f"{name}.json").read_text()) for name in sorted(ROUTES)
    }
    for _ in range(count):
        name = prng.choice(sorted(ROUTES))
        path = prng.choice(ROUTES[name])
        yield path, prng.choice(_MUTATIONS)(prng, copy.deepcopy(recorded[name]))


def _as_recorded(_: random.Random, body: Any) -> bytes:
    return json.dumps(body).encode()


def _truncated(prng: random.Random, body: Any) -> bytes:
    whole = json.dumps(body).encode()
    return whole[: prng.randrange(len(whole))]


def _flipped(prng: random.Random, body: Any) -> bytes:
    whole = bytearray(json.dumps(body).encode())
    for _ in range(prng.randint(1, 8)):
        whole[prng.randrange(len(whole))] = prng.randrange(256)
    return bytes(whole)


def _retyped(prng: random.Random, body: Any) -> bytes:
    for _ in range(prng.randint(1, 4)):
        holder, key = prng.choice(list(_places(body)))
        holder[key] = copy.deepcopy(prng.choice(VALUES))
        if not list(_places(body)):
            break
    return json.dumps(body).encode("utf-8", "surrogatepass")


def _dropped(prng: random.Random, body: Any) -> bytes:
    for _ in range(prng.randint(1, 3)):
        places = [(holder, key) for holder, key in _places(body) if isinstance(holder, dict)]
        if places:
            holder, key = prng.choice(places)
            holder.pop(key, None)
    return json.dumps(body).encode()


def _deep(prng: random.Random, body: Any) -> bytes:
    levels = prng.choice((100, 1_000, 100_000))
    opening, closing = prng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = opening * levels + b"1" + closing * levels
    whole = json.dumps(body).encode()
    return prng.choice((inner, whole.replace(b'"spec"', b'"spec": ' + inner + b', "x"', 1)))


def _large(prng: random.Random, body: Any) -> bytes:
    if prng.random() > 0.02:
        return _retyped(prng, body)
    size = prng.choice((3 << 20, 6 << 20))
    return json.dumps(body).encode()[:-1] + b', "more": "' + b"x" * size + b'"}'


def _noise(prng: random.Random, _: Any) -> bytes:
    return prng.randbytes(prng.randrange(2_000))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield value, place
            yield from _places(inner)


_MUTATIONS: tuple[Callable[[random.Random, Any], bytes], ...] = (
    _as_recorded,
    _truncated,
    _flipped,
    _retyped,
    _retyped,
    _dropped,
    _deep,
    _large,
    _noise,
)
