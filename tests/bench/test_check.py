"""The rows that `make check-times` writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import check
from bench.results import Row


def test_the_rows_are_parts_total_and_slowest_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = {"lint": 60.0, "test-rust": 90.0, "test": 300.0, "test-cluster": 400.0}
    tests = {
        "test": {"a.py::one": 7.0, "a.py::two[x]": 1.0},
        "test-cluster": {"tests/cluster/b.py::three": 30.04},
    }

    def seconds(target: str, *arguments: str) -> float:
        for argument in arguments:
            found = {"seconds": 200.0, "tests": tests[target], "around": {"a.py::one": 6.0}}
            Path(argument.removeprefix("ARGS=--times=")).write_text(json.dumps(found))
        return took[target]

    written: list[Any] = []
    monkeypatch.setattr(check, "_seconds", seconds)
    monkeypatch.setattr(check, "write", lambda *what: written.append(what))
    assert check.main([]) == 0
    ((suite, _, rows),) = written
    assert suite == "check"
    by_name: dict[str, Row] = {row.name: row for row in rows}
    assert (by_name[".ci/run"].value, by_name[".ci/run"].target) == (760.0, 2100)
    assert (by_name["make test"].value, by_name["make test"].target) == (300.0, 720)
    assert by_name["pytest --tier fast"].note == "2 tests in two processes"
    slowest = [row.name for row in rows][-5:]
    assert slowest[0] == "tests/cluster/b.py::three"
    assert slowest[1] == "a.py::one"
    assert "a.py::one (fixtures)" in slowest
    assert (by_name["tests/cluster/b.py::three"].value, by_name["a.py::one"].note) == (30.0, "fast")


def test_an_unknown_tier_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["slow"]) == 2
    assert "there is no tier slow" in capsys.readouterr().err
