"""Running a program in the foreground: with the terminal, the signals and the exit code.

The program stays in our process group, so the terminal treats both as one job. A signal to the
whole group (Ctrl-C, Ctrl-Z, a new window size, ``kill %1``, ``timeout``) reaches the program
directly. A signal that a process sends only to us must be passed on. A ``GroupObserver`` shows
whether the whole group received it.

Handlers receive the signals, and no signal is blocked to be waited for. The reason is the driver's
threads in this process: with driver 580, ``nvmlInit`` loads ``libcuda.so``, which starts a thread
that blocks no signal. The kernel delivers to that thread what the main thread blocks. SIGCHLD would
be lost there, and SIGTERM would end us. A handler works in every thread.

As process 1 of a container we inherit the processes whose parents have ended, and wait for them.
"""

import errno
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from hami_py.errors import CannotRun, HamiError
from hami_py.model import legible
from hami_py.slices.group_signals import GroupObserver, kill_child
from hami_py.slices.service import Notifications

PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
        signal.SIGCONT,
        signal.SIGTSTP,
    }
)

_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def run_in_foreground(
    command: Sequence[str],
    environment: Mapping[str, str],
    check: Callable[[int], float],
    notifications: Notifications | None = None,
) -> int:
    """Run the program to its end.

    On return the signals in ``PASSED_ON`` have no effect, so that they cannot interrupt the
    clean-up. The caller is expected to exit.

    Args:
        command: program and arguments.
        environment: the program's environment.
        check: called with the program's PID when it has started, and again after as many seconds
            as it returned. It must not block. If it raises an error of ours, the program is killed.
        notifications: the program's, which are passed on to the service manager.

    Returns:
        Its exit code, or minus the number of the signal that ended it.

    Raises:
        CannotRun: it cannot be started.
        HamiError: from ``check``.
    """
    received: set[int] = set()
    wakes, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    # The program must inherit that a signal is ignored, and a handler would end that.
    ignored = {number for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN}
    _receive({*PASSED_ON, signal.SIGCHLD} - ignored, received)
    unblocked = {*PASSED_ON, *_TERMINAL_STOPS, signal.SIGCHLD}
    inherited_mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, unblocked)
    observer = GroupObserver()
    try:
        program = _start(command, environment, inherited_mask)
        _receive(ignored, received)
        check_at = time.monotonic()
        while True:
            if time.monotonic() >= check_at:
                check_at = time.monotonic() + _check(check, program)
            ended = _exit_code(program, received)
            if ended is not None:
                return ended
            if os.getpid() == 1:
                _reap_orphans({program, observer.pid})
            sockets = notifications.descriptors() if notifications else []
            wait = max(0.0, check_at - time.monotonic())
            ready = select.select([wakes, *sockets], [], [], wait)[0]
            if wakes in ready:
                os.read(wakes, 4096)
            if notifications:
                notifications.pass_on()
            _pass_on(received, program, observer)
    finally:
        observer.close()


def _receive(numbers: Iterable[int], received: set[int]) -> None:
    """Add these signals to ``received`` from now on, whenever they arrive."""
    for number in numbers:
        signal.signal(number, lambda number, _frame: received.add(number))


def _pass_on(received: set[int], program: int, observer: GroupObserver) -> None:
    """Pass the received signals on, except those that the whole group has received."""
    numbers = received & PASSED_ON
    if not numbers:
        return
    received -= numbers
    by_group = observer.received()
    # `timeout` signals us alone, and then the group.
    received -= by_group
    if by_group:
        observer.reset()
    for number in sorted(numbers - by_group):
        os.kill(program, number)


def _reap_orphans(children: Collection[int]) -> None:
    """Wait for the processes that have ended, except these children of ours."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if ended.si_pid in children:
            return
        os.waitpid(ended.si_pid, 0)


def _check(check: Callable[[int], float], program: int) -> float:
    try:
        return check(program)
    except HamiError:
        # It has not been waited for, so its PID is still its own.
        kill_child(program)
        raise


def end_like(ended: int) -> NoReturn:
    """End as a program did: with its exit code, or of a signal if ``ended`` is minus its number."""
    if ended < 0:
        die_of(-ended)
    # Without destructors: a thread may be in a call of the driver that never returns, with a lock
    # that the driver's destructors need. All output has been written by now.
    os._exit(ended)


def die_of(number: int) -> NoReturn:
    """Die of a signal, as the program did, so that a shell sees the signal and not an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # None if the parent closed it.
        if stream is not None:
            stream.flush()
    # Only the program's core dump is useful. With a limit of 1 byte the kernel writes no core file;
    # if cores are piped to a program, the kernel ignores a limit of 0 and honours 1 (core(5)).
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))
    with suppress(OSError):
        # The action of SIGKILL cannot be set.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    # Reached only if the signal does not end the process.
    sys.exit(128 + number)


def _start(
    command: Sequence[str], environment: Mapping[str, str], mask: set[int | signal.Signals]
) -> int:
    # Python ignores these two signals; the program must not inherit that.
    python_ignores = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(
            command[0], list(command), environment, setsigmask=mask, setsigdef=python_ignores
        )
    except OSError as error:
        # As in a shell, which runs a script without a first line for the kernel itself.
        script = _text_script(command[0], environment) if error.errno == errno.ENOEXEC else None
        if script is not None:
            return _start(["/bin/sh", script, *command[1:]], environment, mask)
        raise _cannot_start(command[0], error) from error
    except ValueError as error:
        raise _cannot_start(command[0], error) from error


def _text_script(name: str, environment: Mapping[str, str]) -> str | None:
    """The path of a program that is a text, like a script; None if it is not one."""
    path = shutil.which(name, path=environment.get("PATH"))
    with suppress(OSError):
        start = Path(path or name).read_bytes()[:128]
        if start and b"\0" not in start:
            return path or name
    return None


def _cannot_start(name: str, error: OSError | ValueError) -> CannotRun:
    if isinstance(error, FileNotFoundError):
        fix = "check its name, PATH, and the interpreter in its first line"
        return CannotRun(legible(name), "program not found", fix, status=127)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    fix = "check that it is a program and executable (chmod +x)"
    return CannotRun(legible(name), reason, fix, status=126)


def _exit_code(program: int, received: set[int]) -> int | None:
    """The program's exit code; None if it runs. If the terminal stopped it, we stop too."""
    while True:
        waited, status = os.waitpid(program, os.WNOHANG | os.WUNTRACED)
        if waited == 0:
            return None
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if os.WSTOPSIG(status) in _TERMINAL_STOPS:
            _stop_like(os.WSTOPSIG(status))
            # The terminal's signal to us would stop the program a second time.
            received.discard(signal.SIGTSTP)


def _stop_like(number: int) -> None:
    """Stop, so that the shell takes the terminal back; returns when we are continued.

    The same signal is used, never SIGSTOP: the kernel ignores it if no shell could continue us.
    """
    handler = signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, handler)
