"""Sizes and shares as text: the Rust core's grammar, the same that the preload library uses."""

from typing import Literal

from hami_py import _native
from hami_py.errors import InvalidValue

Source = Literal["api", "hami-env"]
"""Who wrote the text, and so which spellings are understood (docs/configuration.md)."""


def parse_memory(text: str, source: Source, field: str) -> int | None:
    """Bytes meant by ``text``; None = no limit, which only HAMi's variables can say.

    Raises:
        InvalidValue: with field, value and fix.
    """
    _require_ascii(text, field)
    return _native.parse_memory(text, source, field) or None


def parse_share(text: str, source: Source, field: str) -> int | None:
    """Percent meant by ``text``; None = no limit, which only HAMi's variables can say.

    Raises:
        InvalidValue: with field, value and fix.
    """
    _require_ascii(text, field)
    return _native.parse_share(text, source, field) or None


def _require_ascii(text: str, field: str) -> None:
    """Bytes that are no text reach Python as surrogates, and Rust not at all."""
    if not (field + text).isascii():
        raise InvalidValue(field, text, "write digits and a unit, like 4GiB or 30%")
