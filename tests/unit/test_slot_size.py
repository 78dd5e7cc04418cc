"""The sizes that pages and comments name for a slot and its account are those of the files."""

import re
from pathlib import Path

import pytest

from hami_py._native import LimitRow
from hami_py.config import ACCOUNT
from hami_py.node import mounts, slot
from support.artifacts import ROOT

KIB, PAGE = 1 << 10, 4 << 10


@pytest.fixture
def files(tmp_path: Path) -> dict[str, int]:
    """The bytes that each file of a slot takes on tmpfs, in whole pages."""
    (tmp_path / "slices").mkdir()
    made = tmp_path / "slices" / "one"
    slot.create(made, [LimitRow("GPU-1", None)])
    return {each.name: -(-each.stat().st_size // PAGE) * PAGE for each in made.iterdir()}


def test_the_sizes_that_are_named_are_those_of_the_files(files: dict[str, int]) -> None:
    whole = sum(files.values())
    account, of_slot = f"{files[ACCOUNT] // KIB} KiB", f"{whole // KIB} KiB"
    mib = f"{whole / KIB**2:.1f} MiB"
    said = [
        ("docs/configuration.md", f"the account, {account} |"),
        ("docs/install.md", f"with {mib} for each container with cards"),
        ("docs/install.md", f"1 GiB, {mib} for each container"),
        ("docs/operate.md", "`/run/hami` (1 GiB)"),
        ("hami_py/slices/watch.py", f"it reads a {account} file"),
        ("hami_py/node/mounts.py", f"more than a thousand slots, of {of_slot} each"),
        ("deploy/chart/values.yaml", f"each has {mib} on tmpfs"),
    ]
    for page, words in said:
        assert words in re.sub(r"\s+", " ", (ROOT / page).read_text()), page
    assert mounts._SIZE == "1g"
    assert KIB**3 // whole > 1000
