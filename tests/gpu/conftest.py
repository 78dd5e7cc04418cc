"""The fixture `card` is a card of the stub or of this machine; every test here runs on both.

    pytest tests/gpu                     on the stub
    python3 run.py test                  in the kit, on this machine's GPU (README.md)

The findings of each test are appended to a file, so that they survive a later crash.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu.card import SOURCES, Card, real_card, stub_card
from support import artifacts as artifacts_module
from support import processes
from support.artifacts import Artifacts
from support.programs import Programs


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu")
    group.addoption("--card", choices=["stub", "gpu"], default="stub", help="which card to run on")
    group.addoption("--built", type=Path, help="the folder of compiled programs")
    group.addoption("--found", type=Path, help="the file for each test's findings, as JSON lines")
    group.addoption("--interpreter", default=sys.executable, help="the machine's own Python")
    group.addoption("--python-path", default="", help="the machine's own PYTHONPATH")


def _option(config: pytest.Config, name: str, default: object) -> object:
    """An option's value; the default where tests/gpu is collected from a folder above it."""
    return config.getoption(name, default=default)


@pytest.fixture(scope="session")
def artifacts() -> Artifacts:
    return artifacts_module.find()


@pytest.fixture(scope="session")
def programs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, artifacts: Artifacts
) -> Callable[[str], Path]:
    """`programs(name)` is a compiled program: the kit's, or a newly compiled one."""
    built = _option(request.config, "--built", None)
    if isinstance(built, Path):
        return lambda name: built / name
    folder = processes.shared_folder(request.config) or tmp_path_factory.mktemp("gpu-programs")
    return Programs(SOURCES, folder, artifacts)


@pytest.fixture(scope="session")
def card_kind(request: pytest.FixtureRequest) -> str:
    return str(_option(request.config, "--card", "stub"))


@pytest.fixture(scope="session")
def machine_python(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """The machine's own Python with its installed packages: program and environment."""
    path = str(_option(request.config, "--python-path", ""))
    program = str(_option(request.config, "--interpreter", sys.executable))
    return program, {"PYTHONPATH": path} if path else {}


@pytest.fixture
def cards(
    card_kind: str, artifacts: Artifacts, programs: Callable[[str], Path], tmp_path: Path
) -> Iterator[Callable[[int], Card]]:
    """`cards(2)`: the first two of the machine, or two of the stub."""
    made: list[Card] = []

    def make(count: int) -> Card:
        if card_kind == "stub":
            profiles = ",".join(["a100", "t4", "l40s", "h100"][:count])
            card = stub_card(artifacts, programs, tmp_path, profiles)
        else:
            card = real_card(artifacts, programs, tmp_path)
        made.append(card)
        if len(card.uuids) < count:
            pytest.skip(f"this machine has {len(card.uuids)} of {count} cards")
        return card

    yield make
    for card in made:
        card.close()


@pytest.fixture
def card(cards: Callable[[int], Card]) -> Card:
    """One card."""
    return cards(1)


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """`note(name, value)` adds a finding to the report, whether the test passes or fails."""
    return record_property


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests last, so that a deadline costs as few findings as possible."""
    items.sort(key=lambda item: item.path.name == "test_frameworks.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    # Set-up and tear-down are reported only if they fail, the test always.
    if report.when == "call" or report.outcome != "passed":
        _write(item.config, item, report)
    return report


def _write(config: pytest.Config, item: pytest.Item, report: pytest.TestReport) -> None:
    target = _option(config, "--found", None)
    if not isinstance(target, Path):
        return
    outcome = report.outcome if report.when == "call" or report.skipped else "error"
    reason = ""
    if report.skipped and hasattr(report, "wasxfail"):
        outcome, reason = "xfailed", report.wasxfail.removeprefix("reason: ")
    elif report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = " ".join((crash.message if crash else report.longreprtext).split())[:300]
    line = {
        "name": item.nodeid.split("tests/gpu/")[-1],
        "outcome": outcome,
        "seconds": round(report.duration, 3),
        "reason": reason,
        "notes": dict(report.user_properties),
    }
    with target.open("a") as file:
        file.write(json.dumps(line) + os.linesep)
