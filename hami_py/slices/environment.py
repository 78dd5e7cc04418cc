"""The environment of a program in a slice. Nothing else about the program is changed."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hami_py.config import HAMI_SLICE, LD_PRELOAD, LIMITS, VISIBLE_DEVICES
from hami_py.errors import StateError, UnsupportedPlatform

_SEPARATORS = " :$"
"""The dynamic loader splits ``LD_PRELOAD`` at blanks and colons and expands ``$``."""


def compose(
    base: Mapping[str, str],
    library: Path,
    slices: Sequence[Path],
    devices: Sequence[str] | None = None,
) -> dict[str, str]:
    """The environment for a program.

    Args:
        base: the environment that the program would have without us.
        library: the preload library.
        slices: the program's slices, outermost first.
        devices: UUIDs of the cards that it shall see; None = as in ``base``.
    """
    environment = dict(base)
    # Ours first, so that its symbols win, and once: two of them would charge everything twice. The
    # one that a container was given knows its limits by lying beside them, so it stays.
    before = environment.get(LD_PRELOAD, "").replace(":", " ").split()
    same = [entry for entry in before if Path(entry).name == library.name]
    managed = [entry for entry in same if Path(entry).with_name(LIMITS).exists()]
    others = [entry for entry in before if entry not in same]
    environment[LD_PRELOAD] = ":".join([*(managed[:1] or [str(library)]), *others])
    environment[HAMI_SLICE] = ":".join(map(str, slices))
    if devices is not None:
        environment[VISIBLE_DEVICES] = ",".join(devices)
    return environment


def require_glibc() -> str:
    """The version of glibc, e.g. ``2.36``.

    Raises:
        UnsupportedPlatform: the C library is another one (musl).
    """
    try:
        _name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError) as error:
        fix = "use a glibc system or image, e.g. Debian or Ubuntu instead of Alpine"
        raise UnsupportedPlatform("C library", "it is not glibc (musl?)", fix) from error
    return version


def require_library(library: Path) -> Path:
    """The preload library, if it can be preloaded into programs of this system.

    Raises:
        UnsupportedPlatform: the C library is not glibc.
        StateError: the library is missing, or its path cannot stand in ``LD_PRELOAD``.
    """
    require_glibc()
    if not library.is_file():
        fix = "reinstall hami-py (in a checkout: `make build`), or correct HAMI_LIBRARY"
        raise StateError(f"preload library {library}", "it is not there", fix)
    if set(_SEPARATORS) & set(str(library)):
        fix = "install hami-py under a path without blank, colon and dollar sign"
        raise StateError(f"preload library {library}", "LD_PRELOAD cannot carry its path", fix)
    return library
