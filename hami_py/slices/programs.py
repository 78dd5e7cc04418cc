"""The environment of a program in a slice: all that a slice changes about a program."""

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from hami_py.config import HAMI_SLICE, LD_PRELOAD, LIBRARY_NAME, VISIBLE_DEVICES
from hami_py.errors import StateError, UnsupportedPlatform

NOEXEC = "its file system is mounted noexec"

_SEPARATORS = " :$"
"""The dynamic loader splits ``LD_PRELOAD`` at spaces and colons, and expands ``$``."""


def compose(
    base: Mapping[str, str],
    libraries: Sequence[Path],
    slices: Sequence[Path],
    *,
    chosen: bool = False,
) -> dict[str, str]:
    """The environment for a program; its slices are outermost first.

    If its cards were ``chosen``, the library counts them, and another choice among the machine's
    cards would mislead launchers that read it.
    """
    environment = dict(base)
    # Our library comes first, so that its symbols win. The loader loads one file once, under the
    # first path that it finds. Two copies would charge everything twice.
    before = environment.get(LD_PRELOAD, "").replace(":", " ").split()
    others = [entry for entry in before if Path(entry).name != LIBRARY_NAME]
    environment[LD_PRELOAD] = ":".join([*dict.fromkeys(map(str, libraries)), *others])
    environment[HAMI_SLICE] = ":".join(map(str, slices))
    if chosen:
        environment.pop(VISIBLE_DEVICES, None)
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
        StateError: the loader would ignore it, or ``LD_PRELOAD`` cannot contain its path.
    """
    require_glibc()
    if set(_SEPARATORS) & set(str(library)):
        fix = "install hami-py under a path without spaces, colons and dollar signs"
        raise StateError(f"preload library {library}", "LD_PRELOAD cannot contain this path", fix)
    why = why_not_loadable(library)
    if why is not None:
        fix = "reinstall hami-py (in a checkout: `make build`), or correct HAMI_LIBRARY"
        if why == NOEXEC:
            fix = "install hami-py elsewhere, or mount that file system without noexec"
        raise StateError(f"preload library {library}", why, fix)
    return library


def why_not_loadable(library: Path) -> str | None:
    """Why the dynamic loader would ignore a library and run the program without it."""
    try:
        with library.open("rb") as file:
            magic = file.read(4)
        if os.statvfs(library).f_flag & os.ST_NOEXEC:
            return NOEXEC
    except FileNotFoundError:
        return "the file does not exist"
    except OSError as error:
        return error.strerror or str(error)
    if not magic:
        return "the file is empty"
    return None if magic == b"\x7fELF" else "it is not a library"


Word: TypeAlias = str | PathLike[str]
Command: TypeAlias = Word | Sequence[Word]
"""Program and arguments. A single word is a program, or with ``shell=True`` a line for the shell.
"""
