"""An installed library is complete, readable by all, and never changed."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_py._native import FORMAT
from hami_py.errors import StateError
from hami_py.node import library
from support.running import run
from unit.node.test_ledger import files_end_at

ROOT = Path(__file__).parents[3]

CONTENT = b"\x7fELF" + bytes(range(256)) * 64


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The library to install, which only its owner may read."""
    path = tmp_path / "libvgpu.so"
    path.write_bytes(CONTENT)
    path.chmod(0o600)
    return path


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    return tmp_path / "state" / "library"


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_the_directory_names_the_format_and_the_content(source: Path, libraries: Path) -> None:
    installed = library.install(source, libraries)
    assert installed.parent.parent == libraries
    assert re.fullmatch(rf"{FORMAT}-[0-9a-f]{{16}}", installed.parent.name)
    assert {path.name for path in installed.parent.iterdir()} == {
        *("libvgpu.so", "ld.so.preload", "hami-hook")
    }
    assert installed.read_bytes() == CONTENT
    assert library.preload_file(installed).read_text() == "/usr/local/hami/libvgpu.so\n"
    library.check_format(installed)


@pytest.mark.usefixtures("umask")
def test_every_user_of_a_container_can_read_it(source: Path, libraries: Path) -> None:
    installed = library.install(source, libraries)
    modes = {path.name: path.stat().st_mode & 0o777 for path in installed.parent.iterdir()}
    assert modes == {"libvgpu.so": 0o755, "ld.so.preload": 0o644, "hami-hook": 0o755}
    assert installed.parent.stat().st_mode & 0o777 == 0o755


def test_a_second_installation_writes_nothing(source: Path, libraries: Path) -> None:
    installed = library.install(source, libraries)
    there = [libraries, installed.parent, *installed.parent.iterdir()]
    before = [path.stat() for path in there]
    assert library.install(source, libraries) == installed
    assert [path.stat() for path in there] == before


def test_another_version_leaves_the_first_one(source: Path, libraries: Path) -> None:
    """Running containers have it, and a container that restarts gets it again."""
    first = library.install(source, libraries)
    source.write_bytes(CONTENT + b"new")
    second = library.install(source, libraries)
    assert first.read_bytes() == CONTENT
    assert second.read_bytes() == CONTENT + b"new"
    assert first.parent != second.parent


@pytest.mark.parametrize(
    "name",
    [f"{FORMAT + 1}-0123456789abcdef", "0-0123456789abcdef", "x-1", "-1", "", "library"],
)
def test_formats_of_other_versions_are_refused(name: str) -> None:
    path = Path("/var/lib/hami/library") / name / "libvgpu.so"
    with pytest.raises(StateError, match=f"its format is not {FORMAT}"):
        library.check_format(path)


class TestFailures:
    """The error names the file and the reason, and nothing is installed."""

    def check(self, source: Path, libraries: Path, why: str) -> None:
        with pytest.raises(StateError, match=why) as raised:
            library.install(source, libraries)
        assert f"installing {source}" in str(raised.value)
        assert not libraries.is_dir() or list(libraries.iterdir()) == []

    def test_no_library(self, tmp_path: Path, libraries: Path) -> None:
        self.check(tmp_path / "missing.so", libraries, r"missing\.so: No such file")

    def test_a_directory_instead_of_the_library(self, tmp_path: Path, libraries: Path) -> None:
        self.check(tmp_path, libraries, "Is a directory")

    def test_a_directory_that_cannot_be_created(self, source: Path) -> None:
        self.check(source, Path("/proc/hami/library"), "/proc/hami: No such file")

    def test_a_file_in_place_of_the_directory(self, source: Path, libraries: Path) -> None:
        libraries.parent.mkdir()
        libraries.touch()
        self.check(source, libraries, f"{libraries}.*: (File exists|Not a directory)")

    @pytest.mark.parametrize("room", [0, 1000])
    def test_a_full_disk(self, source: Path, libraries: Path, room: int) -> None:
        with files_end_at(room):
            self.check(source, libraries, "File too large")
        assert library.install(source, libraries).read_bytes() == CONTENT


KILLED = """
import os, signal, sys
from pathlib import Path
from hami_py.node import library

def kill(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

owner = os if sys.argv[3] == "fsync" else Path
setattr(owner, sys.argv[3], kill)
library.install(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("step", ["open", "fsync", "chmod", "rename"])
def test_a_killed_installation_leaves_no_part_of_a_version(
    source: Path, libraries: Path, step: str
) -> None:
    if step == "open":
        # The first file that it opens is the library.
        libraries.mkdir(parents=True)
    done = run([sys.executable, "-c", KILLED, source, libraries, step], {"PYTHONPATH": str(ROOT)})
    assert done.code == -signal.SIGKILL, done.err
    assert not [path for path in libraries.iterdir() if path.name[0] != "."]
    installed = library.install(source, libraries)
    assert installed.read_bytes() == CONTENT
    assert library.preload_file(installed).is_file()
