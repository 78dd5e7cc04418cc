"""Removes a node's leftovers from the host after its processes have ended: cgroups, an address, a
folder.

A separate guard process does this. It notices the end of the test at the end of a pipe, whether the
test closed the pipe or was killed.

    python leftovers.py FOLDER ADDRESS CGROUP...    # waits for the end of its standard input
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Seconds that killed processes may take to leave their cgroups.
_DEADLINE = 60.0


class Leftovers:
    """Those of one node."""

    def __init__(self, folder: Path, cgroups: Sequence[Path], address: str) -> None:
        self._folder, self._cgroups, self._address = folder, list(cgroups), address
        self._guard: subprocess.Popen[bytes] | None = None

    def guard(self) -> None:
        """From here on they are removed, also when this process is killed."""
        program = [sys.executable, __file__, str(self._folder), self._address]
        self._guard = subprocess.Popen(
            [*program, *map(str, self._cgroups)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def remove(self) -> None:
        """Remove them now."""
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            code = self._guard.wait(timeout=2 * _DEADLINE)
            self._guard = None
            assert code == 0, f"{self._folder}, {self._cgroups}: not removed"
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_cgroups(cgroups: Iterable[Path]) -> None:
    """Remove cgroups, and all below them, as soon as their last processes have ended."""
    until = time.monotonic() + _DEADLINE
    for cgroup in cgroups:
        for path in sorted([*cgroup.rglob("*"), cgroup], reverse=True):
            while path.is_dir():
                try:
                    path.rmdir()
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)


def _remove(folder: Path, address: str, cgroups: Sequence[Path]) -> None:
    remove_cgroups(cgroups)
    until = time.monotonic() + _DEADLINE
    subprocess.run(
        ["ip", "address", "delete", f"{address}/32", "dev", "lo"], check=False, capture_output=True
    )
    # A killed process may add files for a moment.
    while folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > until:
            raise TimeoutError(f"{folder} cannot be removed")


def main() -> None:
    folder, address, *cgroups = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()
    _remove(Path(folder), address, [Path(cgroup) for cgroup in cgroups])


if __name__ == "__main__":
    main()
