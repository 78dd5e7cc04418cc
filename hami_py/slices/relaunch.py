"""Limiting the process that already runs, by restarting it in a slice.

The preload library must be loaded before the driver, so a process that has begun to use CUDA cannot
be limited. Instead the interpreter executes itself with the same command line, as the same process,
inside a slice. That is refused if the restart would not repeat what the process did: if a person
has typed commands, if other threads run, or if the command line is not the process's own.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from hami_py.config import Settings
from hami_py.errors import CannotRelaunch
from hami_py.model import Limits
from hami_py.slices.beside import own_slices
from hami_py.slices.bypass import DRIVERS
from hami_py.slices.current import limits
from hami_py.slices.prepare import Opened, SliceRequest, open_new
from hami_py.slices.processes import interpreter, mapped_files, read_stat
from hami_py.slices.record import read_record

WHAT = "limit_this_process"


def relaunch(settings: Settings, request: SliceRequest, warn: Callable[[str], None]) -> Limits:
    """Restart this process in a new slice; in the restarted process, return the limits.

    Raises:
        CannotRelaunch: a restart would not repeat what the process did.
        HamiError: as ``open_new`` and ``limits``.
    """
    if _is_relaunched(settings):
        return limits(settings)
    for why, fix in _obstacles(settings):
        raise CannotRelaunch(WHAT, why, fix)
    opened = open_new(settings, request)
    try:
        for note in opened.notes:
            warn(note)
        _execute(opened, settings.environment)
    except BaseException:
        opened.hold.abandon()
        raise


def _is_relaunched(settings: Settings) -> bool:
    """Whether this process created its innermost slice and restarted itself in it."""
    slices = own_slices(settings)
    record = read_record(slices[-1]) if slices else None
    return record is not None and record.is_of(os.getpid())


def _obstacles(settings: Settings) -> Iterator[tuple[str, str]]:
    """The reasons why this process cannot be restarted, each with a fix; the first is reported."""
    start = "start the program with `hami run` instead"
    kind = _notebook()
    if kind == "kernel":
        fix = (
            "use a kernel of `hami jupyter install --gpumem 4GiB`, or start Jupyter with `hami run`"
        )
        yield "restarting a Jupyter kernel would lose the state of its notebook", fix
    if kind or hasattr(sys, "ps1") or sys.flags.interactive:
        fix = "start the interpreter with `hami run --gpumem 4GiB -- python`"
        yield "restarting an interactive interpreter would lose what was typed", fix
    if not sys.orig_argv or interpreter() is None:
        yield (
            "the interpreter is embedded in another program with its own command line",
            start,
        )
    stat = read_stat(os.getpid())
    if stat is None or stat.is_forked or _is_multiprocessing_child():
        fix = "call it in the first process, before it creates others"
        yield "this process is a child of the process that the command line started", fix
    if not _has_program():
        fix = "write the program to a file, or start it with `hami run`"
        yield "the program was read from standard input, which cannot be read again", fix
    if not _finds_script():
        fix = "call it before changing the working directory"
        yield f"{sys.modules['__main__'].__file__} would not be found from {Path.cwd()}", fix
    first = "call it first, before the imports that use the GPU, or " + start
    driver = next((p for p in mapped_files("self") if Path(p).name.startswith(DRIVERS)), None)
    if driver:
        yield f"{driver} is already loaded, and its state would be lost", first
    threads = _threads()
    if threads > 1:
        yield f"{threads - 1} other threads run in this process", first


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
    """Whether the program is a file, a module or ``-c``, which can be run again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    return script not in {None, "<stdin>"} or _has_option_c()


def _has_option_c() -> bool:
    """Whether it is ``python -c``, also combined with other options."""
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
    """Whether the script on the command line is found from the current directory."""
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
    """Execute the interpreter again. That releases our lock; the slice knows us by our pid."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    arguments = [sys.executable, *sys.orig_argv[1:]]
    try:
        os.execve(sys.executable, arguments, opened.environment(base))  # noqa: S606
    except OSError as error:
        fix = "check that it still exists, or start the program with `hami run`"
        raise CannotRelaunch(WHAT, f"{sys.executable}: {error.strerror}", fix) from error
