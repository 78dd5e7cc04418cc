"""Whether an image has an ``/etc/ld.so.preload`` of its own, which the container's mount hides.

The libraries that it names are then not preloaded. A container cannot see that file any more, but
the directories of its image are on the node. A tenant writes them, so nothing there is opened, and
no symbolic link is followed.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_DIRECTORY = "etc"
_FILE = "ld.so.preload"


def has_image_preload(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether the image of a container has that file, or a link in its place.

    Args:
        pid: a process of the container.
        proc: the directory of processes; that of process 1 is the node's.
    """
    with suppress(OSError):
        # A process may have mounted something under any name.
        mounts = (proc / str(pid) / "mountinfo").read_text(errors="replace")
        return any(_has_file(proc / "1" / "root" / layer.lstrip("/")) for layer in layers(mounts))
    return False


def _has_file(layer: Path) -> bool:
    with suppress(OSError):
        directory = os.open(layer / _DIRECTORY, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.stat(_FILE, dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(directory)
        # In a layer, a device file stands for a file that was deleted.
        is_file = stat.S_ISREG(found.st_mode) and found.st_size > 0
        return is_file or stat.S_ISLNK(found.st_mode)
    return False


def layers(mountinfo: str) -> list[str]:
    """The directories of an image that a root file system of the kind overlay consists of."""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[4:5] == ["/"] and rest.startswith("overlay "):
            for option in rest.split()[-1].split(","):
                if option.startswith("lowerdir="):
                    return option.removeprefix("lowerdir=").split(":")
    return []
