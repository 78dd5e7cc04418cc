"""Annotations that nobody reads, and look as if somebody should.

Such a one cannot be refused: others may use the same prefix. But a wish with a slip of the hand in
its name places the pod where its author did not want it, and nothing else would say so.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator

_MOST = 64
"""Annotations of a pod that are looked at: comparing takes time, and a pod may have thousands."""

_LONGEST = 317
"""Characters of a key, by Kubernetes: 253 before the slash and 63 after it."""

_ALIKE = 0.8
"""How much of two names is the same, as difflib counts it: ``use-type`` and ``use-gputype`` are."""


def misspelled(keys: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Keys under the prefixes of the known ones that are not known, each with the nearest one.

    Capital letters and another of the prefixes are slips as well. What resembles nothing is
    somebody else's.
    """
    names = {_parts(key)[1]: key for key in sorted(known)}
    prefixes = {_parts(key)[0] for key in names.values()}
    short = (key for key in keys if len(key) <= _LONGEST)
    ours = (key for key in short if _parts(key)[0] in prefixes and key not in names.values())
    for key in itertools.islice(ours, _MOST):
        prefix, name = _parts(key)
        beside = [each for each, other in names.items() if _parts(other)[0] == prefix]
        close = [name] if name in names else difflib.get_close_matches(name, beside, 1, _ALIKE)
        for each in close:
            yield key, names[each]


def _parts(key: str) -> tuple[str, str]:
    prefix, _, name = key.lower().partition("/")
    return prefix, name
