"""The durations that the pages name are those of the code.

A sentence of `SAID` stands on its page, with the values that the constants have now.
"""

import re

import pytest

from hami_py.coordinator.__main__ import LINGER
from support.artifacts import ROOT

_NS = {"NS": 1, "US": 1_000, "MS": 1_000_000}
_UNITS = {"µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_RUST = {"nanos": "NS", "micros": "US", "millis": "MS"}


class Value(int):
    """Nanoseconds, or a number. The format names the unit, as in ``{lease:ms}``."""

    def __format__(self, unit: str) -> str:
        if unit == "words":
            return {2: "two seconds"}[self // _UNITS["s"]]
        return f"{self / _UNITS[unit]:g} {unit}" if unit else str(int(self))


def text(path: str) -> str:
    return (ROOT / path).read_text()


def timing() -> dict[str, Value]:
    """The constants of the module, in lower case."""
    constant = r"^pub const (\w+): u64 = (?:([\d_]+) \* )?([\d_]+|US|MS);"
    found = re.findall(constant, text("native/share/src/timing.rs"), re.M)
    return {
        name.lower(): Value(int(factor or 1) * (_NS.get(value) or int(value)))
        for name, factor, value in found
    }


def constant(path: str, name: str) -> Value:
    """A constant of Rust: nanoseconds, or a ``Duration``."""
    (value,) = re.findall(rf"const {name}: [\w:]+ = ([^;]+);", text(path))
    made = re.fullmatch(r"Duration::from_(secs|millis|micros)\((\d+)\)", value)
    if made is None:
        return Value(value)
    unit = _UNITS["s"] if made[1] == "secs" else _NS[_RUST[made[1]]]
    return Value(int(made[2]) * unit)


VALUES = timing() | {
    "pulse": constant("native/limits/src/grants.rs", "SILENCE_NS"),
    "grace": constant("native/account/src/reap.rs", "GRACE"),
    "departure": constant("native/account/src/contend.rs", "DEPARTURE"),
    "probe": constant("native/coordinator/src/slice.rs", "MAX_PROBE_CPU_NS"),
    "linger_of_coordinator": Value(LINGER * _UNITS["s"]),
}

ARCHITECTURE = [
    "if it waited or worked in the last {active:ms}",
    "the work in flight: {alone_depth:ms}, or {depth:ms} while other slices have processes on",
    "A lease takes {lease:ms} while one or two slices are active, otherwise {round:ms} divided by "
    "their number, and at least {shortest:ms}.",
    "at least {least_bill:ms} is billed",
    "A slice that is {depth:ms} behind has the card alone",
    "If that takes longer than {overlap:ms} and the other share is soft",
    "while the depth is used up: {depth:ms}, and {shallow:ms} beside a slice with pauses",
    "if nothing of it has ended for {stall:ms}",
    "Other slices wait up to {drain:s} for work that goes on after its lease",
    "if it does not answer its lease for {answer:ms}, or works without a heartbeat for {silent:ms}",
    "others wait at most {backlog:ms} for work that never had a lease",
    "{handover:ms} after the end of its lease, a process goes on",
    "after {pulse:ms} each process uses its own lease",
]
SAID = [
    *(("docs/architecture.md", sentence) for sentence in ARCHITECTURE),
    ("docs/architecture.md", "the memory counts as free {grace:ms} after the death was noticed"),
    ("docs/architecture.md", "needs the memory waits for it, for {departure:words} at most"),
    ("docs/configuration.md", "at least {low_floor} % of the time for which they wait"),
    ("docs/configuration.md", "saves up to {saved:ms} of engine time for a burst"),
    ("docs/configuration.md", "on one stream with less than {gap:µs} between them"),
    ("docs/configuration.md", "has made no progress for {stall:ms}"),
    ("docs/configuration.md", "{linger_of_coordinator:s} after the last slice is removed"),
    ("docs/limitations.md", "each lease of {lease:ms} begins with one stream"),
    ("docs/limitations.md", "It waits {unknown:s} for the first launch of each such function"),
    ("docs/security.md", "counts the memory as free {grace:ms} after it has noticed the death"),
    ("docs/security.md", "waits until the driver has freed it, {departure:words} at most"),
    ("docs/security.md", "a slice that takes more than {probe:ms} of processor time to examine"),
    ("docs/security.md", "the card waits for that work, {drain:s} at most"),
    ("CHANGELOG.md", "saves up to {saved:ms} of its share for a burst"),
    ("CHANGELOG.md", "may queue {alone_depth:ms} of work, or {depth:ms} while another slice has"),
]


def flowing(page: str) -> str:
    """The text of a page without its line breaks."""
    return re.sub(r"\s+", " ", text(page))


def now(sentence: str) -> str:
    """The sentence with the values of the code."""
    return sentence.format(**VALUES)


@pytest.mark.parametrize(("page", "sentence"), SAID)
def test_a_duration_of_a_page_is_that_of_the_code(page: str, sentence: str) -> None:
    assert now(sentence) in flowing(page)


def test_no_duration_of_the_share_is_only_on_the_page() -> None:
    share = flowing("docs/architecture.md").split("## The compute share")[1]
    share = share.split("### One launch, walked")[0]
    for sentence in ARCHITECTURE:
        share = share.replace(now(sentence), "")
    assert re.findall(r"\d[\d.]* (?:µs|ms|s)\b", share) == []


def test_the_measured_share_spans_many_leases() -> None:
    """hami_py/agent/figures.py says that a lease takes up to 23 ms: a round of three."""
    longest = max(VALUES["lease"], VALUES["round"] / 3)
    assert "leases of up to 23 ms" in text("hami_py/agent/figures.py")
    assert 22 < longest / _UNITS["ms"] <= 23
