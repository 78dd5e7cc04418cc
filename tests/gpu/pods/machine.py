"""Checks whether a machine can run a node, and mounts our folders, which end with this process.

All that is mounted is in a mount namespace of this process. The files of the cluster are on a
tmpfs: a container runtime mounts overlays, which is not possible on a disk that is one itself.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")

#: Programs of util-linux, which every distribution has.
_PROGRAMS = ("unshare", "nsenter", "setpriv", "mount")

#: The most bytes of files and memory that the cluster's places may take.
_SIZE = "16g"

#: The file of all programs of Kubernetes, if they travel in one, and its names.
_TOGETHER = "kubernetes"
_KUBERNETES = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"),
)

#: The folders that `pack` makes.
PARTS = ("programs", "node", "image")


class Unfit(Exception):
    """The machine cannot run a node; the message is one line that says why."""


def check_user() -> None:
    """Check what is needed for a mount namespace.

    Raises:
        Unfit: it is missing.
    """
    if os.geteuid() != 0:
        raise Unfit("a node needs root")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise Unfit(f"missing: {', '.join(missing)}")
    _try(["unshare", "--mount", "--pid", "--fork", "true"], "no mount and PID namespaces")


def scratch() -> Path:
    """A tmpfs for all files, which also the cluster's code puts its own on.

    Raises:
        Unfit: nothing can be mounted.
    """
    place = Path(tempfile.mkdtemp(prefix="gpu-pods-"))
    _try(["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=755", "tmpfs", place], "no tmpfs")
    (place / "tmp").mkdir()
    os.environ |= {"TMPDIR": str(place / "tmp"), "XDG_CACHE_HOME": str(place / "cache")}
    tempfile.tempdir = None
    return place


def check(place: Path) -> None:
    """Check what else a node needs; cgroups are mounted if they are not.

    Raises:
        Unfit: it is missing.
    """
    test = place / "check"
    for name in ("lower", "upper", "work", "merged"):
        (test / name).mkdir(parents=True)
    overlay(test / "lower", test)
    subprocess.run(["umount", test / "merged"], check=True)
    _check_cgroups()
    pair = ["add", "gpu-pods-a", "type", "veth", "peer", "name", "gpu-pods-b"]
    _try(["ip", "link", *pair], "no veth, which the pods' network consists of")
    _try(["ip", "link", "delete", "gpu-pods-a"], "a veth cannot be deleted")


def overlay(lower: Path, folder: Path) -> Path:
    """A copy of a folder that can be written to, without what is mounted below it."""
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    command = ["mount", "-t", "overlay", "-o", options, "overlay", folder / "merged"]
    _try(command, f"no overlay of {lower} on a tmpfs")
    return folder / "merged"


def bind(source: Path, target: Path) -> None:
    """Show what is mounted at a place at another one too."""
    _try(["mount", "--rbind", source, target], f"{source} cannot be mounted again")


def _check_cgroups() -> None:
    if not _CGROUPS.is_dir():
        raise Unfit("no /sys/fs/cgroup")
    if not any(_CGROUPS.iterdir()):
        _try(["mount", "-t", "cgroup2", "cgroup2", _CGROUPS], "no cgroups")
    if (_CGROUPS / "cgroup.controllers").exists():
        present, places = (_CGROUPS / "cgroup.controllers").read_text().split(), [_CGROUPS]
        wanted = ("cpu", "cpuset", "memory", "pids")
    else:
        places = [path for path in _CGROUPS.iterdir() if path.is_dir()]
        present = [path.name for path in places]
        wanted = ("cpu", "cpuset", "memory", "pids", "devices")
    missing = [name for name in wanted if name not in present]
    if missing:
        raise Unfit(f"no cgroup controller {', '.join(missing)}; there are: {' '.join(present)}")
    for path in places:
        test = path / "gpu-pods-check"
        try:
            test.mkdir()
            test.rmdir()
        except OSError as error:
            raise Unfit(f"no cgroup can be made in {path}: {error.strerror}") from error


def unpack(parts: Path, place: Path) -> Path:
    """All files of the archives, or of the folders of the same names, in one folder of ours."""
    target = place / "programs"
    target.mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: _unpack(parts / name, target), PARTS))
    if (target / _TOGETHER).exists():
        for name in _KUBERNETES:
            (target / name).symlink_to(_TOGETHER)
    if shutil.which("ip") is None:
        (target / "ip").symlink_to("busybox")
    os.environ["PATH"] = f"{target}:{os.environ['PATH']}"
    return target


def _unpack(part: Path, target: Path) -> None:
    archive = part.with_name(f"{part.name}.tar.xz")
    if archive.is_file():
        with tarfile.open(archive) as tar:
            # Ours; the filter that is safe for others came with Python 3.12.
            tar.extractall(target)  # noqa: S202
    else:
        shutil.copytree(part, target, dirs_exist_ok=True)
    # Some ways to copy a folder lose file modes.
    for file in target.iterdir():
        if file.is_file() and not file.is_symlink():
            file.chmod(0o755)


def missing_parts(parts: Path) -> list[str]:
    """The parts that did not travel here."""
    return [
        name
        for name in PARTS
        if not (parts / name).is_dir() and not (parts / f"{name}.tar.xz").is_file()
    ]


def _try(command: list[str | Path], problem: str) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise Unfit(f"{problem}: {said}")
