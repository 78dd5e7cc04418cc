"""docs/containers.md: its Containerfile and its commands, run by podman on the stub.

podman has a mount namespace of its own, with an empty ``/run`` and its images on a tmpfs, so that
the machine's images and CDI devices stay as they are. The base image is that of the test clusters,
under the page's name; the card is a CDI device of the stub. Building the images takes half a
minute, once.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import image_layers
from hami_py._native import VERSION
from support.artifacts import ROOT, Artifacts
from support.requirements import skip_or_fail
from support.running import Run, Started, run
from support.stub import StubServer

pytestmark = pytest.mark.timeout(600)

PAGE = (ROOT / "docs" / "containers.md").read_text()
(CONTAINERFILE,) = re.findall(r"^```dockerfile\n(.*?)^```$", PAGE, re.M | re.S)
BUILD, RUN, PS, SET, OTHER_LIMIT = map(shlex.split, re.findall(r"^(podman .*)$", PAGE, re.M))

GIB = 1 << 30

#: The page's train.py here: it allocates all that it can, and ends when a file appears.
TRAIN = """
import json, pathlib, sys, time
from dataclasses import asdict
from hami_py.gpu.probe import probe
print(json.dumps(asdict(probe("allocate"))), flush=True)
while not pathlib.Path("/tmp/end").exists():
    time.sleep(0.05)
sys.exit(7)
"""

#: Where a container has the stub's libraries and its socket.
STUB, SOCKETS = Path("/opt/stub"), Path("/opt/sockets")

#: As in an official image of Python; pip finds the wheels that hami-py needs in a folder. The
#: variables are for `podman exec` too, which has none of a CDI device.
BASE = f"""
FROM scratch
ADD base.tar /
ENV LD_LIBRARY_PATH={STUB} STUB_GPU_SOCKET={SOCKETS}/gpu.sock HAMI_CONTEXT_MEMORY=0 HAMI_GRANULE=0
COPY pip /usr/lib/python3/dist-packages/pip
COPY wheels /wheels
RUN rm -f /usr/lib/python3*/EXTERNALLY-MANAGED \\
    && mkdir -p /usr/local/bin \\
    && printf '#!/bin/sh\\nexec python3 -m pip "$@"\\n' > /usr/local/bin/pip \\
    && chmod 755 /usr/local/bin/pip \\
    && printf '[global]\\nno-index = true\\nfind-links = /wheels\\nroot-user-action = ignore\\n' \\
        > /etc/pip.conf
"""

#: The private mounts. crun refuses the second hierarchy of a machine with both versions of cgroups.
MOUNTS = """
umount /sys/fs/cgroup/unified 2>/dev/null || true
[ ! -d /etc/cdi ] || mount -t tmpfs none /etc/cdi
mount -t tmpfs none /run
mount -t tmpfs none {store}
mkdir /run/cdi
echo ready
exec cat
"""


class Podman:
    """podman in the mount namespace of a process, with its configuration in ``folder``.

    A root without CAP_SYS_RESOURCE may not raise limits to podman's defaults: lower ones are set.
    """

    def __init__(self, folder: Path, keeper: int) -> None:
        self.folder, self._keeper = folder, keeper
        (folder / "containers.conf").write_text(
            "[containers]\n"
            'cgroups = "disabled"\n'
            'netns = "host"\n'
            'log_driver = "k8s-file"\n'
            'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder / "store"}"\n'
            'runroot = "/run/containers/storage"\n'
        )
        (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def words(self, *words: str) -> list[str]:
        """The command line that runs a command in the namespace and in the folder."""
        within = ["nsenter", "--mount", f"--target={self._keeper}"]
        return [*within, "sh", "-euc", 'cd "$0"; exec "$@"', str(self.folder), *words]

    def run(self, *words: str) -> Run:
        done = run(self.words(*words), self.env, deadline=300)
        assert done.code == 0, f"{words}: {done.out}{done.err}"
        return done

    def start(self, *words: str) -> Started:
        return Started(self.words(*words), self.env)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman, with the image that the page builds."""
    if os.geteuid() != 0:
        skip_or_fail("it needs root: run it as root")
    for program in ("podman", "crun"):
        if shutil.which(program) is None:
            skip_or_fail(f"missing: {program}: apt-get install podman crun")
    folder = tmp_path_factory.mktemp("podman")
    (folder / "store").mkdir()
    private = ["unshare", "--mount", "--propagation", "private", "sh", "-euc"]
    with Started([*private, MOUNTS.format(store=folder / "store")], {}) as keeper:
        keeper.wait_for("ready")
        podman = Podman(folder, keeper.pid)
        _base(podman)
        (folder / "Containerfile").write_text(CONTAINERFILE)
        (folder / "train.py").write_text(TRAIN)
        shutil.copy(_wheel(), folder)
        podman.run(*BUILD)
        yield podman
        podman.run("podman", "rm", "--all", "--force", "--time", "0")


