"""A new wheel in place of an old one while slices run, as pip does it, and back; on the stub."""

import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from cluster import images, releases
from hami_py.slices.measuring import INTERVAL, LOADED_AFTER
from support import coordinator
from support.programs import Programs
from support.running import Run, Started, run
from support.stub import StubServer


class Package:
    """The installed package of one environment, and its command."""

    def __init__(self, folder: Path, gpu: StubServer, probe: Path) -> None:
        self._folder, self._gpu, self._probe = folder, gpu, probe
        self._runtime = folder.parent / "runtime"
        self._runtime.mkdir(mode=0o700)

    def install(self, wheel: Path) -> None:
        """Replace its files."""
        rmtree(self._folder, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._folder)

    @property
    def runtime(self) -> Path:
        """The directory of its user's slices."""
        return self._runtime / "hami"

    @property
    def _env(self) -> dict[str, str]:
        data = {"XDG_DATA_HOME": str(self._runtime / "data")}
        where = {"HAMI_RUNTIME_DIR": str(self._runtime), "PYTHONPATH": str(self._folder)}
        return {**self._gpu.env, **data, **where}

    def __call__(self, *arguments: str) -> Run:
        """Run ``hami``, which has to succeed."""
        done = run([sys.executable, "-m", "hami_py", *arguments], self._env, cwd=self._folder)
        assert done.code == 0, done.err
        return done

    def start(self, *options: str) -> Started:
        """`hami run` with a program that says what it could allocate."""
        command = [sys.executable, "-m", "hami_py", "run", *options, "--", self._probe]
        return Started(command, self._env, cwd=self._folder)


def grants(program: Started, mib: int) -> bool:
    """Whether a program could allocate this much now."""
    program.tell(f"{mib} 0")
    return program.next_line() == "0"


@pytest.fixture
def package(
    tmp_path: Path, stub_server: Callable[..., StubServer], program: Programs
) -> Iterator[Package]:
    package = Package(tmp_path / "site", stub_server(), program("probe"))
    yield package
    coordinator.end(package.runtime)


def test_slices_run_through_an_upgrade_and_back(package: Package, tmp_path: Path) -> None:
    new = images.wheel()
    old = releases.repacked(new, tmp_path)
    package.install(old)
    share = ("--gpucores", "30")
    with package.start("--name", "first", "--gpumem", "3000MiB", *share) as first:
        first.wait_for("ready")
        assert (grants(first, 3000), grants(first, 3001)) == (True, False)
        # Some modules are loaded when a program has run for two seconds.
        time.sleep(2 * INTERVAL * LOADED_AFTER)
        for number, wheel in enumerate((new, old)):
            package.install(wheel)
            before = coordinator.wait_for(package.runtime).pid
            name, limit, less = f"later-{number}", 3000 - 500 * number, 2500 - 500 * number
            with (
                package.start("--name", name, "--gpumem", "1GiB", *share) as later,
                package.start("--join", "first") as joined,
            ):
                for each in (later, joined):
                    each.wait_for("ready")
                assert (grants(later, 1024), grants(later, 1025)) == (True, False)
                assert (grants(joined, limit), grants(joined, limit + 1)) == (True, False)
                listed = package("ps").out
                assert "first" in listed
                assert name in listed
                package("set", "first", "--gpumem", f"{less}MiB")
                assert (grants(first, less), grants(first, less + 1)) == (True, False)
                os.kill(before, signal.SIGKILL)
                coordinator.wait_for(package.runtime, other_than=before)
                ends = [each.finish() for each in (later, joined)]
            assert [(end.code, end.err) for end in ends] == [(0, ""), (0, "")]
        end = first.finish()
    assert (end.code, end.err) == (0, "")
    assert "first" not in package("ps").out
