"""The same, as a user without any rights."""

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hami_py import CardLimit, StateError, config, slices
from unit.machine import FALLBACK

NOBODY = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of that user's, which pytest's own, private to root, could not hold."""
    with tempfile.TemporaryDirectory(prefix="hami-test-") as path:
        os.chown(path, NOBODY, NOBODY)
        yield Path(path)


def as_nobody(test: Callable[[], None]) -> None:
    """Run the test in a child that has dropped root; the interpreter's files may be root's."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.chdir("/")
            test()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="every other test ran without root")


def test_a_program_runs_in_a_slice(home: Path) -> None:
    def test() -> None:
        settings = config.read({"XDG_RUNTIME_DIR": str(home), "PATH": "/bin:/usr/bin"})
        with slices.create(settings.runtime_directory, [CardLimit("GPU-1")], []) as directory:
            environment = {**settings.environment, "HAMI_SLICE": str(directory)}
            script = ["sh", "-c", 'test -w "$HAMI_SLICE/account" && exit 7']
            assert slices.run_in_foreground(script, environment) == 7
        assert not directory.exists()

    as_nobody(test)


def test_roots_runtime_directory_is_not_touched(home: Path) -> None:
    def test() -> None:
        settings = config.read({"XDG_RUNTIME_DIR": "/root"})
        assert settings.runtime_directory == FALLBACK.with_name(f"hami-{NOBODY}")
        with pytest.raises(StateError, match=r"Permission denied|belongs to user 0"):
            slices.runtime_directory(Path("/usr/hami"))
        with pytest.raises(StateError, match="belongs to user 0"):
            slices.runtime_directory(Path("/usr"))

    as_nobody(test)


def test_a_program_that_may_not_be_executed(home: Path) -> None:
    def test() -> None:
        from hami_py import CannotRun

        with pytest.raises(CannotRun) as caught:
            slices.run_in_foreground([str(home / "plain")], {})
        assert caught.value.status == 126

    (home / "plain").write_text("#!/bin/sh\n")
    (home / "plain").chmod(0o644)
    as_nobody(test)
