"""Decoding JSON into types, with errors that name field, value and fix.

msgspec reports a wrong value in one line of text; ``Decoder`` turns it into an ``InvalidValue``.
Bytes that are not JSON, not UTF-8, truncated or nested too deeply raise one as well.
"""

import re
from typing import Generic, TypeVar

import msgspec

from hami_py.errors import InvalidValue

_LOCATION = re.compile(r"(?P<problem>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")

Decoded = TypeVar("Decoded")


class ApiObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The base of Kubernetes' types.

    They contain no cycles, so the garbage collector need not visit those of 100,000 pods.
    """


def prepare(*kinds: type) -> None:
    """Prepares types for threads that decode them; called where the types are defined.

    msgspec (0.21) prepares a type when it is first decoded, and does so without a lock. If two
    threads decode it for the first time at once, the process may crash.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


class Decoder(Generic[Decoded]):
    """Decodes JSON, or parsed YAML, into a type.

    Args:
        what: the field that an error names when it has no path inside the value.
        prefix: the path of the value in a larger object, with a dot at its end.
    """

    def __init__(self, kind: type[Decoded], what: str, prefix: str = "") -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._what = what
        self._prefix = prefix

    def __call__(self, data: bytes | str) -> Decoded:
        """Decode JSON.

        Raises:
            InvalidValue: it is not JSON, or a field has the wrong type.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._refused(error) from None

    def convert(self, value: object) -> Decoded:
        """Convert dicts and lists, as a YAML reader returns them.

        Raises:
            InvalidValue: a field has the wrong type.
        """
        try:
            return msgspec.convert(value, self._kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> InvalidValue:
        if isinstance(error, RecursionError):
            return InvalidValue(self._what, "too deeply nested", "nest it less deeply")
        if not isinstance(error, msgspec.ValidationError):
            return InvalidValue(self._what, str(error), "write complete, well-formed JSON in UTF-8")
        match = _LOCATION.fullmatch(str(error))
        problem, path = (match["problem"], match["path"]) if match else (str(error), None)
        location = self._prefix + (path or "")
        if missing := _MISSING.fullmatch(problem):
            field = f"{location.removesuffix('.')}.{missing['name']}".removeprefix(".")
            return InvalidValue(field, "", "it is required: add it")
        location = location.removesuffix(".") or self._what
        if wrong := _WRONG_TYPE.fullmatch(problem):
            return InvalidValue(location, wrong["got"], f"its type must be {wrong['wanted']}")
        return InvalidValue(location, problem, "write it in the documented format")
