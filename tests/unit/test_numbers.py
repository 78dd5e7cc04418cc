"""The page that compares numbers: our figures are those of the results that they link.

A link's title is the row's name, or ``max:`` or ``median:`` of rows, with the wildcards of a shell.
"""

import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

import pytest

from support.artifacts import ROOT

PAGE = (ROOT / "docs" / "numbers.md").read_text()

FIGURES = re.findall(r'\[([^]]+)\]\((results/[\w/-]+)\.md "([^"]+)"\)', PAGE)


def _only(found: list[float]) -> float:
    (value,) = found
    return value


REDUCE: dict[str, Callable[[list[float]], float]] = {"max": max, "median": median, "": _only}


def read(page: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "docs" / f"{page}.json").read_text())
    return data


def values(page: str) -> dict[str, float]:
    """The rows of a page of results; bytes that a test has noted are rows as well, in MiB."""
    data = read(page)
    rows = {row["name"]: row["value"] for row in data.get("rows", ())}
    for test in data.get("tests", ()):
        for names, noted in test["notes"].items():
            if names == "bytes by NVML, bytes of the driver":
                for name, value in zip(names.split(", "), noted, strict=True):
                    rows[f"{test['name']}/{name}"] = value / 2**20
    return rows


@pytest.mark.parametrize(("figure", "page", "title"), FIGURES)
def test_a_figure_is_that_of_the_results(figure: str, page: str, title: str) -> None:
    reduce, _, pattern = title.rpartition(":")
    found = [value for name, value in values(page).items() if fnmatchcase(name, pattern)]
    assert f"{REDUCE[reduce](found):,.{len(figure.partition('.')[2])}f}" == figure


@pytest.mark.parametrize("page", sorted({page for _, page, _ in FIGURES}))
def test_a_source_has_the_command_the_date_and_the_commit(page: str) -> None:
    (line,) = (line for line in PAGE.splitlines() if f"]({page}.md)" in line)
    data = read(page)
    command = data.get("command") or data["rows"][0]["command"]
    assert line.endswith(f"| `{command}` | {data['date']}, {data['commit']} |")
