"""Kubernetes' quantities, in all their spellings, as counts."""

import random
from decimal import Decimal
from fractions import Fraction

import pytest

from hami_py.errors import InvalidValue
from hami_py.model.pods.quantities import CountRule, count
from unit.pods.build import says

MEMORY = CountRule(
    "MiB on each card", 1, (1 << 20) - 1, 3000, mib=1, zero="leave it out for the whole card"
)
CARDS = CountRule("cards", 0, 16, 1, hint="ask for a part with gpumem")

GOOD = [
    ("3000", 3000),
    ("3k", 3000),
    ("1Ki", 1024),
    ("12Ki", 12288),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1e+3", 1000),
    ("30000e-1", 3000),
    ("0.003M", 3000),
    ("3.0", 3),
    ("3.", 3),
    (".5k", 500),
    ("1.5k", 1500),
    ("+3000", 3000),
    ("0003000", 3000),
    ("0.5Ki", 512),
    (3000, 3000),
    (3000.0, 3000),
    (1e3, 1000),
    ("1048575", 1048575),
]

# what, the text, a part of the fix
BAD = [
    (MEMORY, "", "write a whole number, like 3000"),
    (MEMORY, " 3000", "write a whole number"),
    (MEMORY, "3000 ", "write a whole number"),
    (MEMORY, "3 k", "write a whole number"),
    (MEMORY, "3K", "write a whole number"),
    (MEMORY, "3ki", "write a whole number"),
    (MEMORY, "abc", "write a whole number"),
    (MEMORY, "0x10", "write a whole number"),
    (MEMORY, "1e", "write a whole number"),
    (MEMORY, "e3", "write a whole number"),
    (MEMORY, ".", "write a whole number"),
    (MEMORY, "--1", "write a whole number"),
    (MEMORY, "1_000", "write a whole number"),
    (MEMORY, "٣", "write a whole number"),
    (MEMORY, "3000\n", "write a whole number"),
    (MEMORY, "NaN", "write a whole number"),
    (MEMORY, "Infinity", "write a whole number"),
    (MEMORY, "1" * 65, "write a whole number"),
    (MEMORY, "50%", "write a whole number"),
    (MEMORY, "-1", "from 1 to 1048575"),
    (MEMORY, "-3k", "from 1 to 1048575"),
    (MEMORY, "0", "leave it out for the whole card"),
    (MEMORY, "0Ki", "leave it out for the whole card"),
    (MEMORY, "1.5", "it counts MiB on each card"),
    (MEMORY, "1e-3", "it counts MiB on each card"),
    (MEMORY, "4Gi", "for 4GiB write 4096"),
    (MEMORY, "4096Mi", "for 4GiB write 4096"),
    (MEMORY, "3000Mi", "for 3000MiB write 3000"),
    (MEMORY, "1Mi", "for 1MiB write 1"),
    (MEMORY, "4G", "from 1 to 1048575"),
    (MEMORY, "4GiB", "write 4096"),
    (MEMORY, "4096MiB", "write 4096"),
    (MEMORY, "4096m", "write 4096"),
    (MEMORY, "3000000m", "the suffix m means a part of one"),
    (MEMORY, "3u", "the suffix u means a part of one"),
    (MEMORY, "3n", "the suffix n means a part of one"),
    (MEMORY, "1048576", "from 1 to 1048575"),
    (MEMORY, "1e99999999999999999999", "from 1 to 1048575"),
    (MEMORY, "1e-99999999999999999999", "it counts MiB on each card"),
    (MEMORY, "99999999999999999999E", "from 1 to 1048575"),
    (MEMORY, 10**40, "from 1 to 1048575"),
    (MEMORY, 1.5, "it counts MiB on each card"),
    (MEMORY, float("nan"), "write a whole number"),
    (MEMORY, float("inf"), "write a whole number"),
    (CARDS, "500m", "ask for a part with gpumem"),
    (CARDS, "1000m", "the suffix m means a part of one"),
    (CARDS, "0.5", "ask for a part with gpumem"),
    (CARDS, "17", "from 0 to 16"),
    (CARDS, "1k", "from 0 to 16"),
    (CARDS, "4Gi", "from 0 to 16"),
]


@pytest.mark.parametrize(("written", "meant"), GOOD)
def test_a_valid_quantity(written: str | float, meant: int) -> None:
    assert count(written, "gpumem", MEMORY) == meant


@pytest.mark.parametrize(("what", "written", "fix"), BAD)
def test_an_invalid_quantity(what: CountRule, written: str | float, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        count(written, "spec.gpumem", what)
    says(caught.value, "spec.gpumem", str(written), fix)


SUFFIXES = {
    "": Fraction(1),
    **{s: Fraction(1000) ** (i + 1) for i, s in enumerate("kMGTPE")},
    **{f"{s}i": Fraction(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
    **{f"e{n}": Fraction(10) ** n for n in range(-6, 7)},
    **{f"E+{n}": Fraction(10) ** n for n in range(7)},
}
"""Written down apart from the code: what each suffix is worth."""


def test_a_thousand_random_quantities_are_whole_or_refused() -> None:
    chosen = random.Random(20260822)  # noqa: S311
    whole = 0
    for _ in range(3000):
        digits = str(chosen.choice([chosen.randrange(10), chosen.randrange(5000)]))
        if chosen.random() < 0.4:
            digits += "." + str(chosen.randrange(1000))
        suffix = chosen.choice(list(SUFFIXES))
        worth = Fraction(Decimal(digits)) * SUFFIXES[suffix]
        if worth.denominator == 1 and 1 <= worth < 1 << 20:
            whole += 1
            assert count(digits + suffix, "gpumem", MEMORY) == worth
        else:
            with pytest.raises(InvalidValue):
                count(digits + suffix, "gpumem", MEMORY)
    assert whole > 500
