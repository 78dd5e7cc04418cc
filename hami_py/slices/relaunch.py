"""A limit on the process that is running already.

The preload library must be there before the driver is, so nothing can be put around a process that
has begun to use CUDA. What can be done is to begin again: the interpreter executes itself with the
same command line, as the same process, inside a slice. That is only right where beginning again
does what beginning did: not where a person has typed, where threads are at work, or where the
command line is not this process's own.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from hami_py.config import Settings
from hami_py.errors import CannotRelaunch
from hami_py.model import LimitRequest, Limits
from hami_py.slices.current import limits
from hami_py.slices.prepare import Opened, Request, open_new
from hami_py.slices.processes import interpreter, mapped_files
from hami_py.slices.record import read_record

WHAT = "limit_this_process"
DRIVERS = ("libcuda.so", "libnvidia-ml.so")

_IMPORTED_BY = os.getpid()
"""A process that is forked later has our memory and another life."""


def relaunch(
    settings: Settings,
    asked: LimitRequest,
    devices: Sequence[str],
    tell: Callable[[str], None],
) -> Limits:
    """Go on in a new slice, or say what holds in the one that this process has made so.

    Args:
        settings: of this process.
        asked: the limits.
        devices: cards by UUID or index; none = all.
        tell: what to do with a line for the user.

    Raises:
        CannotRelaunch: beginning again is not the same here.
        HamiError: as ``open_new`` and ``limits``.
    """
    if _is_relaunched(settings):
        return limits(settings)
    for why, fix in _obstacles(settings):
        raise CannotRelaunch(WHAT, why, fix)
    request = Request(sys.orig_argv, asked, devices, relaunched=True)
    opened = open_new(settings, request)
    try:
        for note in opened.notes:
            tell(note)
        _execute(opened, settings.environment)
    except BaseException:
        opened.hold.abandon()
        raise


def _is_relaunched(settings: Settings) -> bool:
    """This very process made its innermost slice, and went on in it."""
    record = read_record(settings.slices[-1]) if settings.slices else None
    return record is not None and record.is_of(os.getpid())


def _obstacles(settings: Settings) -> Iterator[tuple[str, str]]:
    """Why this process cannot begin again, and what to do instead; the first one is told."""
    start = "start the program with `hami run` instead"
    kind = _notebook()
    if kind == "kernel":
        fix = (
            "choose a kernel that `hami jupyter install --gpumem 4GiB` makes,"
            " or start Jupyter with `hami run`"
        )
        yield "a Jupyter kernel cannot begin again without losing its notebook", fix
    if kind or hasattr(sys, "ps1") or sys.flags.interactive:
        fix = "start the interpreter with `hami run --gpumem 4GiB -- python`"
        yield "an interactive interpreter cannot begin again without losing what was typed", fix
    if not sys.orig_argv or interpreter() is None:
        yield (
            "the interpreter is part of another program, whose command line is not Python's",
            start,
        )
    if os.getpid() != _IMPORTED_BY or _is_multiprocessing_child():
        fix = "call it in the first process, before it makes others"
        yield "this process is a child of the one that the command line started", fix
    if not _has_program():
        fix = "write the program to a file, or start it with `hami run`"
        yield "the program was read from standard input and cannot be read again", fix
    if not _finds_script():
        fix = "call it before the working directory is changed"
        yield f"{sys.modules['__main__'].__file__} would not be found from {Path.cwd()}", fix
    first = "call it first, before the imports that use the GPU, or " + start
    driver = next((p for p in mapped_files("self") if Path(p).name.startswith(DRIVERS)), None)
    if driver:
        yield f"{driver} is in this process already, and what it holds would be lost", first
    threads = _threads()
    if threads > 1:
        yield f"{threads - 1} other threads are at work in this process", first


def _notebook() -> str | None:
    """``kernel`` for a Jupyter kernel, ``shell`` for IPython's terminal."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get() if get else None
    if shell is None:
        return None
    return "kernel" if getattr(shell, "kernel", None) is not None else "shell"


def _is_multiprocessing_child() -> bool:
    process = sys.modules.get("multiprocessing.process")
    parent = getattr(process, "parent_process", None)
    return parent is not None and parent() is not None


def _has_program() -> bool:
    """A file, a module or ``-c``: something that can be run again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return script not in {None, "<stdin>"} or _is_given_as_text()


def _is_given_as_text() -> bool:
    """``python -c``, also among other letters and after options that take a value."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return False
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, None)
        elif not word.startswith("--") and word[1] not in "WX" and "c" in word:
            return True
    return False


def _finds_script() -> bool:
    """A script that was named by a relative path is still there."""
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    if script is None or getattr(main, "__spec__", None) is not None:
        return True
    return any(_is_same_file(Path(word), Path(script)) for word in sys.orig_argv[1:])


def _is_same_file(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except OSError:
        return False


def _threads() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return threading.active_count()


def _execute(opened: Opened, base: Mapping[str, str]) -> NoReturn:
    """Begin again. The kernel gives up our hold; the slice knows us by our pid, which stays."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    arguments = [sys.executable, *sys.orig_argv[1:]]
    try:
        os.execve(sys.executable, arguments, opened.environment(base))  # noqa: S606
    except OSError as error:
        fix = "check that it is still there, or start the program with `hami run`"
        raise CannotRelaunch(WHAT, f"{sys.executable}: {error.strerror}", fix) from error
