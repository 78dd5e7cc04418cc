"""A file of an image is found, and nothing that a tenant put there is opened or followed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py.node.image_preload import has_image_preload

Put = Callable[[Path], object]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """/proc with the process 7, whose image has the layers `lower` and `upper`."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "root").symlink_to(tmp_path / "node")
    (tmp_path / "node" / "lower" / "etc").mkdir(parents=True)
    (tmp_path / "node" / "upper" / "etc").mkdir(parents=True)
    root = "1 0 0:9 / / rw - overlay overlay rw,lowerdir=/upper:/lower,upperdir=/u,workdir=/w"
    (tmp_path / "7").mkdir()
    # A process may mount something under a name that is no text.
    mounts = f"{root}\n2 1 0:8 / /mnt/".encode() + b"\xff rw - tmpfs tmpfs rw\n"
    (tmp_path / "7" / "mountinfo").write_bytes(mounts)
    return tmp_path


def test_an_image_without_the_file(proc: Path) -> None:
    assert not has_image_preload(7, proc)
    assert not has_image_preload(8, proc), "it has ended"


@pytest.mark.parametrize("layer", ["lower", "upper"])
def test_the_file_of_any_layer_is_found(proc: Path, layer: str) -> None:
    (proc / "node" / layer / "etc" / "ld.so.preload").write_text("/usr/lib/libtcmalloc.so\n")
    assert has_image_preload(7, proc)


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (lambda path: path.symlink_to("../../secret"), True),
        (lambda path: path.symlink_to("/dev/zero"), True),
        (os.mkfifo, False),
        (Path.touch, False),
        (Path.mkdir, False),
    ],
)
def test_other_things_in_its_place_are_not_opened(proc: Path, put: Put, found: bool) -> None:
    put(proc / "node" / "upper" / "etc" / "ld.so.preload")
    assert has_image_preload(7, proc) is found


def test_a_link_in_place_of_the_directory_is_not_followed(proc: Path) -> None:
    (proc / "node" / "secret").mkdir()
    (proc / "node" / "secret" / "ld.so.preload").write_text("x")
    (proc / "node" / "upper" / "etc").rmdir()
    (proc / "node" / "upper" / "etc").symlink_to("../secret")
    assert not has_image_preload(7, proc)
