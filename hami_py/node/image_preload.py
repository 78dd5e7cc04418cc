"""Whether an image has an ``/etc/ld.so.preload`` of its own, which the container's mount hides.

The libraries that it names are then not preloaded. A container cannot see that file any more, but
the directories of its image can be read from outside.
"""

from contextlib import suppress
from pathlib import Path

_FILE = "etc/ld.so.preload"


def image_preload(pid: int, proc: Path = Path("/proc")) -> str | None:
    """The contents of the file in the image of a container; None = the image has none.

    Args:
        pid: a process of the container.
        proc: the directory of processes; that of process 1 is the node's.
    """
    try:
        mounts = (proc / str(pid) / "mountinfo").read_text()
    except OSError:
        return None
    for layer in layers(mounts):
        # Of the process, the path may be relative to its own root.
        with suppress(OSError):
            text = (proc / "1" / "root" / layer.lstrip("/") / _FILE).read_text(errors="replace")
            if text.strip():
                return " ".join(text.split())
    return None


def layers(mountinfo: str) -> list[str]:
    """The directories of an image that a root file system of the kind overlay consists of."""
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[4] == "/" and rest.startswith("overlay "):
            for option in rest.split()[-1].split(","):
                if option.startswith("lowerdir="):
                    return option.removeprefix("lowerdir=").split(":")
    return []
