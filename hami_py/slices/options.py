"""What may be said when a program is started: the options of ``subprocess`` and ``asyncio``.

They are passed on as they are. Written down here they have types, so that a caller under
``mypy --strict`` gets no ``Any`` back. What decides between text and bytes is left to the overloads
of the functions that take these, and ``env`` is never passed on as it came.
"""

from collections.abc import Callable, Collection, Sequence
from os import PathLike
from typing import IO, TypeAlias, TypedDict

File: TypeAlias = int | IO[str] | IO[bytes] | None
Word: TypeAlias = str | PathLike[str]
Command: TypeAlias = Word | Sequence[Word]
"""Program and arguments. A single word is a program, or with ``shell=True`` the shell's line."""


class StartOptions(TypedDict, total=False):
    """What every way to start a program takes."""

    stdin: File
    stdout: File
    stderr: File
    cwd: Word | None
    executable: Word | None
    close_fds: bool
    pass_fds: Collection[int]
    restore_signals: bool
    start_new_session: bool
    preexec_fn: Callable[[], object] | None
    user: str | int | None
    group: str | int | None
    extra_groups: Collection[str | int] | None
    umask: int
    pipesize: int


class PopenOptions(StartOptions, total=False):
    """What ``subprocess.Popen`` takes, without those that decide between text and bytes."""

    bufsize: int
    process_group: int | None
    shell: bool


class RunOptions(PopenOptions, total=False):
    """What ``subprocess.run`` takes, without those that decide between text and bytes."""

    input: str | bytes | None
    capture_output: bool
    timeout: float | None
    check: bool


class ExecOptions(StartOptions, total=False):
    """What ``asyncio.create_subprocess_exec`` takes."""

    limit: int
