"""Containers: programs in namespaces of their own, with a slot, as a container runtime starts them.

The mounts are those that containerd makes: a root of its own, its own ``/proc``, ``/dev`` and
``/tmp``, and those of the slot. The root is an overlay of this machine's, so that programs of the
machine run there. The user has containerd's default capabilities; ``container_init.c`` has the last
steps.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hami_py.node.slot import Bind, binds
from support.artifacts import ROOT, Artifacts
from support.running import Started
from support.seccomp import containerd_filter

#: Where a container has its slot, and in it the library.
INSIDE = Path("/usr/local/lib/hami")

#: What the root of a user namespace is outside: a user without rights.
OUTSIDE_ROOT = 200_000

_DEVICES = ("null", "zero", "full", "random", "urandom")

#: Directories of the image: all others at the top are the container's own.
_SYSTEM = {"bin", "etc", "lib", "lib32", "lib64", "opt", "sbin", "usr"}


@dataclass(frozen=True)
class Kind:
    """The properties of a container.

    Attributes:
        read_only_root: its root file system cannot be written.
        proc: it has ``/proc``.
        shm: the size of ``/dev/shm``, as mount(8) writes it.
        network: it has its own network namespace, without any network.
        seccomp: it has containerd's default seccomp profile.
    """

    read_only_root: bool = False
    proc: bool = True
    shm: str = "64m"
    network: bool = False
    seccomp: bool = False


@dataclass(frozen=True)
class ContainerUser:
    """The user of a container's programs: a number, in the user namespace of this file."""

    number: int
    namespace: Path | None = None


class Runtime:
    """Starts containers.

    Args:
        folder: a directory for its files, created if it is missing.
        init: the compiled ``container_init``.
        artifacts: the stub's libraries, and the library.
        shared: directories that the containers can read, at the same paths.
    """

    def __init__(
        self, folder: Path, init: Path, artifacts: Artifacts, shared: Sequence[Path]
    ) -> None:
        self._place = folder / "place"
        self._place.mkdir(parents=True, exist_ok=True)
        self._filter = folder / "filter"
        self._filter.write_bytes(containerd_filter())
        self._init = init
        self._library = artifacts.library
        python = [ROOT, Path(sys.base_prefix)]
        self._shared = [artifacts.stub_dir, *python, *shared]

    def prefix(
        self, env: Mapping[str, str], slot: Path, kind: Kind, user: ContainerUser
    ) -> list[str]:
        """The command line that starts a program as the first process of a new container.

        Only the program has the environment ``env``, and nothing of the caller's.
        """
        own_network = ["--net"] if kind.network else []
        start = [
            *("unshare", "--mount", "--propagation", "private", "--pid", "--fork"),
            *("--kill-child", *own_network, "--"),
        ]
        container_init = [
            self._init,
            self._root,
            user.namespace or "-",
            user.number,
            self._filter if kind.seccomp else "-",
            *("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"),
            *(f"{name}={value}" for name, value in env.items()),
        ]
        lines = [*map(_line, self._mounts(slot, kind)), f'exec {_line(container_init)} "$@"']
        return [*start, "sh", "-euc", "\n".join(lines), "sh"]

    @property
    def _root(self) -> Path:
        return self._place / "root"

    def _mounts(self, slot: Path, kind: Kind) -> Iterator[list[object]]:
        """The commands that prepare the container's root."""
        place, root = self._place, self._root
        layers = [place / name for name in ("upper", "work")]
        yield ["umask", "022"]
        yield ["mount", "-t", "tmpfs", "-o", "mode=755", "none", place]
        yield ["mkdir", root, *layers]
        options = f"lowerdir=/,upperdir={layers[0]},workdir={layers[1]}"
        yield ["mount", "-t", "overlay", "-o", options, "none", root]
        yield from self._own_directories()
        for path in self._shared:
            if path.parts[1] not in _SYSTEM:
                yield ["mkdir", "-p", _in(root, path)]
                yield from _bind(root, Bind(path, path, read_only=True))
        yield ["mkdir", root / "dev" / "shm"]
        for name in _DEVICES:
            yield ["touch", root / "dev" / name]
            yield ["mount", "--bind", f"/dev/{name}", root / "dev" / name]
        options = f"mode=1777,size={kind.shm}"
        yield ["mount", "-t", "tmpfs", "-o", options, "none", root / "dev" / "shm"]
        if kind.proc:
            yield ["mount", "-t", "proc", "none", root / "proc"]
        yield ["mkdir", "-p", _in(root, INSIDE)]
        for bind in binds(slot, self._library, INSIDE):
            yield from _bind(root, bind)
        if kind.read_only_root:
            yield ["mount", "-o", "remount,bind,ro", root]

    def _own_directories(self) -> Iterator[list[object]]:
        """The directories that hide the machine's."""
        tops = {path.parts[1] for path in self._shared} | {"dev", "proc", "tmp"}
        for top in sorted(tops - _SYSTEM):
            mode = "1777" if top == "tmp" else "755"
            yield ["mount", "-t", "tmpfs", "-o", f"mode={mode}", "none", self._root / top]


def _line(words: Sequence[object]) -> str:
    return shlex.join(str(word) for word in words)


def _bind(root: Path, bind: Bind) -> Iterator[list[object]]:
    yield ["mount", "--bind", bind.source, _in(root, bind.target)]
    if bind.read_only:
        yield ["mount", "-o", "remount,bind,ro", _in(root, bind.target)]


def _in(root: Path, path: Path) -> Path:
    """The path in a container's root."""
    return root / path.relative_to("/")


@contextmanager
def user_namespace() -> Iterator[Path]:
    """The file of a new user namespace, whose root is a user without rights outside."""
    with Started(["unshare", "--user", "sh", "-c", "echo ready; exec cat"], {}) as keeper:
        keeper.wait_for("ready")
        process = Path(f"/proc/{keeper.pid}")
        for name in ("uid_map", "gid_map"):
            (process / name).write_text(f"0 {OUTSIDE_ROOT} 65536\n")
        yield process / "ns" / "user"
