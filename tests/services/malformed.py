"""Malformed requests, made from real ones: the same for the same seed.

None is a recorded one, unchanged: where a change leaves the same JSON, another is made.
"""

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "cluster" / "recordings"

#: Which recorded request goes to which of our routes.
WEBHOOK = {
    "admission-review-create": ("/mutate", "/validate"),
    "admission-review-binding": ("/mutate",),
}
SCHEDULER = {
    "extender-filter-names": ("/filter", "/prioritize"),
    "extender-filter-nodes": ("/filter", "/prioritize"),
    "extender-bind": ("/bind",),
    "extender-preempt-names": ("/preempt",),
    "extender-preempt-nodes": ("/preempt",),
}

#: Bytes of large ones, at least. The webhook reads the first whole, and turns the others away.
LARGE, LARGER = 3 << 20, 5 << 20
LARGE_EVERY = 250

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


def recorded(name: str) -> Any:
    """A recorded request of Kubernetes."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def as_recorded(routes: Mapping[str, tuple[str, ...]]) -> list[tuple[str, bytes]]:
    """Paths and bodies of what Kubernetes itself sends."""
    return [
        (path, json.dumps(recorded(name)).encode())
        for name, paths in sorted(routes.items())
        for path in paths
    ]


def requests(
    routes: Mapping[str, tuple[str, ...]], seed: int, count: int
) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies, so many. One in ``LARGE_EVERY`` has 3 MiB or more."""
    prng = random.Random(seed)  # noqa: S311
    names = sorted(routes)
    whole = {name: recorded(name) for name in names}
    made = 0
    while made < count:
        name = prng.choice(names)
        path = prng.choice(routes[name])
        change = prng.choice(_MUTATIONS) if (made + 1) % LARGE_EVERY else _large
        body = change(prng, copy.deepcopy(whole[name]))
        if _is(body, whole[name]):
            continue
        made += 1
        yield path, body


def _is(body: bytes, whole: Any) -> bool:
    """Whether it says the same."""
    if len(body) >= LARGE:
        return False
    try:
        return bool(json.loads(body) == whole)
    except (ValueError, RecursionError):
        return False


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
    return json.dumps(body).encode("utf-8", "surrogatepass")


def _dropped(prng: random.Random, body: Any) -> bytes:
    for _ in range(prng.randint(1, 3)):
        places = [(holder, key) for holder, key in _places(body) if isinstance(holder, dict)]
        if places:
            holder, key = prng.choice(places)
            holder.pop(key, None)
    return json.dumps(body).encode()


def _nameless(_: random.Random, body: Any) -> bytes:
    for _, inner in [("", body), *body.items()]:
        for key in ("uid", "PodUID"):
            if isinstance(inner, dict):
                inner.pop(key, None)
    return json.dumps(body).encode()


def _miscoded(prng: random.Random, body: Any) -> bytes:
    """Bytes inside a text that are no UTF-8: a lone one, a surrogate, one that is cut, too long."""
    bad = prng.choice((b"\xff", b"\xed\xa0\x80", b"\xe2\x82", b"\xc0\xaf"))
    whole = json.dumps(body).encode()
    start = prng.choice([place.end() for place in re.finditer(rb': "', whole)])
    return whole[:start] + bad + whole[start:]


def _deep(prng: random.Random, body: Any) -> bytes:
    levels = prng.choice((100, 1_000, 100_000))
    opening, closing = prng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = opening * levels + b"1" + closing * levels
    whole = json.dumps(body).encode()
    return prng.choice((inner, whole.replace(b'"spec"', b'"spec": ' + inner + b', "x"', 1)))


def _large(prng: random.Random, body: Any) -> bytes:
    size = prng.choice((LARGE, LARGE, LARGER))
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
    _truncated,
    _flipped,
    _retyped,
    _retyped,
    _dropped,
    _nameless,
    _miscoded,
    _deep,
    _noise,
)
