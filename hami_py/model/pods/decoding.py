"""From JSON to types, with errors that name field, value and fix.

The decoder of msgspec says where a value is wrong in one line of text; here that becomes an
``InvalidValue``. Bytes that are no JSON, no UTF-8, cut short or nested beyond measure are one too.
"""

import re
from typing import Generic, TypeVar

import msgspec

from hami_py.errors import InvalidValue

_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `(?:key in )?\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")

Decoded = TypeVar("Decoded")


class ApiObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One of Kubernetes' types, as far as we read it.

    No cycles, so nothing for the garbage collector to look at in 100,000 pods.
    """


class Decoder(Generic[Decoded]):
    """JSON, or what YAML made of it, to one of these types; also to one that holds them.

    Args:
        kind: the type.
        what: what to call the whole where no path in it is to blame.
        prefix: the path of the whole in something larger, with the dot at its end.
    """

    def __init__(self, kind: type[Decoded], what: str, prefix: str = "") -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)
        self._what = what
        self._prefix = prefix

    def __call__(self, data: bytes | str) -> Decoded:
        """From JSON.

        Raises:
            InvalidValue: it is no JSON, or a field has the wrong type.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._refused(error) from None

    def convert(self, value: object) -> Decoded:
        """From dicts and lists, as a YAML reader makes them.

        Raises:
            InvalidValue: a field has the wrong type.
        """
        try:
            return msgspec.convert(value, self._kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> InvalidValue:
        if isinstance(error, RecursionError):
            return InvalidValue(self._what, "too many levels", "nest it less deeply")
        if not isinstance(error, msgspec.ValidationError):
            return InvalidValue(self._what, str(error), "write whole, well-formed JSON in UTF-8")
        match = _PLACE.fullmatch(str(error))
        problem, path = (match["problem"], match["path"]) if match else (str(error), None)
        place = self._prefix + (path or "")
        if missing := _MISSING.fullmatch(problem):
            field = f"{place.removesuffix('.')}.{missing['name']}".removeprefix(".")
            return InvalidValue(field, "", "it is required: add it")
        place = place.removesuffix(".") or self._what
        if wrong := _WRONG_TYPE.fullmatch(problem):
            return InvalidValue(place, wrong["got"], f"its type must be {wrong['wanted']}")
        return InvalidValue(place, problem, "write it as its format says")
