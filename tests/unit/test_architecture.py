"""docs/architecture.md and the other pages name files, crates and layers that exist."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from support.artifacts import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = [
    *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
    *ROOT.glob("docs/*.md"),
    ROOT / "tests" / "cluster" / "findings.md",
    ROOT / "tests" / "gpu" / "README.md",
]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()

#: A path of the repository in backquotes, alone or in a command.
PATH = re.compile(r"(?<![\w./-])((?:hami_py|native|interposer|tests|deploy|docs)/[\w./-]*\w)")
#: Files that a build creates.
BUILT = {"hami_py/lib/libvgpu.so", "hami_py/lib/hami-hook"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_exists(page: Path) -> None:
    quoted = re.findall(r"`([^`\n]+)`", page.read_text())
    named = {path for text in quoted for path in PATH.findall(text)} - BUILT
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def section(heading: str) -> str:
    return ARCHITECTURE.split(f"# {heading}\n")[1].split("\n#")[0]


def test_each_row_of_where_do_i_change_has_one_file() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section("Where do I change …?"), re.M)
    assert 15 <= len(rows) - 2 <= 25
    assert [what for what, where in rows[2:] if not re.fullmatch(r"`[\w./-]+`", where)] == []


def cargo(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "Cargo.toml").read_text())


def test_the_crates_are_cargos() -> None:
    members = [m for m in cargo(".")["workspace"]["members"] if not m.startswith("tests/")]
    folders = {cargo(member)["package"]["name"]: member for member in members}
    uses = {
        member: {folders.get(name, name) for name in cargo(member).get("dependencies", {})}
        for member in members
    }
    rows = re.findall(r"^\| `([^`]+)` \|[^|]+\| ([^|]+) \|$", section("Rust crates"), re.M)
    drawn = {crate: set(re.findall(r"[\w/-]+", used)) - {"nothing"} for crate, used in rows}
    assert drawn == uses


def test_the_python_layers_are_import_linters() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in contracts["contracts"] if each["type"] == "layers"]
    (drawn,) = re.findall(r"^(errors, .*)$", section("Python packages"), re.M)
    assert [set(re.findall(r"\w+", layer)) for layer in drawn.split(" < ")] == [
        set(re.findall(r"\w+", layer)) for layer in reversed(layers)
    ]
