"""`make image` and `images.hami`, the faster way of the tests, make the same image.

Both build on the tests' base. buildah keeps its images in a folder of the test, and pip reads the
locked wheels from a server of the test.
"""

import fnmatch
import hashlib
import http.server
import json
import os
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster import image_layers, images
from cluster.images import Image
from hami_py._native import VERSION
from support.artifacts import ROOT

pytestmark = [
    pytest.mark.tier("torture"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="it needs root: run it as root"),
    pytest.mark.skipif(
        shutil.which("buildah") is None, reason="missing: buildah: apt-get install buildah"
    ),
]

#: The base of both, under the name that `make image` is given.
BASE = "localhost/hami-py-tests/base"
PATH = "PATH=/usr/local/bin:/usr/bin:/bin"

#: What differs, and why.
DIFFERS = {
    "usr/lib/python3/dist-packages/pip*": "deploy/image/Dockerfile needs it from its base",
    "etc/hostname": "buildah's empty mount point; a container runtime mounts its own file",
    "etc/hosts": "as etc/hostname",
    "etc/resolv.conf": "as etc/hostname",
    "opt/hami/bin/*": "scripts of a virtual environment, and commands that no pod names",
    "opt/hami/include*": "empty folders of a virtual environment",
    "opt/hami/lib64": "a link of a virtual environment",
    "opt/hami/pyvenv.cfg": "it names the command that made it",
    "*/site-packages/.lock": "left by uv",
    "*.dist-info/uv_cache.json": "left by uv",
    "*.dist-info/INSTALLER": "pip here, uv there",
    "*.dist-info/RECORD": "the installer's list, with its own files",
    "*.dist-info/direct_url.json": "the wheel's path",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[str]:
    """The URL of an index with the wheels of uv.lock for the base's Python."""
    python = image_layers.python(image_layers.debian()).removeprefix("python")
    folder = tmp_path / "index"
    folder.mkdir()
    requirements = folder / "requirements.txt"
    requirements.write_text(images.locked("--no-default-groups", "--extra", "kubernetes"))
    pip = image_layers.uv().with_name("pip")
    of = ("--only-binary=:all:", f"--python-version={python}", "--implementation=cp")
    platforms = [f"--platform=manylinux{name}_x86_64" for name in ("_2_28", "2014", "_2_17")]
    into = ("--no-deps", "--require-hashes", f"--requirement={requirements}", f"--dest={folder}")
    image_layers.run(pip, "download", "--quiet", *of, *platforms, *into)
    requirements.unlink()
    for wheel in [*folder.iterdir()]:
        name = re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()
        (folder / name).mkdir(exist_ok=True)
        wheel.rename(folder / name / wheel.name)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Buildah:
    """buildah, with a store of its own in ``folder``."""

    def __init__(self, folder: Path) -> None:
        configuration = folder / "storage.conf"
        configuration.write_text(
            "[storage]\n"
            'driver = "overlay"\n'
            f'graphroot = "{folder / "store"}"\n'
            f'runroot = "{folder / "run"}"\n'
        )
        self.env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(configuration)}
        # Of the make that runs the tests.
        self.env.pop("MAKEFLAGS", None)

    def __call__(self, *command: str | Path) -> str:
        return self.run("buildah", *command)

    def run(self, *command: str | Path) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout.strip()


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    program = Buildah(tmp_path)
    yield program
    program("umount", "--all")
    program("rm", "--all")
    program("rmi", "--all", "--force")


def make_image(buildah: Buildah, folder: Path, pages: str) -> str:
    """Runs `make image` on the tests' base; the image's name."""
    container = buildah("from", "scratch")
    buildah("add", container, image_layers.debian().tar, "/")
    pip = next(image_layers.uv().parents[1].glob("lib/python*/site-packages/pip"))
    buildah("add", container, pip, "/usr/lib/python3/dist-packages/pip")
    buildah("config", "--env", PATH, container)
    buildah("commit", "--quiet", container, BASE)
    name = "localhost/hami-py"
    buildah.run(
        *("make", "--old-file=wheel", "image", "BUILDER=buildah"),
        *(f"BASE={BASE}", f"IMAGE={name}", f"IMAGE_CONTEXT={folder / 'context'}"),
        f"IMAGE_FLAGS=--build-arg PIP_INDEX_URL={pages}",
    )
    return f"{name}:{VERSION}"


def unpacked(image: Image, root: Path) -> Path:
    """The files of an image of the tests."""
    root.mkdir()
    for layer in image.layers:
        # A folder that a layer has, too, keeps the mode of the last one, as in a container runtime.
        how = ("--numeric-owner", "--same-owner", "--preserve-permissions")
        image_layers.run("tar", "--extract", f"--file={layer.tar}", f"--directory={root}", *how)
    return root


def files(root: Path) -> dict[str, tuple[object, ...]]:
    """Each path with its kind and mode, its owners, and its content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        content = ""
        if stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        owners = (status.st_uid, status.st_gid)
        found[str(path.relative_to(root))] = (stat.filemode(status.st_mode), *owners, content)
    return found


def test_make_image_makes_the_image_of_the_tests(
    buildah: Buildah, pages: str, tmp_path: Path
) -> None:
    ours = images.hami(image_layers.debian(), images.wheel())
    name = make_image(buildah, tmp_path, pages)
    made = files(Path(buildah("mount", buildah("from", name))))
    tests = files(unpacked(ours, tmp_path / "tests"))
    assert {"usr/bin/python3", "opt/hami/bin/hami", "etc/passwd"} <= {*made} & {*tests}
    differing = {path for path in {*made, *tests} if made.get(path) != tests.get(path)}
    unnamed = sorted(
        f"{path}: {made.get(path)} {tests.get(path)}"
        for path in differing
        if not any(fnmatch.fnmatch(path, each) for each in DIFFERS)
    )
    assert not unnamed, "\n".join(unnamed)
    assert {each for each in DIFFERS if not fnmatch.filter(differing, each)} == set()

    config: dict[str, Any] = json.loads(buildah("inspect", "--type=image", name))["OCIv1"]["config"]
    labels = config.pop("Labels")
    assert {key: config[key] for key in ours.config} == ours.config
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}version"] == VERSION
    assert {f"{prefix}{each}" for each in ("title", "revision", "licenses")} <= {*labels}
