"""`make image`: by whichever builder there is, and said where there is none; nothing is built."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from support.artifacts import ROOT

#: The version that the chart takes.
TAG = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())["appVersion"]

NAME = f"docker.io/library/hami-py:{TAG}"

#: The programs that the recipe and make itself run.
TOOLS = ("bash", "cp", "cut", "git", "grep", "id", "mkdir", "python3", "rm", "sed", "uname")

#: Answers `info`, and writes down how it was called.
ANSWERS = '#!/bin/bash\n[ "$1" = info ] || printf "%s\\n" "${0##*/}" "$@" > "$0.called"\n'
#: Is there, but its daemon is not.
SILENT = "#!/bin/bash\nexit 1\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The one folder of the path: no builder of this machine is in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def make(
    programs: Path, *more: str, has_wheel: bool = True, target: str = "image"
) -> subprocess.CompletedProcess[str]:
    """`make image` of the wheel that is in dist/, in a context of its own."""
    make = shutil.which("make")
    assert make
    context = programs.parent / "context"
    return subprocess.run(
        [
            make,
            *(["--old-file=wheel"] if has_wheel else []),
            *(target, "UV=true", f"IMAGE_CONTEXT={context}", *more),
        ],
        cwd=ROOT,
        env={"PATH": str(programs), "HOME": str(programs.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_first_builder_that_answers_builds(programs: Path) -> None:
    put(programs, "docker", SILENT)
    put(programs, "podman", ANSWERS)
    put(programs, "buildah", ANSWERS)
    done = make(programs, "IMAGE=registry.example/hami-py", "IMAGE_FLAGS=--pull --no-cache")
    assert done.returncode == 0, done.stderr
    called = (programs / "podman.called").read_text().splitlines()
    assert not (programs / "buildah.called").exists()
    assert called[0:2] == ["podman", "build"]
    assert called[called.index("--tag") + 1] == f"registry.example/hami-py:{TAG}"
    assert f"VERSION={TAG}" in called
    assert called[-3:] == ["--pull", "--no-cache", str(programs.parent / "context")]
    # The wheel alone: `uv` was not run here.
    (wheel,) = (programs.parent / "context").iterdir()
    assert wheel.name.startswith(f"hami_py-{TAG}-")


def test_buildah_needs_no_runtime_and_builds_the_same_again(programs: Path) -> None:
    put(programs, "buildah", ANSWERS)
    assert make(programs, "BASE=localhost/base:1", "EPOCH=7").returncode == 0
    called = (programs / "buildah.called").read_text().splitlines()
    assert called[:6] == ["buildah", "build", "--isolation", "chroot", "--timestamp", "7"]
    assert called[called.index("BASE=localhost/base:1") - 1] == "--build-arg"


@pytest.mark.parametrize(
    ("builder", "saves"),
    [
        ("docker", ["save", "--output", "FILE", NAME]),
        ("buildah", ["push", "--quiet", NAME, f"docker-archive:FILE:{NAME}"]),
    ],
)
def test_an_archive_of_the_image_is_written(programs: Path, builder: str, saves: list[str]) -> None:
    put(programs, builder, ANSWERS)
    file = str(programs.parent / "image.tar")
    put(programs, "du", SILENT.replace("1", "0"))
    done = make(programs, "--old-file=image", f"ARCHIVE={file}", target="image-archive")
    assert done.returncode == 0, done.stderr
    assert (programs / f"{builder}.called").read_text().splitlines() == [
        builder,
        *(each.replace("FILE", file) for each in saves),
    ]


def test_a_missing_builder_is_reported_before_the_wheel_is_built(programs: Path) -> None:
    """The wheel took minutes, and then there was no image."""
    put(programs, "docker", SILENT)
    done = make(programs, has_wheel=False)
    assert done.returncode != 0
    assert done.stderr.startswith("missing: docker, podman, nerdctl or buildah")


@pytest.mark.parametrize("missing", ["git", "cargo", "python3"])
def test_check_fresh_first_names_a_missing_program(programs: Path, missing: str) -> None:
    put(programs, "cargo", SILENT)
    (programs / missing).unlink()
    done = make(programs, has_wheel=False, target="check-fresh")
    assert done.returncode != 0
    assert done.stderr.startswith(f"missing: {missing} ("), done.stderr
