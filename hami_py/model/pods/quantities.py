"""Numbers in a pod: Kubernetes' quantities, and which numbers each resource may have.

The API server returns a quantity in its shortest form (3000 comes back as ``3k``), so all of its
grammar has to be read: ``3000``, ``3k``, ``1Ki`` and ``1e3``. The suffix is a factor and not a
unit: ``nvidia.com/gpumem: 4Gi`` means 4294967296 MiB, and ``4096m`` means 4.096. An error names the
number that was probably meant.

Grammar: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hami_py._native import MAX_CARDS, format_memory, parse_memory
from hami_py.errors import InvalidValue
from hami_py.model.pods.names import NameProfile
from hami_py.model.pods.objects import Quantity

GIB_IN_MIB = 1024

MAX_MEMORY_MIB = (1 << 20) - 1
"""Largest memory on one card. Just below 1 TiB: more than three times the largest card that exists,
and small enough to refuse ``1Mi`` where the author meant 1 MiB."""

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTOR = {name: Fraction(1000) ** (place - 3) for place, name in enumerate(_DECIMAL)} | {
    name: Fraction(1024) ** (place + 1) for place, name in enumerate(_BINARY)
}
_FRACTIONAL = ("n", "u", "m")
_MAX_CHARACTERS = 64
"""Kubernetes' numbers end at 2^63, which is far shorter."""
_MAX_BITS = 256
_MIB = 1 << 20


@dataclass(frozen=True)
class CountRule:
    """Which numbers a resource may have, and what its error messages explain.

    Attributes:
        unit: what the number counts, like ``MiB on each card``.
        example: a number that a person could write.
        mib: MiB per unit, where the resource is memory.
        hint: how to request a part of one unit.
        zero: what to write instead of 0.
        fix: replaces the generated explanation, where a fixed sentence is clearer.
    """

    unit: str
    least: int
    most: int
    example: int
    mib: int | None = None
    hint: str = ""
    zero: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Resource:
    """A resource of a pod."""

    name: str
    rule: CountRule


@dataclass(frozen=True)
class ResourceTable:
    """The resources of a profile; None = the profile has no name for this one.

    Attributes:
        particular: the names that no other profile has.
        label: the rule for the label that counts cards.
    """

    profile: NameProfile
    gpu: Resource
    memory: Resource
    percentage: Resource | None
    cores: Resource
    priority: Resource | None
    names: frozenset[str]
    particular: frozenset[str]
    label: CountRule


_PERCENT = "write a whole percentage from 1 to 100, like {}"
# 0 = not requested.
_PERCENTAGE = CountRule("percent", 0, 100, 50, fix=_PERCENT.format(50))
_CORES = CountRule("percent", 0, 100, 30, fix=f"{_PERCENT.format(30)}; 0 means no limit")
_PRIORITY = CountRule("", 0, 1, 1, fix="write 0 for high or 1 for low")


