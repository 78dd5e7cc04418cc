"""Kubernetes' quantities where a count is meant: ``3000``, and also ``3k``, ``1Ki`` and ``1e3``.

The API server hands back what was written in a shorter form (3000 comes as ``3k``), so all of its
grammar has to be understood. But a unit is a factor here and no unit: ``nvidia.com/gpumem: 4Gi``
says 4294967296 MiB, and ``4096m`` says 4.096. What was probably meant stands in the error.

Grammar: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hami_py import _native
from hami_py.errors import InvalidValue
from hami_py.model.pods.objects import Quantity

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTOR = {name: Fraction(1000) ** (place - 3) for place, name in enumerate(_DECIMAL)} | {
    name: Fraction(1024) ** (place + 1) for place, name in enumerate(_BINARY)
}
_PARTS = ("n", "u", "m")
_LONGEST = 64
"""Characters. Kubernetes' numbers end at 2^63, so nobody needs more."""
_MOST_BITS = 256
_MIB = 1 << 20


@dataclass(frozen=True)
class Counted:
    """What a resource counts, for its errors.

    Attributes:
        unit: of which one is ``1``, like ``MiB on each card``.
        least: the smallest number that makes sense.
        most: the largest.
        example: a number that a person could want.
        mib: MiB that one stands for, where memory is counted.
        hint: what to do for a part of one.
        zero: what to do for none of it.
        fix: what to say instead of all this, where a sentence says it better.
    """

    unit: str
    least: int
    most: int
    example: int
    mib: int | None = None
    hint: str = ""
    zero: str = ""
    fix: str = ""


def number(quantity: Quantity, what: Counted) -> int | None:
    """The whole number that a quantity says; None = it is none, or out of range."""
    text = _text(quantity)
    # What is that long is no number, and the cache would keep it.
    whole = _whole_number(text) if len(text) <= _LONGEST else None
    return whole if whole is not None and what.least <= whole <= what.most else None


def count(quantity: Quantity, field: str, what: Counted) -> int:
    """The same, or an error that says what is wrong.

    Raises:
        InvalidValue: it is no quantity, no whole number, or out of range.
    """
    found = number(quantity, what)
    if found is None:
        text = _text(quantity)
        raise InvalidValue(field, text, what.fix or _fix(text, field, what))
    return found


def _text(quantity: Quantity) -> str:
    """As it was written; Python writes no integer of thousands of digits."""
    if isinstance(quantity, int) and quantity.bit_length() > _MOST_BITS:
        return f"a number of {quantity.bit_length()} bits"
    return str(quantity)


@lru_cache(maxsize=4096)
def _whole_number(text: str) -> int | None:
    if text.isascii() and text.isdigit():
        # Nearly always, and then no grammar is needed.
        return int(text)
    known = _parse(text)
    # Thousandths also where they come out whole: nobody writes 3000m and means 3.
    if known is None or known[1] in _PARTS or known[0].denominator != 1:
        return None
    return int(known[0])


def _parse(text: str) -> tuple[Fraction, str] | None:
    """The number and its suffix, or None if it is no quantity."""
    if len(text) > _LONGEST or not (match := _GRAMMAR.fullmatch(text)):
        return None
    value, suffix, exponent = Fraction(match["number"]), match["suffix"] or "", match["exponent"]
    if exponent is None:
        return value * _FACTOR[suffix], suffix
    # Beyond Kubernetes' range whatever the number is; 10**power would not end.
    return value * Fraction(10) ** max(-99, min(99, int(exponent))), "e"


def _fix(text: str, field: str, what: Counted) -> str:
    """What is wrong, and what was probably meant."""
    known = _parse(text)
    if known is None:
        return _size_fix(text, field, what)
    value, suffix = known
    if suffix in _PARTS:
        return _part_fix(text, suffix, what)
    if value.denominator != 1:
        return f"it counts {_example(what)}" + (f"; {what.hint}" if what.hint else "")
    return _range_fix(value, suffix, what)


def _example(what: Counted) -> str:
    return f"{what.unit}: write a whole number, like {what.example}"


def _part_fix(text: str, suffix: str, what: Counted) -> str:
    written = text.removesuffix(suffix)
    fits = written.isdecimal() and what.least <= int(written) <= what.most and what.mib is not None
    meant = f"write {int(written)}" if fits else f"write a whole number, like {what.example}"
    fix = f"a quantity with {suffix} is a part of one, and it counts {what.unit}: {meant}"
    return fix if fits or not what.hint else f"{fix}; {what.hint}"


def _range_fix(value: Fraction, suffix: str, what: Counted) -> str:
    between = f"it counts {what.unit}, from {what.least} to {what.most}"
    if value == 0 and what.zero:
        return f"{between}; {what.zero}"
    if what.mib is not None and suffix and value > what.most:
        meant = value / (_MIB * what.mib)
        if meant.denominator == 1 and what.least <= meant <= what.most:
            return f"{between}; for {_size(int(meant) * what.mib)} write {meant}"
    return f"{between}; write a number in between, like {what.example}"


def _size_fix(text: str, field: str, what: Counted) -> str:
    """For what is no quantity: a size with a unit, as written elsewhere, says what is meant."""
    if what.mib is not None:
        try:
            size = Fraction(_native.parse_memory(text, "api", field), _MIB * what.mib)
        except (InvalidValue, UnicodeError):
            size = Fraction(0)
        if size.denominator == 1 and what.least <= size <= what.most:
            return f"it counts {what.unit}; write {size}"
    return f"it counts {_example(what)}"


def _size(mib: int) -> str:
    return _native.format_memory(mib * _MIB)
