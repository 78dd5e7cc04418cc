"""The runtime directory: made for us alone, or refused."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hami_py import StateError
from hami_py.slices import runtime, runtime_directory
from hami_py.slices.runtime import locked
from unit.machine import DEADLINE, Hami

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_created_for_its_owner_only(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = runtime_directory(tmp_path / "hami")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == 0o700
    assert runtime_directory(made) == made


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o1777])
def test_it_is_refused_if_others_may_write(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "hami"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(StateError, match=f"other users may write to it; run `chmod 700 {path}"):
        runtime_directory(path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "hami").symlink_to(tmp_path / "theirs")
    with pytest.raises(StateError, match="not a directory"):
        runtime_directory(tmp_path / "hami")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hami").touch()
    with pytest.raises(StateError, match="it is not a directory; remove it"):
        runtime_directory(tmp_path / "hami")


@root_only
def test_another_users_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hami"
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)
    with pytest.raises(StateError, match="belongs to user 65534"):
        runtime_directory(path)


@pytest.mark.parametrize("name", ["a:b", "a\nb", "a\udcffb"])
def test_a_path_that_hami_slice_cannot_carry_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StateError, match="colon"):
        runtime_directory(tmp_path / name)


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="there is no cleaner here")
def test_the_cleaner_of_tmp_removed_the_files_of_a_running_slice(
    hami: Hami, tmp_path: Path, runtime: Path
) -> None:
    """Usually it removes what is ten days old; here, whatever it may."""
    clean = tmp_path / "clean.conf"
    clean.write_text(f"e {runtime} - - - 0\n")
    command = ["systemd-tmpfiles", "--clean", str(clean)]
    script = f"{shlex.join(command)}; ls $HAMI_SLICE"
    data = str(tmp_path / "data")
    done = hami("run", "--keep", "--", "sh", "-c", script, XDG_DATA_HOME=data)
    assert {"account", "grants", "limits", "slice.json"} <= set(done.stdout.split())
    # Without a holder, it removes them.
    subprocess.run(command, check=True)
    assert list(runtime.rglob("account")) == []


def test_an_unwritable_directory_is_one_line_and_125(hami: Hami) -> None:
    """/proc takes no directory, not even root's."""
    missing = Path("/proc/hami")
    with pytest.raises(StateError, match="set HAMI_RUNTIME_DIR"):
        runtime_directory(missing)
    # A directory of ours, so that it is taken, in which nothing can be made.
    done = hami("run", "--", "echo", "ran", HAMI_RUNTIME_DIR=f"/proc/{os.getpid()}")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hami: runtime directory")
    assert done.stderr.count("\n") == 1


def test_the_lock_is_held_by_one_and_waited_for_with_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "LOCK_DEADLINE", 0.0)
    with (
        locked(tmp_path),
        pytest.raises(StateError, match="another process holds it"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    script = "import sys,time; from pathlib import Path\n"
    script += "from hami_py.slices.runtime import locked\n"
    script += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        holder.wait(DEADLINE)
    with locked(tmp_path):
        pass