def _wheel() -> Path:
    found = sorted(
        (ROOT / "dist").glob(f"hami_py-{VERSION}-*.whl"), key=lambda p: p.stat().st_mtime
    )
    assert found, "missing: the wheel; build it with: make wheel"
    return found[-1]


def _base(podman: Podman) -> None:
    """Build the tests' base under the name that the page has."""
    base, folder = image_layers.debian(), podman.folder / "base"
    folder.mkdir()
    shutil.copyfile(base.tar, folder / "base.tar")
    pip = image_layers.uv().with_name("pip")
    shutil.copytree(
        next(image_layers.uv().parents[1].glob("lib/python*/site-packages/pip")), folder / "pip"
    )
    version = image_layers.python(base).removeprefix("python")
    of = ("--only-binary=:all:", f"--python-version={version}", "--implementation=cp")
    image_layers.run(pip, "download", "--quiet", *of, f"--dest={folder / 'wheels'}", _wheel())
    (folder / "Containerfile").write_text(BASE)
    name = CONTAINERFILE.split()[1]
    podman.run("podman", "build", "--quiet", "--tag", name, "base")


@pytest.fixture
def gpu(podman: Podman, artifacts: Artifacts, tmp_path: Path) -> Iterator[StubServer]:
    """A stub card, and the CDI device of the page for it."""
    with StubServer(artifacts, tmp_path / "gpu", "a100") as server:
        server.client_socket.chmod(0o777)
        mounts = {artifacts.stub_dir: STUB, server.client_socket.parent: SOCKETS}
        edits = [
            {"hostPath": str(host), "containerPath": str(path), "options": ["bind"]}
            for host, path in mounts.items()
        ]
        kind, device = RUN[RUN.index("--device") + 1].split("=")
        devices = [{"name": device, "containerEdits": {"mounts": edits}}]
        specification = json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices})
        podman.run("sh", "-c", 'printf %s "$0" > /run/cdi/nvidia.json', specification)
        yield server


def _container(podman: Podman) -> str:
    (name,) = podman.run("podman", "ps", "--quiet").out.split()
    return name


def test_the_commands_of_the_page_limit_a_container(podman: Podman, gpu: StubServer) -> None:
    with podman.start(*RUN) as started:
        report = json.loads(started.next_line())
        assert (report["failed"], report["total"]) == (None, 4 * GIB)
        assert 0.99 * 4 * GIB <= gpu.held() <= 4 * GIB
        names = {"CONTAINER": _container(podman)}

        def typed(command: list[str]) -> str:
            return podman.run(*(names.get(word, word) for word in command)).out

        assert "train.py" in typed(PS)
        (slice_,) = json.loads(typed([*PS, "--json"]))
        (card,) = slice_["cards"]
        assert (card["memory_limit"], card["share"]) == (4 * GIB, 30)
        assert slice_["directory"].startswith("/tmp/hami-1000/")  # noqa: S108
        names["ID"] = slice_["id"]
        typed(SET)
        (slice_,) = json.loads(typed([*PS, "--json"]))
        assert slice_["cards"][0]["memory_limit"] == 6 * GIB
        # The container can be gone before podman has read the status of `touch`.
        end = ("podman", "exec", names["CONTAINER"], "touch", "/tmp/end")  # noqa: S108
        run(podman.words(*end), podman.env, deadline=300)
        done = started.finish()
    assert (done.code, done.err) == (7, "")


def test_another_entry_point_sets_another_limit(podman: Podman, gpu: StubServer) -> None:
    with podman.start(*OTHER_LIMIT) as started:
        assert json.loads(started.next_line())["total"] == 8 * GIB
        assert 0.99 * 8 * GIB <= gpu.held() <= 8 * GIB
        podman.run("podman", "stop", "--time", "20", _container(podman))
        # SIGTERM, which `hami run` passes on.
        assert started.finish().code == 128 + 15
