"""The annotations that we write, all of them, and the label. Nobody else may.

On a new pod forged annotations are removed; later ``deploy/policy.yaml`` keeps all as it is.

| annotation | on | written by | what it says |
|---|---|---|---|
| ``hami.io/assignment`` | pod | the binding | which cards its containers have (assignment.py) |
| ``hami.io/gpumem.<container>`` | pod | the binding | the memory limit, where it was a percentage |
| ``hami.io/gpumem-<i>.<container>`` | pod | the binding | the same on the i-th of several cards |
| ``hami.io/cards`` | node | the node agent | its cards (nodes.py) |
| ``hami.io/pod``, a label | pod | the webhook, the binding | it asks for a card |

An operator writes ``hami.io/cordon`` on nodes; it is among the names in names.py.

The memory annotations are read by the kubelet: the webhook gives the container a variable that is a
``fieldRef`` on one, because a percentage becomes a number only when the card is known. Such a key
has at most 63 characters behind the slash, and a container's name alone may have as many: a longer
one ends in a hash, behind a ``_``, which no container's name can contain.
"""

import hashlib
import re
from collections.abc import Mapping

ASSIGNMENT = "hami.io/assignment"
CARDS = "hami.io/cards"
LABELS: Mapping[str, str] = {"hami.io/pod": "true"}
"""Every pod that asks for a card has them: the scheduler lists and watches these pods alone."""

_MEMORY = "hami.io/gpumem"
_LONGEST = 63
_HASH = 16
_WRITTEN = re.compile(r"hami\.io/(assignment|gpumem(-[0-9]+)?\..+)", re.DOTALL)


def memory_key(container: str, card: int | None = None) -> str:
    """The annotation with a container's memory limit.

    Args:
        container: its name.
        card: which of its cards, from 0; None = it has one.
    """
    prefix = f"{_MEMORY}." if card is None else f"{_MEMORY}-{card}."
    room = _LONGEST - (len(prefix) - len("hami.io/"))
    if len(container) > room:
        digest = hashlib.sha256(container.encode()).hexdigest()[:_HASH]
        container = f"{container[: room - _HASH - 1]}_{digest}"
    return prefix + container


def memory_value(mib: int) -> str:
    """Its value, which is the variable's: MiB, as HAMi's variables write them."""
    return f"{mib}m"


def field_path(key: str) -> str:
    """What a ``fieldRef`` calls an annotation."""
    return f"metadata.annotations['{key}']"


def is_written_by_us(key: str) -> bool:
    """On a pod: only a binding may have written it."""
    return _WRITTEN.fullmatch(key) is not None
