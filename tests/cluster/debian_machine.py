"""A machine with nothing but Debian and systemd, which boots.

It is a root directory in namespaces of its own: mounts, processes, cgroups and a host name. systemd
is its process 1. The network is this machine's, for Python's package index. A boot keeps what is on
the disk, an overlay in memory, and has an empty /run.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.fresh import NETWORK
from cluster import image_cache
from support.launcher import until
from support.requirements import skip_or_fail
from support.running import Run, Started, run

DEBIAN = "bookworm"

PACKAGES = ("ca-certificates", "dbus", "passwd", "python3-venv", "systemd-sysv", "util-linux")

#: Seconds for a command of the administrator: pip downloads packages.
_DEADLINE = 300.0

#: Seconds for making the root directory.
_BUILD_DEADLINE = 1800.0

_DISK = """
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/new /mnt/work /mnt/root /mnt/cgroup
mount -t overlay none -o lowerdir="$1",upperdir=/mnt/new,workdir=/mnt/work /mnt/root
mount -t cgroup2 none /mnt/cgroup
mkdir /mnt/cgroup/hami-test-$$
echo ready $$
cat
find /mnt/cgroup/hami-test-$$ -depth -type d -exec rmdir {} +
"""

#: The last process of the shell is unshare, so that ending it ends process 1, and so the machine.
_POWER_ON = """
echo $$ >"$1/cgroup.procs"
exec unshare --cgroup --pid --fork --kill-child --mount --uts --ipc sh -euc "$2"
"""

_BOOT = """
hostname machine
cd /mnt/root
mount -t proc none proc
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=755 none dev
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 none dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for each in null zero full random urandom tty; do
    touch dev/$each
    mount --bind /dev/$each dev/$each
done
mount --bind -o ro /proc/sys proc/sys
for each in /etc/hosts /etc/resolv.conf; do
    touch .$each
    mount --bind $each .$each
done
mount --rbind /etc/ssl etc/ssl
pivot_root . mnt
umount -l /mnt
exec env -i container=hami-test /sbin/init </dev/null >/dev/null 2>&1
"""


class DebianMachine:
    """The machine, switched off."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _DISK, "sh"]
        self._disk = self._stack.enter_context(Started([*private, _root()], {}))
        word, pid = self._disk.next_line().split()
        assert word == "ready"
        mounts = Path(f"/proc/{self._disk.pid}/root/mnt")
        self.root, self._cgroup = mounts / "root", mounts / "cgroup" / f"hami-test-{pid}"

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Boot it; leaving switches it off as a lost power supply does."""
        enter = ["nsenter", "--mount", f"--target={self._disk.pid}", "--wd=/", "--"]
        boot = [*enter, "sh", "-euc", _POWER_ON, "sh", f"/mnt/cgroup/{self._cgroup.name}", _BOOT]
        try:
            with Started(boot, {}) as self._power:
                until(self._is_up, self._state)
                yield
        finally:
            until(self._is_off, "all processes of the machine have ended")

    def run(self, line: str, user: str = "root") -> Run:
        """Type a line into a shell of this user, who logs in for it."""
        network = {key: value for key, value in os.environ.items() if NETWORK.fullmatch(key)}
        env = {**network, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        who = ["su", "-", user, "-c"] if user != "root" else ["sh", "-c"]
        return run(self._inside(*who, line), env, deadline=_DEADLINE)

    def close(self) -> None:
        """Remove it."""
        done = self._disk.finish()
        self._stack.close()
        assert (done.code, done.err) == (0, ""), done

    def _inside(self, *words: str) -> list[str]:
        children = Path(f"/proc/{self._power.pid}/task/{self._power.pid}/children")
        (init,) = children.read_text().split()
        kinds = ["--mount", "--pid", "--cgroup", "--uts", "--ipc"]
        return ["nsenter", *kinds, f"--target={init}", f"--wd=/proc/{init}/root/root", "--", *words]

    def _state(self) -> str:
        done = self.run("systemctl is-system-running; systemctl --failed; systemctl list-jobs")
        return f"the machine has started: {done}"

    def _is_up(self) -> bool:
        with contextlib.suppress(ValueError, FileNotFoundError):
            state = self.run("systemctl is-system-running").out.strip()
            return state in ("running", "degraded")
        return False

    def _is_off(self) -> bool:
        return "populated 0" in (self._cgroup / "cgroup.events").read_text()


def _root() -> Path:
    """Debian's root directory, which is made once."""
    if shutil.which("mmdebstrap") is None:
        skip_or_fail("missing: mmdebstrap; install it with: apt-get install mmdebstrap")
    target = image_cache.place("debian-machine", DEBIAN, PACKAGES)
    image_cache.ensure(target, _fill, 1)
    return target / "root"


def _fill(folder: Path) -> None:
    packages = ",".join(PACKAGES)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", DEBIAN]
    subprocess.run([*command, folder / "root"], check=True, timeout=_BUILD_DEADLINE)
