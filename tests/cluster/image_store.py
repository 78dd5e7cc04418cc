"""containerd's root folder with images in it: to import them takes seconds, to link it does not.

The first node with some images imports them, and keeps the folder in the user's cache. Later nodes
start with hard links to its files. containerd writes to its databases alone, which are copied. The
files of images are only read, by containers too.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster import image_cache
from cluster.images import Image, configuration

#: Folders that are kept, each of hundreds of megabytes.
_KEPT = 2


def folder(images: Sequence[Image], programs: Path) -> Path:
    """Where the root with these images is or will be, for the containerd of this folder."""
    each = [(image.name, configuration(image)) for image in images]
    return image_cache.place("store", Path(__file__).read_text(), programs.name, each)


def keep(root: Path, target: Path) -> None:
    """Keep the root of a containerd that has stopped."""
    image_cache.ensure(target, lambda building: link(root, building), _KEPT)


def link(source: Path, target: Path) -> None:
    """Link a root's files, but copy its databases."""
    # It must not go on after a test that was killed: its folder is removed then.
    copy = ["setpriv", "--pdeathsig", "KILL", "--", "cp", "--archive", "--no-target-directory"]
    done = subprocess.run([*copy, "--link", source, target], check=False, capture_output=True)
    if done.returncode != 0:
        # They are on two file systems.
        subprocess.run([*copy, source, target], check=True, capture_output=True)
        return
    for database in target.rglob("*.db"):
        database.unlink()
        shutil.copyfile(source / database.relative_to(target), database)
