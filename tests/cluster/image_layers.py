"""Layers of container images: Debian's Python, Python packages and files, built on this machine.

There is no registry to pull a base from, and no container engine to build with. A layer is a tar,
built once and kept in the user's cache (`image_cache`). An upper layer is built in a copy of its
base, because that base's Python compiles it. That takes root (chroot), as a node does.
"""

import inspect
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import image_cache
from cluster.binaries import CannotBuild
from support.artifacts import ROOT

#: What the base is made of, besides the packages that these need. C++ is for Python's extensions.
PACKAGES = ("python3", "dash", "coreutils", "mount", "libstdc++6")

#: Left out, as in Debian's slim images.
_LEFT_OUT = tuple(f"./usr/share/{name}" for name in ("doc", "info", "lintian", "locale", "man"))

#: Builds of a layer that are kept: each wheel makes one, and other clones use others.
_KEPT = 4

#: Seconds that one step may take: far more than it needs on a busy machine.
_DEADLINE = 600.0


@dataclass(frozen=True)
class Layer:
    """A tar of files, and its SHA-256 in hexadecimal digits."""

    tar: Path
    digest: str


def debian() -> Layer:
    """The base: Python and a shell from this machine's Debian release, for glibc's users."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")

    def fill(work: Path) -> Path:
        root = work / "root"
        for folder in ("bin", "sbin", "lib", "lib64"):
            # Before any package is unpacked: in Debian /usr is merged.
            (root / "usr" / folder).mkdir(parents=True)
            (root / folder).symlink_to(f"usr/{folder}")
        for package in _download(work / "apt"):
            _unpack(package, root)
        for folder in ("dev", "proc", "sys", "run", "root", "tmp"):
            (root / folder).mkdir(exist_ok=True)
        (root / "tmp").chmod(0o1777)
        users = {"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\n"}
        for file, text in users.items():
            (root / "etc" / file).write_text(text)
        _compile(root, f"/usr/lib/{_python_of(root)}")
        return root

    return _kept("debian", [release, platform.machine(), PACKAGES, _LEFT_OUT], fill)


def python(base: Layer) -> str:
    """The name of the base's Python, such as ``python3.11``."""
    with tarfile.open(base.tar) as tar:
        return tar.getmember("./usr/bin/python3").linkname


def packages(
    name: str,
    base: Layer,
    place: str,
    *arguments: str | Path,
    requirements: str = "",
    recipe: Sequence[object] = (),
) -> Layer:
    """Python packages in the folder ``/place``, compiled by the base's Python.

    ``arguments`` tell `uv pip install` which packages; it reads ``requirements`` with ``-r -``.
    ``recipe`` determines what the arguments only name, such as the content of a wheel.
    """
    version = python(base).removeprefix("python")

    def fill(work: Path) -> Path:
        root, layer = work / "root", work / "layer"
        root.mkdir()
        run("tar", "--extract", f"--file={base.tar}", f"--directory={root}")
        _install(root / place, version, arguments, requirements)
        _compile(root, f"/{place}")
        (layer / place).parent.mkdir(parents=True)
        (root / place).rename(layer / place)
        return layer

    named = [each for each in arguments if isinstance(each, str)]
    return _kept(name, [base.digest, place, named, requirements, *recipe], fill)


def files(name: str, recipe: Sequence[object], fill: Callable[[Path], None]) -> Layer:
    """What ``fill`` puts into an empty folder; its code and ``recipe`` determine all of it."""

    def filled(work: Path) -> Path:
        (work / "layer").mkdir()
        fill(work / "layer")
        return work / "layer"

    return _kept(name, [inspect.getsource(fill), *recipe], filled)


def _kept(name: str, recipe: Sequence[object], fill: Callable[[Path], Path]) -> Layer:
    """The layer of this recipe; if it is not there, ``fill`` makes its files below a folder."""
    target = image_cache.place(name, Path(__file__).read_text(), recipe)

    def build(building: Path) -> None:
        work, tar = building / "work", building / "layer.tar"
        work.mkdir()
        _pack(fill(work), tar)
        shutil.rmtree(work)
        (building / "digest").write_text(run("sha256sum", tar).split()[0])

    image_cache.ensure(target, build, _KEPT)
    return Layer(target / "layer.tar", (target / "digest").read_text())


def _pack(folder: Path, tar: Path) -> None:
    """The same files make the same tar."""
    same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]
    run("tar", "--create", f"--file={tar}", *same, f"--directory={folder}", ".")


def _download(folder: Path) -> list[Path]:
    """The packages and all that they need, as apt-get finds them where none is installed."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    options = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        # Another user could not write here.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"--option={name}={value}" for name, value in options.items())]
    run(*apt, "update")
    run(*apt, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES)
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def _unpack(package: Path, root: Path) -> None:
    """Its files alone: no script of a package runs."""
    content = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(content, stdout=subprocess.PIPE) as files:
        left_out = [f"--exclude={each}" for each in _LEFT_OUT]
        extract = ["tar", "--extract", "--keep-directory-symlink", f"--directory={root}"]
        subprocess.run([*extract, *left_out], stdin=files.stdout, timeout=_DEADLINE, check=True)
    assert files.returncode == 0, package


def _python_of(root: Path) -> str:
    return str((root / "usr" / "bin" / "python3").readlink())


def _compile(root: Path, place: str) -> None:
    """Compile here what cannot be in a container with a read-only file system."""
    # By hash: a layer's files have no time of their own. As in deploy/image, without the half of
    # the package kubernetes that is not used.
    mode = ["--invalidation-mode", "unchecked-hash", "-x", "/kubernetes/aio/"]
    run("chroot", root, "/usr/bin/python3", "-m", "compileall", "-q", *mode, place)


def _install(
    target: Path, version: str, arguments: Sequence[str | Path], requirements: str
) -> None:
    """Install packages for this version of Python, whatever version runs here."""
    of = ["--python-version", version, "--python-platform", f"{platform.machine()}-manylinux_2_28"]
    # Another uv changes the link count of a linked file, and tar then refuses it as changed.
    only = ["--only-binary", ":all:", "--python", sys.executable, "--link-mode", "copy"]
    command = [uv(), "pip", "install", "--quiet", "--target", target, *of, *only, *arguments]
    run(*command, text=requirements)
    # Commands for the Python that installs.
    shutil.rmtree(target / "bin", ignore_errors=True)


def run(*command: str | Path, text: str = "") -> str:
    """The output of a command that reads this text.

    Raises:
        CannotBuild: there is no such program, or it failed.
    """
    if shutil.which(command[0]) is None:
        raise CannotBuild(f"missing: {command[0]}, which builds images")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        input=text,
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    if done.returncode != 0:
        line = " ".join(map(str, command))
        raise CannotBuild(f"cannot build an image; {line}: {done.stdout}{done.stderr}")
    return done.stdout


def uv() -> Path:
    """The program that `make setup` installs."""
    found = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, "the Makefile names no version of uv"
    program = image_cache.cache().with_name(f"uv-{found[1]}") / "bin" / "uv"
    if not program.is_file():
        raise CannotBuild(f"missing: {program}; install it with: make setup")
    return program
