"""docs/containers.md: the page's entry point, environment, user and tmpfs in a container of runc.

The root file system is an overlay of this machine's, so what `pip install` would put into the image
is a script. The stub's ledger says what the container's program held.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.artifacts import ROOT, Artifacts
from support.running import Started, run
from support.stub import StubServer

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a container of runc needs root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not here"),
]

PAGE = (ROOT / "docs" / "containers.md").read_text()
GIB = 1 << 30

#: What the page's train.py does here: it allocates all that it can, and ends with its input.
TRAIN = """
import json, sys
from dataclasses import asdict
from hami_py.gpu.probe import probe
print(json.dumps(asdict(probe("allocate"))), flush=True)
sys.stdin.read()
sys.exit(7)
"""


def instruction(name: str) -> str:
    """The value of an instruction of the page's Containerfile."""
    (file,) = re.findall(r"^```dockerfile\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (value,) = re.findall(rf"^{name} (.*)$", file, re.MULTILINE)
    return str(value)


class Container:
    """A container of runc, named after its folder."""

    def __init__(self, folder: Path, artifacts: Artifacts, gpu: StubServer) -> None:
        self.name, self.bundle = f"hami-test-{os.getpid()}-{folder.name}", folder
        self.state = folder / "state"
        self._write(artifacts, gpu)

    def _write(self, artifacts: Artifacts, gpu: StubServer) -> None:
        root = self.bundle / "rootfs"
        shared = [ROOT, Path(sys.base_prefix), artifacts.stub_dir, gpu.client_socket.parent]
        for path in [*shared, Path("/opt/hami/bin"), Path("/srv"), Path("/tmp"), Path("/proc")]:  # noqa: S108
            (root / str(path)[1:]).mkdir(parents=True, exist_ok=True)
        # runc gives a tmpfs the mode of the image's directory.
        (root / "tmp").chmod(0o1777)
        image = {"hami": f'#!/bin/sh\nexec {sys.executable} -m hami_py "$@"\n'}
        image["python3"] = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for name, text in image.items():
            (root / "opt/hami/bin" / name).write_text(text)
            (root / "opt/hami/bin" / name).chmod(0o755)
        (root / "srv/train.py").write_text(TRAIN)
        tmpfs = re.findall(r"^docker run .*--tmpfs (\S+) ", PAGE, re.MULTILINE)
        uid, gid = map(int, instruction("USER").split(":"))
        path = instruction("ENV").removeprefix("PATH=").replace("$PATH", "/usr/bin:/bin")
        binds = [*shared, *map(Path, ("/usr", "/bin", "/lib", "/lib64", "/etc", "/dev"))]
        for each in binds:
            (root / str(each)[1:]).mkdir(parents=True, exist_ok=True)
        env = {
            **gpu.env,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "HAMI_LIBRARY": str(artifacts.library),
        }
        # Docker's options of a tmpfs.
        options = ["rw", "noexec", "nosuid", "nodev", "mode=1777"]
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": [*json.loads(instruction("ENTRYPOINT")), *json.loads(instruction("CMD"))],
                "env": [f"{name}={value}" for name, value in env.items()],
                "cwd": "/",
                "noNewPrivileges": True,
            },
            "root": {"path": "rootfs", "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                *(
                    {
                        "destination": str(each),
                        "type": "bind",
                        "source": str(each),
                        "options": ["rbind", "ro"],
                    }
                    for each in binds
                    if not each.is_relative_to("/tmp")  # noqa: S108
                ),
                *(
                    {"destination": each, "type": "tmpfs", "source": "tmpfs", "options": options}
                    for each in tmpfs
                ),
                *(
                    {
                        "destination": str(each),
                        "type": "bind",
                        "source": str(each),
                        "options": ["rbind"],
                    }
                    for each in binds
                    if each.is_relative_to("/tmp")  # noqa: S108
                ),
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            },
        }
        (self.bundle / "config.json").write_text(json.dumps(config))

    def runc(self, *arguments: str) -> list[str]:
        return ["runc", "--root", str(self.state), *arguments]

    def start(self) -> Started:
        return Started(self.runc("run", "--bundle", str(self.bundle), self.name), {})

    def exec(self, *command: str) -> Any:
        done = run(self.runc("exec", self.name, *command), {})
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out) if done.out else None

    def remove(self) -> None:
        subprocess.run(self.runc("delete", "--force", self.name), check=False, timeout=60)


@pytest.fixture
def container(
    artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], tuple[Container, StubServer]]]:
    with ExitStack() as ends:

        def make() -> tuple[Container, StubServer]:
            folder = tmp_path_factory.mktemp("container")
            # The container's user is not root, and pytest's directories are root's alone.
            place = Path("/run") / f"hami-test-{os.getpid()}"
            place.mkdir(mode=0o755)
            ends.callback(shutil.rmtree, place, ignore_errors=True)
            gpu = ends.enter_context(StubServer(artifacts, place / "gpu", "a100"))
            gpu.client_socket.chmod(0o777)
            made = Container(folder, artifacts, gpu)
            ends.callback(made.remove)
            return made, gpu

        yield make


def test_the_entry_point_of_the_page_limits_the_program(
    container: Callable[[], tuple[Container, StubServer]],
) -> None:
    made, gpu = container()
    with made.start() as started:
        report = json.loads(started.next_line())
        assert (report["failed"], report["total"]) == (None, 4 * GIB)
        assert 0.99 * 4 * GIB <= gpu.held() <= 4 * GIB
        (slice_,) = made.exec("hami", "ps", "--json")
        (card,) = slice_["cards"]
        assert (card["memory_limit"], card["share"]) == (4 * GIB, 30)
        assert slice_["directory"].startswith("/tmp/hami-1000/")  # noqa: S108
        made.exec("hami", "set", slice_["id"], "--gpumem", "6GiB")
        (slice_,) = made.exec("hami", "ps", "--json")
        assert slice_["cards"][0]["memory_limit"] == 6 * GIB
        done = started.finish()
    assert (done.code, done.err) == (7, "")
