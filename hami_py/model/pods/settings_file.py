"""What an operator wrote into a settings file, as ``PodSettings``.

One file is for all who judge pods, so it is read strictly: what is not understood is an error, and
never a default.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model.names import legible
from hami_py.model.pods.names import ALIYUN, HAMI, NameProfile
from hami_py.model.pods.settings import PodSettings

__all__ = ["decode_settings"]

_PROFILES: dict[str, NameProfile] = {"hami": HAMI, "aliyun": ALIYUN}

_KINDS: dict[str, object] = {
    **get_type_hints(PodSettings),
    "profiles": tuple[Literal["hami", "aliyun"], ...],
}
"""The fields of a file are those of the settings; profiles are written by their names."""

_WORDS: dict[object, str] = {
    int: "a whole number",
    str: "a text, in quotes where YAML sees something else in it",
}

_LONGEST_BITS = 63

_CLOSE = 0.75
"""Of difflib's 1 for equal ones: two wrong letters in ten, and no other word."""


def decode_settings(written: object) -> PodSettings:
    """From what a YAML reader made of the file: the fields of ``PodSettings``, by their names.

    What is left out has its default; a list replaces the default's, it adds nothing to it.

    Args:
        written: a mapping, or ``None``, as of an empty file.

    Raises:
        InvalidValue: a field that there is not, a value of a wrong type or out of its range, or no
            mapping. Its ``field`` is the setting's name, in a list with the place, as in
            ``schedulers[1]``.
    """
    if written is None:
        return PodSettings()
    if not isinstance(written, dict):
        raise InvalidValue("settings", _shown(written), "write fields, as in `default_cards: 1`")
    given: dict[str, Any] = {}
    for name, value in written.items():
        if name not in _KINDS:
            field = legible(_shown(name))
            close = get_close_matches(field, _KINDS, n=1, cutoff=_CLOSE)
            fix = f"did you mean {close[0]}?" if close else f"write {_listed(sorted(_KINDS))}"
            raise InvalidValue(field, _shown(value), f"there is no such field; {fix}")
        given[name] = _convert(name, value, _KINDS[name])
    if "profiles" in given:
        given["profiles"] = tuple(_PROFILES[name] for name in given["profiles"])
    return PodSettings(**given)


def _convert(field: str, value: object, kind: object) -> object:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InvalidValue(field, _shown(value), "write a list: [one, other]")
        each, _ = get_args(kind)
        return tuple(_convert(f"{field}[{i}]", item, each) for i, item in enumerate(value))
    try:
        converted: object = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        words = _WORDS.get(kind) or _listed(get_args(kind))
        raise InvalidValue(field, _shown(value), f"write {words}") from None
    if isinstance(converted, int) and converted.bit_length() > _LONGEST_BITS:
        raise InvalidValue(field, _shown(value), "write a smaller number")
    return converted


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def _shown(value: object) -> str:
    """As the file has it; what has parts, or no end, by its kind alone."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        # Python writes no decimal number of any length.
        return str(value) if value.bit_length() <= _LONGEST_BITS else f"{value:#x}"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return str(value)
