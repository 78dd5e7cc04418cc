"""A machine whose users share a stub card with `hami machine`, and the container runtimes on it.

All of it is in a mount namespace of its own: an empty ``/run``, and an ``/etc`` with two more users
and no CDI devices but the stub's. So the machine's users, images and devices stay as they are. The
image is busybox, the C library and a few programs.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from support.artifacts import ROOT, Artifacts
from support.launcher import until
from support.machine_users import SERVICE
from support.requirements import skip_or_fail
from support.running import Run, Started, run
from support.stub import StubServer
from support.users import User

#: Users that no machine has, and how many more each may have in its containers.
USERS = {"anna": 64_001, "bert": 64_002}
_SUBUIDS = 65_536

#: Where a container has the stub's libraries and its socket.
_STUB, _SOCKETS = Path("/opt/stub"), Path("/opt/sockets")

#: The name of the image.
IMAGE = "docker.io/library/programs:1"

#: The name of the container.
NAME = "one"

#: What a program needs to find the stub; for `exec` too, in which not all runtimes have a device's.
ENVIRONMENT = {"LD_LIBRARY_PATH": str(_STUB), "STUB_GPU_SOCKET": f"{_SOCKETS}/gpu.sock"}

#: What Docker, Podman and ctr make in each hierarchy of cgroups.
_CGROUPS = ("docker", "libpod_parent", "default")

#: Seconds that a command of a runtime may take: far more than any needs.
_DEADLINE = 300.0

#: Without the second hierarchy of a machine with both versions of cgroups, which runc refuses.
_MOUNTS = """
umount /sys/fs/cgroup/unified 2>/dev/null || true
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/cdi /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work none /etc
mkdir -p /etc/cdi
rm -f /etc/cdi/*
mount --bind {root} {place}/checkout
mount --bind {prefix} {place}/python
cat {place}/passwd >>/etc/passwd
cat {place}/subids >>/etc/subuid
cat {place}/subids >>/etc/subgid
{runtimes}
echo ready
exec cat
"""


class Site:
    """The machine, with the service on it.

    Args:
        place: a directory that all users can enter.
        gpu: the stub's card.
        artifacts: the library.
        policy: who may use how much.
    """

    def __init__(self, place: Path, gpu: StubServer, artifacts: Artifacts, policy: str) -> None:
        self.place, self.gpu, self._stack = place, gpu, contextlib.ExitStack()
        self._library = artifacts.library
        self.users = {name: User(uid, place / name) for name, uid in USERS.items()}
        for name in ("bin", "checkout", "python", "stub"):
            (place / name).mkdir()
        for file in (artifacts.libcuda, artifacts.stub_dir / "libnvidia-ml.so.1"):
            shutil.copy(file, place / "stub")
        (place / "stub" / "libcuda.so").symlink_to("libcuda.so.1")
        for path in (gpu.client_socket, *list(gpu.client_socket.parents)[:-2]):
            path.chmod(0o777 if path.is_socket() else 0o755)
        lines = (f"{name}:x:{uid}:{uid}::{place / name}:/bin/sh" for name, uid in USERS.items())
        (place / "passwd").write_text("".join(f"{line}\n" for line in lines))
        subids = (f"{name}:{at * _SUBUIDS}:{_SUBUIDS}\n" for at, name in enumerate(USERS, 4))
        (place / "subids").write_text("".join(subids))
        (place / "machine.toml").write_text(policy)
        python = Path(sys.executable).resolve().relative_to(sys.base_prefix)
        hami = place / "bin" / "hami"
        hami.write_text(f'#!/bin/sh\nexec {place}/python/{python} -m hami_py "$@"\n')
        hami.chmod(0o755)

    def __enter__(self) -> "Site":
        runtimes = "".join(
            f"mkdir -p /run/user/{uid}; chown {uid}:{uid} /run/user/{uid}\n"
            for uid in USERS.values()
        )
        mounts = _MOUNTS.format(
            root=ROOT, prefix=sys.base_prefix, place=self.place, runtimes=runtimes
        )
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", mounts]
        try:
            self._keeper = self._stack.enter_context(Started(private, {}))
            self._keeper.wait_for("ready")
            self.describe_cards()
            self.start_service()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()
        # The cgroups of the runtimes; one that has a process cannot be removed.
        for top in _CGROUPS:
            for path in Path("/sys/fs/cgroup").glob(f"*/{top}"):
                for folder in sorted(filter(Path.is_dir, path.rglob("*")), reverse=True):
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                with contextlib.suppress(OSError):
                    path.rmdir()

    @property
    def root(self) -> Path:
        """The root directory, as the programs of the machine see it."""
        return Path(f"/proc/{self._keeper.pid}/root")

    @property
    def containerd(self) -> Path:
        """The socket of containerd, if it runs."""
        return self.place / "containerd" / "socket"

    def describe_cards(self) -> None:
        """NVIDIA's specification of the stub's card."""
        mounts = {self.place / "stub": _STUB, self.gpu.client_socket.parent: _SOCKETS}
        edits = {
            "env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "mounts": [
                {"hostPath": str(host), "containerPath": str(path), "options": ["ro", "bind"]}
                for host, path in mounts.items()
            ],
        }
        devices = [
            {"name": uuid, "containerEdits": {"env": [f"STUB_CARD={uuid}"]}}
            for uuid in self.gpu.uuids()
        ]
        found = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
        text = json.dumps({**found, "containerEdits": edits})
        (self.root / "run" / "cdi" / "nvidia.json").write_text(text)

    def start_service(self) -> None:
        """Start the service."""
        python = self.place / "python" / Path(sys.executable).resolve().relative_to(sys.base_prefix)
        words = ("/run/hami", self.place / "state", self.place / "machine.toml")
        library = f"HAMI_LIBRARY={self._library}"
        self.service = self.start("root", "env", library, python, SERVICE, *words)
        until((self.root / "run/hami/machine.sock").exists, "the service listens")

    def run(self, user: str, *command: object) -> Run:
        """Run a program as a user, to its end."""
        return run(self._words(user, command), self._env(user), deadline=_DEADLINE)

    def start(self, user: str, *command: object) -> Started:
        """Start a program as a user; it ends with the machine at the latest."""
        return self._stack.enter_context(Started(self._words(user, command), self._env(user)))

    def _words(self, user: str, command: tuple[object, ...]) -> list[str]:
        enter = ["nsenter", "--mount", f"--target={self._keeper.pid}", "--wd=/", "--"]
        # The file of users is the namespace's, so by number.
        number = str(USERS.get(user, 0))
        who = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", "--"]
        return [*enter, *who, *map(str, command)]

    def _env(self, user: str) -> dict[str, str]:
        checkout = self.place / "checkout"
        packages = next((ROOT / ".venv" / "lib").glob("python3*/site-packages"))
        paths = [checkout, checkout / packages.relative_to(ROOT)]
        folder = self.place / user
        return {
            **self.gpu.env,
            "LD_LIBRARY_PATH": str(self.place / "stub"),
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "CONTAINERD_ADDRESS": str(self.containerd),
            "HOME": str(folder),
            "PYTHONPATH": ":".join(map(str, paths)),
            "XDG_RUNTIME_DIR": f"/run/user/{USERS.get(user, 0)}",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }


