"""How much the tests do: three tiers, and every count that differs between them.

    pytest                   fast: what `make test` runs
    pytest --tier ci         what `make test-cluster` runs: most of tests/cluster, longer variants
    pytest --tier torture    what `make torture` runs: every test, with its full counts

A test runs in `fast`, in tests/cluster and tests/package in `ci`: `fast` needs neither Kubernetes,
a browser, a wheel nor large packages. What `test_findings_*.py` tests is Kubernetes itself, so it
changes with the version of Kubernetes, and runs in `torture`.
`@pytest.mark.tier("ci")` names the tier of a test that differs, `@pytest.mark.tier("fast", "ci")`
several. Every test runs in `torture`. Tests that the chosen tier leaves out are deselected, and the
report counts them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pytest

Tier = Literal["fast", "ci", "torture"]

TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True)
class Amount:
    """A count or a number of seconds, by tier; ``what`` says of what."""

    fast: int
    ci: int
    torture: int
    what: str


AMOUNTS = {
    "histories": Amount(1_000, 1_000, 10_000, "random histories of a cluster; a multiple of 1,000"),
    "malformed requests": Amount(
        5_000, 5_000, 50_000, "to the webhook, and as many to the extender"
    ),
    "certificate changes": Amount(3, 3, 30, "of the webhook under load, one each ten seconds"),
    "seconds without an API server": Amount(3, 3, 60, "before it answers again"),
    "random memory programs": Amount(4, 30, 300, "of 150 commands each"),
    "random sharing programs": Amount(3, 12, 300, "of 80 commands each, of 2 to 6 processes"),
    "rounds of mixed races": Amount(3_000, 3_000, 50_000, "of each thread, with 8 x 4 threads"),
    "restarts of a server": Amount(3, 3, 50, "in one slice, each after the one before was killed"),
    "interrupted starts": Amount(10, 10, 200, "of containers that the driver limits"),
    "kills of the machine's service": Amount(2, 5, 100, "while programs of two users compute"),
    "killed racers": Amount(60, 60, 1_000, "while seven others race with them"),
    "times that all programs' limits are switched": Amount(5, 5, 100, "while programs start"),
    "rounds of pods on MIG instances": Amount(5, 5, 200, "with kills of the agent and the kubelet"),
    "crowds": Amount(1, 1, 20, "of 100 pods at once on one node"),
}
"""Tests read them with `amount(name)`. A tier that does not run the test has a value too."""

_current: Tier = "fast"


def amount(name: str) -> int:
    """This amount in the tier of this run; also while modules are imported for collection."""
    return cast(int, getattr(AMOUNTS[name], _current))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="fast", help="how much to test: see tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    global _current  # noqa: PLW0603
    _current = config.getoption("tier")
    config.addinivalue_line("markers", "tier(name, ...): the tiers that run the test")
    config.stash[_LEFT_OUT] = {}


def pytest_report_header() -> str:
    return f"tier: {_current}"


_LEFT_OUT = pytest.StashKey[dict[str, int]]()


def tiers_of(item: pytest.Item) -> tuple[str, ...]:
    """The tiers that run this test, besides torture."""
    mark = item.get_closest_marker("tier")
    if mark is not None:
        unknown = {*mark.args} - {*TIERS}
        assert mark.args and not unknown, f"{item.nodeid}: there is no tier {unknown or ''}"
        return mark.args
    if item.path.name.startswith("test_findings_"):
        return ("torture",)
    folder = item.path.relative_to(Path(__file__).parents[1]).parts[0]
    return ("ci",) if folder in ("cluster", "package") else ("fast",)


# Before `-k` and others, so that each test is counted.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers."""
    if _current == "torture":
        return
    left_out = [item for item in items if _current not in tiers_of(item)]
    if left_out:
        config.stash[_LEFT_OUT] = dict(Counter(tiers_of(item)[0] for item in left_out))
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _current in tiers_of(item)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A process of pytest-xdist: it collects, and the one that reports does not.
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # The processes of pytest-xdist collect the same.
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    left_out = config.stash[_LEFT_OUT]
    if left_out:
        count = sum(left_out.values())
        by_tier = ", ".join(f"{left_out[tier]} of {tier}" for tier in TIERS if tier in left_out)
        terminalreporter.line(f"{count} tests deselected by --tier {_current}: {by_tier}")
