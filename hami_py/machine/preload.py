"""Limits without a command: the loader puts the library into every program of the machine.

    /etc/ld.so.preload           has the line /usr/lib/hami/libvgpu.so
    /usr/lib/hami/libvgpu.so     the library
                  machine        the service's runtime directory, for the library

With a library that the loader cannot use, no program of the machine would start. So the library is
tried first, each file is replaced as a whole, and the line is removed before anything else.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hami_py.config import LIBRARY_NAME, MACHINE
from hami_py.errors import StateError, state_errors
from hami_py.node.library import PRELOAD
from hami_py.slices import elf

DIRECTORY = Path("/usr/lib/hami")
"""Below /usr/lib, because AppArmor's profiles let programs read libraries there."""

LIBRARY = DIRECTORY / LIBRARY_NAME

_NAMES_MACHINE = DIRECTORY / MACHINE

_DEADLINE_S = 10.0

_NOBODY = 65534

_FILES = "limits without a command", "run it as root, and check the file system"


def is_on() -> bool:
    """Whether the loader puts the library into every program."""
    # The loader reads no line beyond a "#".
    lines = (line.partition("#")[0] for line in _text().splitlines())
    return any(str(LIBRARY) in line.replace(":", " ").split() for line in lines)


def switch_on(library: Path, runtime: Path) -> None:
    """Install the library, with the service's runtime directory, for programs that start later.

    Raises:
        StateError: a program does not start with it, or a file cannot be written. Then the loader
            is left as it was.
    """
    with state_errors(*_FILES):
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        # The administrator's umask may keep users out.
        DIRECTORY.chmod(0o755)
        content = library.read_bytes()
        if not elf.is_whole(content):
            raise StateError(str(library), "it is not a whole library", "install hami-py again")
        if not LIBRARY.is_file() or LIBRARY.read_bytes() != content:
            aside = _written(LIBRARY, content, 0o755)
            _try(aside, {"LD_PRELOAD": str(aside), "LD_BIND_NOW": "1"})
            aside.replace(LIBRARY)
        _written(_NAMES_MACHINE, f"{runtime}\n".encode(), 0o644).replace(_NAMES_MACHINE)
        if not is_on():
            text = _text()
            end = "" if text.endswith("\n") or not text else "\n"
            file = PRELOAD.resolve()
            _written(file, f"{text}{end}{LIBRARY}\n".encode(), 0o644).replace(file)
            try:
                _try(LIBRARY, {})
            except StateError:
                switch_off()
                raise


def switch_off() -> None:
    """Let programs that start from now on have no limits without a command.

    The library stays: a program that has it already reads it again at its first CUDA call.

    Raises:
        StateError: a file cannot be written.
    """
    with state_errors(*_FILES):
        file, lines = PRELOAD.resolve(), _text().splitlines()
        lines = [line for line in lines if line.partition("#")[0].strip() != str(LIBRARY)]
        if lines or PRELOAD.is_symlink():
            content = "".join(f"{line}\n" for line in lines).encode()
            _written(file, content, 0o644).replace(file)
        else:
            PRELOAD.unlink(missing_ok=True)
        _NAMES_MACHINE.unlink(missing_ok=True)
    if is_on():
        why = f"{LIBRARY} has no line of its own"
        raise StateError(str(PRELOAD), why, "remove it by hand")


def _text() -> str:
    try:
        return PRELOAD.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return ""


def _written(path: Path, content: bytes, mode: int) -> Path:
    """A new file beside a path, to be renamed to it."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with aside.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.chmod(mode)
    return aside


def _try(library: Path, env: Mapping[str, str]) -> None:
    """Start a program that the library is loaded into, as a user who may read what all may."""
    command = ["/bin/cat", "/proc/self/maps"]
    try:
        done = subprocess.run(
            command,
            user=_NOBODY,
            group=_NOBODY,
            extra_groups=(),
            env=env,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(str(library), f"with it {error}", "install hami-py again") from error
    if done.returncode or done.stderr or str(library) not in done.stdout:
        why = done.stderr.strip() or f"{command[0]} ends with {done.returncode}, or without it"
        fix = "install the library for this machine's glibc and processor"
        raise StateError(str(library), f"programs do not start with it: {why}", fix)
