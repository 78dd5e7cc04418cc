"""The release before this one, to upgrade from and to go back to.

It is the newest tag ``v*`` before HEAD, built once into the user's cache. Before the first release
it is what is here, with another library file: containers and agents of both have files of their
own. HAMI_RELEASE_BEFORE names another commit.

`next_format` is HEAD with another format of the files of a slice, as a later release may have it.
"""

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cluster import binaries, charts, image_layers, images
from cluster.images import Image
from support.artifacts import ROOT

TAG, NEXT = "before", "next"

_LIBRARY = "libvgpu.so"

#: Seconds. Most of it compiles the library.
_BUILD_S = 1800.0


@dataclass(frozen=True)
class Release:
    """Its image and its chart, and what it is."""

    image: Image
    chart: Path
    name: str


def before(folder: Path) -> Release:
    """The release before; ``folder`` is for files."""
    commit = os.environ.get("HAMI_RELEASE_BEFORE") or _newest_tag()
    if commit is None:
        return _release(repacked(images.wheel(), folder), charts.CHART, "this one")
    return _of(_built(_git("rev-parse", f"{commit}^{{commit}}")), TAG, commit)


def next_format() -> Release:
    """HEAD with another format of the files of a slice."""
    return _of(_built(_git("rev-parse", "HEAD"), has_next_format=True), NEXT, "HEAD")


def _of(built: Path, tag: str, name: str) -> Release:
    (wheel,) = built.glob("*.whl")
    return _release(wheel, built / "chart", name, tag)


def _release(wheel: Path, chart: Path, name: str, tag: str = TAG) -> Release:
    return Release(images.hami(image_layers.debian(), wheel, tag), chart, name)


def _newest_tag() -> str | None:
    found = _git("tag", "--list", "v*", "--sort=-version:refname", "--no-contains", "HEAD")
    return found.splitlines()[0] if found else None


def repacked(wheel: Path, folder: Path) -> Path:
    """The wheel with a byte more at the end of its library, which no program reads."""
    other = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.infolist():
            more = b"\0" if Path(each.filename).name == _LIBRARY else b""
            new.writestr(each, old.read(each) + more)
    return other


def _built(commit: str, *, has_next_format: bool = False) -> Path:
    """The wheel and the chart of a commit."""
    place = binaries.cache().parent / "releases" / (f"{commit}-next" if has_next_format else commit)
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            sources = Path(folder) / "sources"
            sources.mkdir()
            archive = subprocess.run(
                ["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True
            )
            subprocess.run(["tar", "-x"], cwd=sources, input=archive.stdout, check=True)
            if has_next_format:
                _raise_format(sources / "native/limits/src/file.rs")
            subprocess.run(["make", "wheel"], cwd=sources, check=True, timeout=_BUILD_S)
            done = Path(folder) / "done"
            shutil.copytree(sources / "deploy" / "chart", done / "chart")
            for wheel in (sources / "dist").glob("*.whl"):
                shutil.copy(wheel, done)
            done.rename(place)
    return place


def _raise_format(file: Path) -> None:
    text, count = re.subn(r"(const FORMAT: u32 = )\d+", r"\g<1>99", file.read_text())
    assert count == 1
    file.write_text(text)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