def image(place: Path, programs: list[Path]) -> Path:
    """The root of a container, as a tar."""
    root, busybox = place / "image", shutil.which("busybox")
    if busybox is None:
        skip_or_fail("missing: busybox: apt-get install busybox-static")
    for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "programs"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(busybox, root / "bin" / "busybox")
    for name in ("sh", "cat", "sleep", "id", "env", "touch", "ls"):
        (root / "bin" / name).symlink_to("busybox")
    for program in programs:
        shutil.copy(program, root / "programs")
    for library in sorted({each for program in programs for each in _libraries(program)}):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    with tarfile.open(place / "image.tar", "w") as tar:
        tar.add(root, ".", filter=_of_root)
    shutil.rmtree(root)
    return place / "image.tar"


#: What the stub and our library need beside what the programs do.
_MORE = ("libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "libm.so.6")


def _libraries(program: Path) -> Iterator[Path]:
    listed = subprocess.run(
        ["ldd", program], capture_output=True, text=True, check=True, timeout=60
    )
    for line in listed.stdout.splitlines():
        words = [Path(word) for word in line.split() if word.startswith("/")]
        if words and "libcuda" not in words[0].name:
            yield words[0]
            if words[0].name == "libc.so.6":
                yield from (words[0].with_name(name) for name in _MORE)


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    return member


class Podman:
    """Podman of a user, with images of its own.

    Its way to give containers' cgroups is the one that works without systemd.
    """

    def __init__(self, site: Site, user: str) -> None:
        if shutil.which("podman") is None or shutil.which("runc") is None:
            skip_or_fail("missing: podman or runc: apt-get install podman runc uidmap")
        self.site, self.user, self.program = site, user, "podman"
        #: More options of `run`.
        self.options: list[str] = []
        self._write(
            "containers.conf",
            "[containers]\n"
            'netns = "host"\n'
            'log_driver = "k8s-file"\n'
            'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n',
        )
        self._write(
            "storage.conf",
            f'[storage]\ndriver = "vfs"\ngraphroot = "{site.place / user / "store"}"\n'
            f'runroot = "/run/user/{USERS.get(user, 0)}/containers"\n',
        )

    def _write(self, name: str, text: str) -> None:
        folder = self.site.place / self.user
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    def __call__(self, *words: object) -> str:
        """The output of a command that succeeds."""
        done = self.site.run(self.user, "podman", *words)
        assert done.code == 0, (words, done)
        return done.out

    def inside(self, user: str, *command: object) -> str:
        """The output of a program in the running container, as one of its users."""
        return _inside(self, user, command)

    def close(self) -> None:
        """End its containers."""
        self("rm", "--all", "--force", "--time", "0")
        if self.user != "root":
            # The process that keeps its namespaces.
            self("system", "migrate")


#: In place of NVIDIA's hook, which Docker's --gpus starts. It notes for which cards; the stub is
#: mounted by options, since it is no driver that the hook could find.
_HOOK = """#!/bin/sh
bundle=$(sed 's/.*"bundle":"\\([^"]*\\)".*/\\1/')
grep -o 'NVIDIA_VISIBLE_DEVICES=[^"]*' "$bundle/config.json" >>{place}/hook
"""


class Docker:
    """Debian's Docker, which knows no CDI. A user may use its daemon."""

    def __init__(self, site: Site, user: str) -> None:
        daemon = shutil.which("dockerd", path="/usr/sbin:/usr/bin")
        if daemon is None:
            skip_or_fail("missing: dockerd: apt-get install docker.io")
        self.site, self.user, self.program = site, user, "docker"
        mounts = {site.place / "stub": _STUB, site.gpu.client_socket.parent: _SOCKETS}
        volumes = (f"--volume={host}:{path}" for host, path in mounts.items())
        variables = (f"--env={name}={value}" for name, value in ENVIRONMENT.items())
        self.options = [*volumes, *variables, "--network=none"]
        hook = site.place / "bin" / "nvidia-container-runtime-hook"
        hook.write_text(_HOOK.format(place=site.place))
        hook.chmod(0o755)
        # Another version may be in front of Debian's.
        (hook.parent / "docker").symlink_to("/usr/bin/docker")
        options = {
            "bridge": "none",
            "iptables": "false",
            "storage-driver": "vfs",
            "data-root": site.place / "docker",
            "exec-root": "/run/docker",
            "pidfile": "/run/docker.pid",
            "host": "unix:///run/docker.sock",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self._log = site.place / "docker.log"
        script = f'exec "$@" >{self._log} 2>&1'
        self._daemon = site.start("root", "sh", "-c", script, "sh", daemon, *words)

        def answers() -> bool:
            return site.run("root", "docker", "version").code == 0

        until(answers, "dockerd answers")
        (site.root / "run" / "docker.sock").chmod(0o666)

    def __call__(self, *words: object) -> str:
        """The output of a command that succeeds."""
        done = self.site.run(self.user, "docker", *words)
        assert done.code == 0, (words, done, self._log.read_text()[-2000:])
        return done.out

    def inside(self, user: str, *command: object) -> str:
        """The output of a program in the running container, as one of its users."""
        return _inside(self, user, command)

    @property
    def cards(self) -> list[str]:
        """For which cards the hook was started, once for each container."""
        lines = (self.site.place / "hook").read_text().splitlines()
        return [line.partition("=")[2] for line in lines]

    def close(self) -> None:
        """End its containers, and the daemon with what it has started."""
        for container in self("ps", "--all", "--quiet").split():
            self("rm", "--force", container)
        os.kill(self._daemon.pid, signal.SIGTERM)
        self._daemon.finish()


def _inside(runtime: Podman | Docker, user: str, command: tuple[object, ...]) -> str:
    variables = (f"--env={key}={value}" for key, value in ENVIRONMENT.items())
    return runtime("exec", "--interactive", f"--user={user}", *variables, NAME, *command)


class Ctr:
    """containerd with its own client, as root.

    Args:
        site: the machine.
        programs: the directory of containerd, its shim and ctr.
        archive: the image, as `podman save` writes it.
    """

    def __init__(self, site: Site, programs: Path, archive: Path) -> None:
        self.site, self.user, self.program, self.options = site, "root", "ctr", ["--net-host"]
        folder = site.place / "containerd"
        folder.mkdir()
        (folder / "config.toml").write_text(
            "version = 3\n"
            f'root = "{folder}/root"\nstate = "/run/containerd"\n'
            'disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",'
            ' "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]\n'
            f'[grpc]\naddress = "{site.containerd}"\n[ttrpc]\naddress = "{site.containerd}.ttrpc"\n'
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
            (site.place / "bin" / name).symlink_to(programs / name)
        log = folder / "log"
        script = f'exec containerd --config "$0" >{log} 2>&1'
        self._daemon = site.start("root", "sh", "-c", script, folder / "config.toml")

        def answers() -> bool:
            return site.run("root", "ctr", "version").code == 0

        until(answers, "containerd answers")
        self("images", "import", archive)

    def __call__(self, *words: object) -> str:
        """The output of a command that succeeds."""
        done = self.site.run("root", "ctr", *words)
        assert done.code == 0, (words, done)
        return done.out

    def inside(self, user: str, *command: object) -> str:
        """The output of a program in the running container, as one of its users."""
        return self(
            "tasks", "exec", f"--exec-id=e{os.urandom(4).hex()}", f"--user={user}", NAME, *command
        )

    def close(self) -> None:
        """End the daemon; its containers end with their programs."""
        os.kill(self._daemon.pid, signal.SIGTERM)
        self._daemon.finish()


Runtime: TypeAlias = Podman | Docker | Ctr
