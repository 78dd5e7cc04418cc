"""The same, as a user without any rights."""

import dataclasses
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hami_py import CardLimit, StateError, config
from hami_py.slices import (
    create,
    list_slices,
    remove,
    run_in_foreground,
    runtime_directory,
)
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
        settings = config.read({"HAMI_RUNTIME_DIR": str(home), "PATH": "/bin:/usr/bin"})
        with create(settings.runtime_directory, [CardLimit("GPU-1")], []) as directory:
            environment = {**settings.environment, "HAMI_SLICE": str(directory)}
            script = ["sh", "-c", 'test -w "$HAMI_SLICE/account" && exit 7']
            assert run_in_foreground(script, environment, lambda _program: 1.0) == 7
        assert not directory.exists()

    as_nobody(test)


def test_roots_runtime_directory_is_not_touched(home: Path) -> None:
    def test() -> None:
        settings = config.read({"HAMI_RUNTIME_DIR": "/root"})
        assert settings.runtime_directory == FALLBACK.with_name(f"hami-{NOBODY}")
        with pytest.raises(StateError, match=r"Permission denied|belongs to user 0"):
            runtime_directory(Path("/usr/hami"))
        with pytest.raises(StateError, match="belongs to user 0"):
            runtime_directory(Path("/usr"))

    as_nobody(test)


def test_each_user_sees_only_the_own_slices(home: Path, tmp_path: Path) -> None:
    theirs = config.read({"HAMI_RUNTIME_DIR": str(home)})
    assert theirs.runtime_directory != home / "hami"

    def test() -> None:
        settings = config.read({"HAMI_RUNTIME_DIR": str(home)})
        with create(settings.runtime_directory, [CardLimit("GPU-1")], []) as directory:
            assert [info.directory for info in list_slices(settings)] == [directory]
        with pytest.raises(StateError, match=r"Permission denied|belongs to user 0"):
            list_slices(dataclasses.replace(settings, runtime_directory=roots))

    roots = tmp_path / "hami"
    roots.mkdir(mode=0o700)
    as_nobody(test)
    for refused in (list_slices, lambda settings: remove(settings, "train")):
        with pytest.raises(StateError, match=f"belongs to user {NOBODY}; remove it, or set HAMI_"):
            refused(dataclasses.replace(theirs, runtime_directory=home / "hami"))


def test_a_program_without_execute_permission(home: Path) -> None:
    def test() -> None:
        from hami_py.errors import CannotRun

        with pytest.raises(CannotRun) as caught:
            run_in_foreground([str(home / "plain")], {}, lambda _program: 1.0)
        assert caught.value.status == 126

    (home / "plain").write_text("#!/bin/sh\n")
    (home / "plain").chmod(0o644)
    as_nobody(test)
