"""Installing the service for systemd, and removing it."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

from hami_py.errors import StateError, state_errors
from hami_py.machine import preload
from hami_py.machine.containers import NAME
from hami_py.machine.policy import POLICY, read_policy
from hami_py.node import mounts
from hami_py.node.node_lock import holder
from hami_py.node.paths import Paths

UNIT = Path("/etc/systemd/system/hami-machine.service")

_UNIT_TEXT = Path(__file__).with_name("hami-machine.service")

_DEADLINE_S = 60.0

_FILES = "hami machine", "run it as root, and check the file system"

_FIRST_POLICY = """\
# Who may use which cards of this machine, and how much of them: docs/machine.md.
# Check it with `hami machine check`. The service reads it when it has changed.

sum = "shared"          # "strict": the slices of all users together fit on each card

[default]               # users whom no other table names
gpumem = "none"         # of each card, for all slices of a user together: "8GiB"
gpucores = "none"       # percent of its time: 30
"""


def install(program: Path, policy: Path = POLICY, unit: Path = UNIT) -> None:
    """Install the unit, and a policy that limits nobody if there is none; start the service.

    Raises:
        StateError: a file cannot be written, or the service does not start.
        InvalidValue: the policy is refused.
    """
    _check_owner(program)
    other = holder(Paths())
    if other is not None and not unit.exists():
        raise StateError("hami machine", f"{other} has the cards", "run one of them only")
    with state_errors(*_FILES):
        if not policy.exists():
            policy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            policy.write_text(_FIRST_POLICY)
            policy.chmod(0o644)
        read_policy(policy)
        aside = unit.with_suffix(".new")
        aside.write_text(_UNIT_TEXT.read_text().replace("@HAMI@", str(program)))
        aside.chmod(0o644)
        aside.replace(unit)
    _systemctl("daemon-reload")
    _systemctl("enable", unit.name)
    _systemctl("restart", unit.name)


def uninstall(unit: Path = UNIT, paths: Paths | None = None) -> None:
    """End the service, and remove what it has left on the machine, but not the policy.

    Programs that run lose their limits' files, so they are refused the cards from then on.

    Raises:
        StateError: something cannot be removed.
    """
    paths = paths or Paths()
    preload.switch_off()
    is_installed = unit.exists()
    if is_installed:
        _systemctl("disable", "--now", unit.name)
    other = holder(paths)
    if other is not None:
        raise StateError("hami machine", f"{other} has the cards", "end it first")
    mounts.unmount(paths.runtime)
    with state_errors(*_FILES):
        unit.unlink(missing_ok=True)
        (paths.cdi[0] / NAME).unlink(missing_ok=True)
        for directory in (paths.runtime, paths.state):
            if directory.is_dir():
                shutil.rmtree(directory)
    if is_installed:
        _systemctl("daemon-reload")


def _check_owner(program: Path) -> None:
    """Check that only root can change what root will run.

    Raises:
        StateError: others can.
    """
    package = Path(__file__).parents[1]
    for path in (program, *program.parents, package, *package.parents):
        status = path.stat()
        is_writable = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        # Nobody renames another's file in a directory such as /tmp.
        if status.st_uid != 0 or (is_writable and not status.st_mode & stat.S_ISVTX):
            why = f"others than root can write {path}, and root would run it"
            raise StateError(
                "hami machine install", why, "install hami-py as root, as in /opt/hami"
            )


def _systemctl(*words: str) -> None:
    command = ["systemctl", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        fix = "run `hami machine` by another service manager, as root"
        raise StateError(" ".join(command), str(error), fix) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        fix = "see `journalctl -u hami-machine`"
        raise StateError(" ".join(command), lines[0], fix)