def resource_table(profile: NameProfile) -> ResourceTable:
    """The table of a profile."""
    unit = profile.memory_unit_mib
    memory = CountRule(
        f"{unit_name(unit)} {'in all' if profile.memory_is_total else 'on each card'}",
        1,
        MAX_MEMORY_MIB // unit * (MAX_CARDS if profile.memory_is_total else 1),
        max(3000 // unit, 1),
        mib=unit,
        zero="leave it out for the whole card",
    )
    part = f"to request a part of a card use {profile.memory} and {profile.cores}"
    names = frozenset(profile.resources)
    return ResourceTable(
        profile,
        gpu=Resource(profile.gpu, CountRule("cards", 0, MAX_CARDS, 1, hint=part)),
        memory=Resource(profile.memory, memory),
        percentage=Resource(profile.percentage, _PERCENTAGE) if profile.percentage else None,
        cores=Resource(profile.cores, _CORES),
        priority=Resource(profile.priority, _PRIORITY) if profile.priority else None,
        names=names,
        particular=names - {profile.gpu},
        label=CountRule("cards", 1, MAX_CARDS, 2),
    )


def unit_name(mib: int) -> str:
    """The name of a unit of so many MiB: ``MiB``, ``GiB``, or ``512 MiB``."""
    return {1: "MiB", GIB_IN_MIB: "GiB"}.get(mib, f"{mib} MiB")


def number(quantity: Quantity, rule: CountRule) -> int | None:
    """The whole number of a quantity; None if it has none, or one that the rule does not allow."""
    whole = whole_number(quantity)
    return whole if whole is not None and rule.least <= whole <= rule.most else None


def whole_number(quantity: Quantity) -> int | None:
    """The whole number of a quantity; None if it has none."""
    text = _text(quantity)
    # A longer text is no number, and the cache would keep it.
    return _whole_number(text) if len(text) <= _MAX_CHARACTERS else None


def count(quantity: Quantity, field: str, rule: CountRule) -> int:
    """The same, or an error that names the field and explains what to write.

    Raises:
        InvalidValue: it is not a quantity, not a whole number, or out of range.
    """
    found = number(quantity, rule)
    if found is None:
        text = _text(quantity)
        raise InvalidValue(field, text, rule.fix or _fix(text, field, rule))
    return found


def _text(quantity: Quantity) -> str:
    """The quantity as text. Python refuses to write an integer of thousands of digits."""
    if isinstance(quantity, int) and quantity.bit_length() > _MAX_BITS:
        return f"a number of {quantity.bit_length()} bits"
    return str(quantity)


@lru_cache(maxsize=4096)
def _whole_number(text: str) -> int | None:
    # Nearly every quantity is plain digits and needs no grammar.
    if text.isascii() and text.isdigit():
        return int(text)
    known = _parse(text)
    # 3000m is refused although it is a whole number: its author did not mean 3.
    if known is None or known[1] in _FRACTIONAL or known[0].denominator != 1:
        return None
    return int(known[0])


def _parse(text: str) -> tuple[Fraction, str] | None:
    """The number and its suffix, or None if it is not a quantity."""
    if len(text) > _MAX_CHARACTERS or not (match := _GRAMMAR.fullmatch(text)):
        return None
    value, suffix, exponent = Fraction(match["number"]), match["suffix"] or "", match["exponent"]
    if exponent is None:
        return value * _FACTOR[suffix], suffix
    # A larger exponent is out of Kubernetes' range for any number, and 10**exponent would not end.
    return value * Fraction(10) ** max(-99, min(99, int(exponent))), "e"


def _fix(text: str, field: str, rule: CountRule) -> str:
    """The error, and the value that was probably meant."""
    known = _parse(text)
    if known is None:
        return _size_fix(text, field, rule)
    value, suffix = known
    if suffix in _FRACTIONAL:
        return _fraction_fix(text, suffix, rule)
    if value.denominator != 1:
        return f"it counts {_example(rule)}" + (f"; {rule.hint}" if rule.hint else "")
    return _range_fix(value, suffix, rule)


def _example(rule: CountRule) -> str:
    return f"{rule.unit}: write a whole number, like {rule.example}"


def _fraction_fix(text: str, suffix: str, rule: CountRule) -> str:
    written = text.removesuffix(suffix)
    fits = written.isdecimal() and rule.least <= int(written) <= rule.most and rule.mib is not None
    meant = f"write {int(written)}" if fits else f"write a whole number, like {rule.example}"
    fix = f"the suffix {suffix} means a part of one, and it counts {rule.unit}: {meant}"
    return fix if fits or not rule.hint else f"{fix}; {rule.hint}"


def _range_fix(value: Fraction, suffix: str, rule: CountRule) -> str:
    between = f"it counts {rule.unit}, from {rule.least} to {rule.most}"
    if value == 0 and rule.zero:
        return f"{between}; {rule.zero}"
    if rule.mib is not None and suffix and value > rule.most:
        meant = value / (_MIB * rule.mib)
        if meant.denominator == 1 and rule.least <= meant <= rule.most:
            return f"{between}; for {format_memory(int(meant) * rule.mib * _MIB)} write {meant}"
    return f"{between}; write a number in between, like {rule.example}"


def _size_fix(text: str, field: str, rule: CountRule) -> str:
    """For text that is not a quantity: a size with a unit, like 4GiB, shows what was meant."""
    if rule.mib is not None:
        try:
            size = Fraction(parse_memory(text, "api", field) or 0, _MIB * rule.mib)
        except (InvalidValue, UnicodeError):
            size = Fraction(0)
        if size.denominator == 1 and rule.least <= size <= rule.most:
            return f"it counts {rule.unit}; write {size}"
    return f"it counts {_example(rule)}"
