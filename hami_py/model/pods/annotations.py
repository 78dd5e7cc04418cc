"""The annotations that hami writes, and the label. No other program may write them.

The webhook removes forged annotations from a new pod; later ``deploy/policies`` refuses changes.

| annotation | on | written by | contains |
|---|---|---|---|
| ``hami.io/assignment`` | pod | the binding | which cards its containers have (assignment.py) |
| ``hami.io/gpumem.<container>`` | pod | the binding | the memory limit, where it was a percentage |
| ``hami.io/gpumem-<i>.<container>`` | pod | the binding | the same on the i-th of several cards |
| ``hami.io/resize`` | pod | a group that the policy names | new limits (resize.py) |
| ``hami.io/cards`` | node | the node agent | its cards (nodes.py) |
| ``hami.io/pod``, a label | pod | the webhook, the binding | ``true`` if it requests a card |

An operator writes ``hami.io/cordon`` on nodes; it is among the names in names.py.

The kubelet reads the memory annotations: a percentage becomes a number only when the card is known,
so the webhook adds a variable that refers to the annotation by ``fieldRef``. Such a key has at most
63 characters behind the slash, and a container's name alone may have as many: a longer key ends in
a hash, behind a ``_``, which no container's name can contain.

The values of ``hami.io/assignment`` and ``hami.io/cards`` are JSON with a version
(``VersionedAnnotation``). During an upgrade parts of two releases run side by side. A reader
ignores fields that it does not know, so a release may add a field without which the rest still
means the same. Whoever rewrites the annotation drops that field. Every other change of the format
needs a new version, and a reader leaves what another version wrote to that version.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.wire import Assignment, Cards, Resize, encode

ASSIGNMENT = "hami.io/assignment"
CARDS = "hami.io/cards"
RESIZE = "hami.io/resize"
LABELS: Mapping[str, str] = {"hami.io/pod": "true"}
"""Every pod that requests a card has this label: the scheduler lists and watches only such pods."""

VERSION = 1

_MEMORY = "hami.io/gpumem"
_MAX_NAME = 63
_HASH_DIGITS = 16
_WRITTEN_BY_US = re.compile(r"hami\.io/(assignment|gpumem(-[0-9]+)?\..+)", re.DOTALL)


def memory_key(container: str, card: int | None = None) -> str:
    """The annotation with a container's memory limit, on one of its cards if it has several."""
    prefix = f"{_MEMORY}." if card is None else f"{_MEMORY}-{card}."
    room = _MAX_NAME - (len(prefix) - len("hami.io/"))
    if len(container) > room:
        digest = hashlib.sha256(container.encode()).hexdigest()[:_HASH_DIGITS]
        container = f"{container[: room - _HASH_DIGITS - 1]}_{digest}"
    return prefix + container


def memory_value(mib: int) -> str:
    """The value of that annotation, and of the variable: MiB, as HAMi's variables write them."""
    return f"{mib}m"


def field_path(key: str) -> str:
    """The ``fieldPath`` by which a ``fieldRef`` names an annotation."""
    return f"metadata.annotations['{key}']"


def is_written_by_us(key: str) -> bool:
    """Whether only a binding may write this annotation of a pod."""
    return _WRITTEN_BY_US.fullmatch(key) is not None


class UnknownVersion(HamiError):
    """An annotation was written by another version of hami: leave it to that version."""

    def __init__(self, field: str, version: int) -> None:
        why = f"version {version} is unknown; this is version {VERSION}"
        super().__init__(field, why, "leave it alone until all parts have the same version")
        self.args = (field, version)
        self.version = version


class _Version(msgspec.Struct, frozen=True):
    version: int


_Value = TypeVar("_Value", bound=Assignment | Cards | Resize)


class VersionedAnnotation(Generic[_Value]):
    """The codec of an annotation whose value is JSON with a version.

    Args:
        max_bytes: the longest text. Kubernetes allows 256 KiB for all annotations of an object.
        check: raises ``InvalidValue`` for values that the type allows and the annotation does not.
    """

    def __init__(
        self, field: str, kind: type[_Value], max_bytes: int, check: Callable[[_Value], None]
    ) -> None:
        self._field = field
        self._max_bytes = max_bytes
        self._check = check
        self._decode_version = Decoder(_Version, field, f"{field}.")
        self._decode = Decoder(kind, field, f"{field}.")

    def encode(self, value: _Value) -> str:
        """The annotation's text: the same bytes for the same value.

        Raises:
            InvalidValue: the text could not be read back.
            UnknownVersion: the value has another version.
        """
        self._check_version(value.version)
        self._check(value)
        text = encode(value)
        self._check_size(len(text))
        return text.decode()

    def decode(self, text: str | bytes) -> _Value:
        """The value of the annotation's text.

        Raises:
            InvalidValue: the text is malformed, too long, or refused by ``check``.
            UnknownVersion: another version wrote it.
        """
        self._check_size(len(text.encode(errors="replace") if isinstance(text, str) else text))
        self._check_version(self._decode_version(text).version)
        value = self._decode(text)
        self._check(value)
        return value

    def _check_version(self, version: int) -> None:
        if version != VERSION:
            raise UnknownVersion(self._field, version)

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            fix = f"it must have at most {self._max_bytes}"
            raise InvalidValue(self._field, f"{size} bytes", fix)
