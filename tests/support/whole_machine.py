"""A machine with users, limits for all programs, and programs that find the stub by themselves.

It is a mount namespace with its own /etc, /usr/lib, /var/lib and /run. The stub driver is in
/usr/lib, so no program needs a variable.
"""

import contextlib
import os
import signal
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from support.artifacts import Artifacts
from support.commands import HamiCommand
from support.launcher import until
from support.programs import Programs
from support.running import Command, Run, Started, run

ANNA, BERT = 64001, 64002

POLICY = f'[user.{ANNA}]\ngpumem = "4GiB"\n\n[user.{BERT}]\ncards = "none"\n'

#: Changes are in a tmpfs, which ends with the namespace. Python may be in root's home.
SCRIPT = """
mount -t tmpfs none /mnt && for each in etc root usr/lib var/lib; do
    mkdir -p /mnt/$each.new /mnt/$each.work
    mount -t overlay none -o lowerdir=/$each,upperdir=/mnt/$each.new,workdir=/mnt/$each.work /$each
done
mount -t tmpfs none /run && cp $FILES /usr/lib/$MULTIARCH/ && cp $PROGRAM /run/memory &&
useradd -m -l -d /run/anna -u 64001 anna && useradd -m -l -d /run/bert -u 64002 bert &&
echo ready && exec cat
"""


class WholeMachine:
    """A machine with the users anna and bert."""

    def __init__(self, artifacts: Artifacts, hami: HamiCommand, program: Programs) -> None:
        self.env = hami.env(None)
        self._stack = contextlib.ExitStack()
        files = [artifacts.libcuda, artifacts.libcuda.with_name("libnvidia-ml.so.1")]
        env = {
            "FILES": " ".join(map(str, files)),
            "MULTIARCH": sysconfig.get_config_var("MULTIARCH"),
            "PROGRAM": str(program("memory_info")),
        }
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", SCRIPT]
        self._inside = self._stack.enter_context(Started(command, env))
        self._inside.wait_for("ready")
        self.root = Path(f"/proc/{self._inside.pid}/root")
        (self.root / "etc" / "hami").mkdir()
        (self.root / "etc" / "hami" / "machine.toml").write_text(POLICY)

    def enter(self, *words: str | Path) -> Command:
        """The command, on this machine."""
        return ["nsenter", "--mount", "--target", str(self._inside.pid), "--", *words]

    def starts(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Run:
        """Run a program of root."""
        return run(self.enter(*words), env or {})

    def hami(self, *words: str, env: Mapping[str, str] | None = None) -> Run:
        """Run `hami` as root."""
        command = [sys.executable, "-m", "hami_py", *words]
        return self.starts(*command, env={**self.env, **(env or {})})

    def serve(self) -> None:
        """Start the service."""
        command = self.enter(sys.executable, "-m", "hami_py", "machine")
        self.service = self._stack.enter_context(Started(command, self.env))
        until((self.root / "run/hami/machine.sock").exists, "the service listens")

    def sees(self, *words: str | Path) -> int | str:
        """The memory that a program sees, or how it was refused."""
        done = self.starts(*words)
        return memory_in(done.out) or done.err

    def close(self) -> None:
        """End all, also what programs have left behind."""
        namespace = Path(f"/proc/{self._inside.pid}/ns/mnt").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "ns" / "mnt").readlink() == namespace:
                    os.kill(int(process.name), signal.SIGKILL)
        self._stack.close()


def memory_in(text: str) -> int | None:
    """The memory that the program found, or None."""
    found = [line for line in text.splitlines() if line.startswith("cuDeviceTotalMem_v2")]
    return int(found[0].partition("total=")[2]) if found else None
