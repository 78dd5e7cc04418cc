"""What the API server takes as annotations, for the one write that it does not check: a Binding.

A Binding's annotations are merged into the pod's as they are. Were they too large, or a key none,
every later write of the pod would be refused (422), the kubelet's status too.

https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hami_py.errors import InvalidValue

__all__ = ["MOST_BYTES", "annotation_bytes", "check_annotations"]

MOST_BYTES = 256 << 10
"""Keys and values of all annotations of one object together."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """How many of the bytes that an object may have these take."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def check_annotations(present: int, written: Mapping[str, str]) -> None:
    """Whether these may be written beside others.

    Args:
        present: bytes of those that are there.
        written: those that come; one that replaces another counts as one more.

    Raises:
        InvalidValue: a key is none, or it is too much together.
    """
    for key in written:
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix.lower())):
            fix = "write a name of 1 to 63 of A-Z, a-z, 0-9, -, _ and ., if need be domain/name"
            raise InvalidValue("metadata.annotations", key, fix)
    more = annotation_bytes(written)
    if present + more > MOST_BYTES:
        room = max(0, MOST_BYTES - more)
        fix = (
            f"Kubernetes allows {MOST_BYTES} bytes and the binding writes up to {more}: "
            f"leave the pod at most {room}"
        )
        raise InvalidValue("metadata.annotations", f"{present} bytes", fix)
