"""The first process of a node's namespaces: it prepares what the kubelet sees, and then only reaps.

A kubelet writes where the host's own would: /var/lib/kubelet, /var/log, /run, and sysctls. Here it
finds private ones, so that the host has nothing to be cleaned of. The containers' shims become
children of this process; when it dies the kernel kills all that run in its PID namespace.

    python node_init.py NODE_FOLDER
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: The sysctls that the kubelet (pkg/kubelet/cm, setupKernelTunables) and CNI's ptp set on the host.
#: They find files that have these values already, and read nothing else.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def prepare(folder: Path) -> None:
    """Mount a node's own places over the host's; seen in this mount namespace alone."""
    # Volumes of containers need a shared root; in this namespace it is shared with no other.
    mount("--make-rshared", "/")
    for place in ("etc", "var", "usr/libexec", "usr/local"):
        if not Path("/", place).is_dir():
            continue
        upper, work = (folder / "over" / place / part for part in ("upper", "work"))
        # They are a disk: what was written stays when the node boots again.
        upper.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        options = f"lowerdir=/{place},upperdir={upper},workdir={work}"
        with keeping(Path("/", place), folder / "over" / "below"):
            mount("-t", "overlay", "-o", options, "overlay", f"/{place}")
    mount("-t", "tmpfs", "tmpfs", "/run")
    # Where the test reaches the sockets, the checkpoint and the CDI specifications.
    for ours, place in (("kubelet", "/var/lib/kubelet"), ("cdi", "/run/cdi")):
        Path(place).mkdir(parents=True, exist_ok=True)
        mount("--rbind", folder / ours, place)
    for name, value in SYSCTLS.items():
        file = folder / "sysctl" / name.replace("/", "-")
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n")
        mount("--bind", file, f"/proc/sys/{name}")


@contextlib.contextmanager
def keeping(place: Path, aside: Path) -> Iterator[None]:
    """Mounts again, at the end, what was mounted below a place: an overlay hides it.

    Some machines have their driver's folder mounted at /usr/local/nvidia.
    """
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = {Path(line.split()[4]) for line in lines}
    below = sorted(point for point in points if place in point.parents)
    # A mount brings those below it along.
    tops = [point for point in below if not {*point.parents} & {*below}]
    for index, point in enumerate(tops):
        copy = aside / str(index)
        if point.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
        mount("--rbind", point, copy)
        # Else the end of a copy would end what is mounted below its original.
        mount("--make-rprivate", copy)
    yield
    for index, point in enumerate(tops):
        mount("--rbind", aside / str(index), point)
        subprocess.run(["umount", "--lazy", aside / str(index)], check=True)


def reap() -> None:
    """Reap the processes that have no other parent."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    prepare(Path(sys.argv[1]))
    print("ready", flush=True)
    while True:
        signal.sigwait([signal.SIGCHLD])
        reap()


if __name__ == "__main__":
    main()
