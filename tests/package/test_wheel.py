"""The wheel, as a user installs it: one file for every CPython from 3.10, nothing missing."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.artifacts import ROOT
from support.elf import needed, readelf
from support.running import base_environment


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The last result of `make wheel`."""
    wheels = sorted((ROOT / "dist").glob("hami_py-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise FileNotFoundError("dist/hami_py-*.whl: not built; run `make wheel`")
    return wheels[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, in a folder that can be imported from."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_one_wheel_serves_every_python_and_every_glibc_from_2_17(wheel: Path) -> None:
    assert re.search(r"-cp310-abi3-manylinux2014_x86_64\.", wheel.name)


def test_it_contains_the_package_and_the_preload_library(installed: Path) -> None:
    sources = {path.relative_to(ROOT) for path in (ROOT / "hami_py").rglob("*.py")}
    packed = {path.relative_to(installed) for path in (installed / "hami_py").rglob("*.py")}
    assert packed == sources
    package = installed / "hami_py"
    for name in ("_native.abi3.so", "_native.pyi", "py.typed", "lib/libvgpu.so"):
        assert (package / name).is_file(), name
    built = ROOT / "hami_py" / "lib" / "libvgpu.so"
    assert (package / "lib" / "libvgpu.so").read_bytes() == built.read_bytes()


def test_the_extension_needs_an_old_glibc_and_no_libpython(installed: Path) -> None:
    extension = installed / "hami_py" / "_native.abi3.so"
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", extension))
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 17)
    assert not any("python" in name for name in needed(extension))


def test_it_runs_from_its_installed_directory(installed: Path) -> None:
    program = (
        "import hami_py as hami, hami_py.config as config; "
        "print(hami.limits().source, config.read().library.is_file(), hami.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**base_environment(), "PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["none", "True", str(installed / "hami_py" / "__init__.py")]


@pytest.mark.tier("torture")
@pytest.mark.timeout(900)
def test_another_folder_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Compiles everything again, for some minutes: the libraries had the names of their folder."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in listed.splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    when = subprocess.run(
        ["git", "log", "-1", "--format=%ct"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    # Without the variables of the make that runs the tests.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    make = ["make", "--old-file=.venv/.demo", "wheel", f"EPOCH={when.stdout.strip()}"]
    subprocess.run(make, cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "dist" / wheel.name).read_bytes() == wheel.read_bytes()
