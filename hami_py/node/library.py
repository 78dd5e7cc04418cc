"""The installed preload library, and the hook that checks a container's mounts.

Containers mount the library from the node's disk. Each version has a directory of its own, which is
never changed: a running container keeps its library through an upgrade, and a container that
restarts gets the same one again, because the kubelet has recorded its path.

    /var/lib/hami/library/<format>-<digest>/libvgpu.so
                                            ld.so.preload
                                            hami-hook
                                            slot/

A container whose users may not enter its slot's directory has ``slot`` in its place, which has an
empty file for each file of a slot, and the slot's files are mounted over these.

The container runtime runs the hook of the agent's own version, whichever library the container has.

The directory's name carries the format of the slice's files that the library reads. The agent
creates slots in its own format only, so a container with a library of another format waits.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from hami_py._native import FORMAT
from hami_py.config import INSIDE, LIBRARY_NAME, PACKAGED_HOOK
from hami_py.errors import StateError, state_errors
from hami_py.node.slot import FILES, Bind, binds

PRELOAD_NAME = "ld.so.preload"

PRELOAD = Path("/etc/ld.so.preload")
"""Where a container has that file: the loader reads it in every program."""

SKELETON = "slot"

_DIGITS = 16


def install(library: Path, libraries: Path) -> Path:
    """Install a library with the hook of this package, unless they are installed already.

    Args:
        library: the file to install.
        libraries: the directory of installed libraries, created if it is missing.

    Returns:
        The path of the installed library.

    Raises:
        StateError: it cannot be read or written.
    """
    with state_errors(f"installing {library}", "free some space, and check the directory"):
        content, hook = library.read_bytes(), PACKAGED_HOOK.read_bytes()
        digest = hashlib.sha256(content + hook).hexdigest()[:_DIGITS]
        target = libraries / f"{FORMAT}-{digest}"
        if not target.is_dir():
            libraries.mkdir(parents=True, exist_ok=True)
            _create(target, content, hook)
    return target / LIBRARY_NAME


def check_format(library: Path) -> None:
    """Check that an installed library reads the slice's files that this version writes.

    Raises:
        StateError: the directory's name has another format.
    """
    if library.parent.name.partition("-")[0] != str(FORMAT):
        why = f"its format is not {FORMAT}"
        raise StateError(f"library {library}", why, "delete the pod, so that it gets another one")


def preload_file(library: Path) -> Path:
    """The file beside an installed library that containers have as ``/etc/ld.so.preload``."""
    return library.with_name(PRELOAD_NAME)


def skeleton(library: Path) -> Path:
    """The directory beside an installed library that stands for that of a slot, made if missing.

    Raises:
        OSError: it cannot be made.
    """
    target = library.with_name(SKELETON)
    target.mkdir(mode=0o755, exist_ok=True)
    for name in (*FILES, LIBRARY_NAME):
        (target / name).touch(mode=0o644)
    return target


def container_binds(slot: Path, library: Path) -> tuple[Bind, ...]:
    """The mounts of a container that has this slot and this installed library."""
    preload = Bind(preload_file(library), PRELOAD, read_only=True)
    return (*binds(slot, library, INSIDE), preload)


def hook_file(library: Path) -> Path:
    """The hook beside an installed library."""
    return library.with_name(PACKAGED_HOOK.name)


def _create(target: Path, library: bytes, hook: bytes) -> None:
    """Create the directory of a version, complete or not at all."""
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        for name, content, mode in (
            (LIBRARY_NAME, library, 0o755),
            (PACKAGED_HOOK.name, hook, 0o755),
            (PRELOAD_NAME, f"{INSIDE / LIBRARY_NAME}\n".encode(), 0o644),
        ):
            with (aside / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            (aside / name).chmod(mode)
        aside.chmod(0o755)
        # After a power failure the containers that are restarted need it.
        descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
