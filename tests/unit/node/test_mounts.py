"""The slots' own tmpfs, mounted for real, in a mount namespace that ends with the test."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hami_py.errors import StateError
from hami_py.node import mounts
from support.requirements import skip_or_fail
from support.running import run

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path
from hami_py.node.mounts import is_mounted, mount, unmount

runtime, said = Path(sys.argv[1]), []

def tell(value):
    said.append(value)

def count():
    # In the fifth field a space is written as \\\\040.
    name = os.path.realpath(runtime).replace(" ", "\\\\040")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sum(line.split()[4] == name for line in lines)

def options():
    found = subprocess.run(
        ["findmnt", "--noheadings", "--output", "FSTYPE,SOURCE,OPTIONS", os.path.realpath(runtime)],
        check=True, capture_output=True, text=True, timeout=30,
    )
    # The last one is on top.
    return found.stdout.splitlines()[-1].split()

{steps}
print(json.dumps(said))
"""


def in_namespace(runtime: Path, steps: str) -> Any:
    """What the steps tell."""
    if os.geteuid() != 0:
        skip_or_fail("only root can mount")
    script = SCRIPT.replace("{steps}", steps)
    command = ["unshare", "--mount", "--propagation", "private"]
    done = run([*command, sys.executable, "-c", script, runtime], {"PYTHONPATH": str(ROOT)})
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.fixture(params=["plain", "with space", "link"])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory that an operator may choose."""
    path = tmp_path / ("with space" if request.param == "with space" else "hami")
    path.mkdir()
    if request.param != "link":
        return path
    (tmp_path / "link").symlink_to(path)
    return tmp_path / "link"


def test_it_is_mounted_once_and_a_later_agent_recognises_it(runtime: Path) -> None:
    """A second mount would hide the slots of the containers that run."""
    steps = """
tell(is_mounted(runtime))
mount(runtime)
tell(is_mounted(runtime))
(runtime / "slices").mkdir()
mount(runtime)
tell(count())
tell([path.name for path in runtime.iterdir()])
"""
    assert in_namespace(runtime, steps) == [False, True, 1, ["slices"]]
    assert list(runtime.iterdir()) == [], "outside of the namespace there is nothing"


def test_no_program_can_be_started_from_it(runtime: Path) -> None:
    kind, source, options = in_namespace(runtime, "mount(runtime)\nsaid += options()")
    assert (kind, source) == ("tmpfs", "hami")
    assert {"rw", "nosuid", "nodev", "noexec", "mode=755"} <= {*options.split(",")}
    (size,) = [each for each in options.split(",") if each.startswith("size=")]
    assert size == "size=1048576k"


def test_another_file_system_there_is_not_taken_for_it(runtime: Path) -> None:
    steps = """
subprocess.run(["mount", "-t", "tmpfs", "other", str(runtime)], check=True)
tell(is_mounted(runtime))
mount(runtime)
tell(options()[1])
unmount(runtime)
tell(count())
"""
    assert in_namespace(runtime, steps) == [False, "hami", 1]


def test_the_same_file_system_elsewhere_is_not_taken_for_it(tmp_path: Path) -> None:
    for name in ("hami", "hami2"):
        (tmp_path / name).mkdir()
    steps = """
mount(runtime.with_name("hami2"))
tell(is_mounted(runtime))
"""
    assert in_namespace(tmp_path / "hami", steps) == [False]


def test_it_is_unmounted_as_often_as_it_is_mounted(runtime: Path) -> None:
    steps = """
mount(runtime)
subprocess.run(["mount", "-t", "tmpfs", "hami", str(runtime)], check=True)
unmount(runtime)
tell(count())
unmount(runtime)
"""
    assert in_namespace(runtime, steps) == [0]


def test_what_a_process_has_open_can_be_unmounted_later(tmp_path: Path) -> None:
    """The error says so, and nothing is lost."""
    steps = """
from hami_py.errors import StateError
mount(runtime)
(runtime / "slot").touch()
with (runtime / "slot").open():
    try:
        unmount(runtime)
    except StateError as error:
        tell("busy" in str(error))
tell((runtime / "slot").exists())
"""
    assert in_namespace(tmp_path, steps) == [True, True]


def test_a_mount_that_fails_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(StateError, match=r"mount -t tmpfs .*/missing"):
        mounts.mount(missing)
