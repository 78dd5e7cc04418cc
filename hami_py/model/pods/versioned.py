"""Annotations of ours whose value is JSON with a version.

Parts of two versions live side by side while a cluster is upgraded: what another version wrote is
left to that version, whatever else is in it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.wire import Assignment, Cards, encode

VERSION = 1

_Value = TypeVar("_Value", bound=Assignment | Cards)


class UnknownVersion(HamiError):
    """It was written by another version of us: wait for that one, do not guess.

    Attributes:
        version: the one it says.
    """

    def __init__(self, field: str, version: int) -> None:
        why = f"version {version} is not known here, only {VERSION}"
        super().__init__(field, why, "leave it alone until all parts have the same version")
        self.args = (field, version)
        self.version = version


class _Version(msgspec.Struct, frozen=True):
    version: int


class VersionedAnnotation(Generic[_Value]):
    """The text of an annotation, and what it says.

    Args:
        field: the annotation's path.
        kind: the type of what it says.
        max_bytes: the longest text. Kubernetes allows 256 KiB for all annotations of an object.
        check: refuses what the type cannot.
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
            InvalidValue: it is nothing that could be read back.
            UnknownVersion: it is one of another version.
        """
        self._check_version(value.version)
        self._check(value)
        text = encode(value)
        self._check_size(len(text))
        return text.decode()

    def decode(self, text: str | bytes) -> _Value:
        """What the annotation's text says.

        Raises:
            InvalidValue: it is not understood.
            UnknownVersion: it is one of another version.
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
