"""Running a program in the foreground: with the terminal, the signals and the exit code.

The program stays in our process group, so the terminal treats both as one job. A signal to the
whole group (Ctrl-C, Ctrl-Z, a new window size, ``kill %1``, ``timeout``) reaches the program
directly. A signal that a process sends only to us must be passed on. For signals of the terminal
the kernel sets ``si_code``; to read it, signals are received synchronously and not by handlers. For
other signals a ``GroupObserver`` shows whether the whole group received them.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from hami_py.errors import CannotRun, HamiError
from hami_py.slices.group_signals import GroupObserver

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

_SI_KERNEL = 0x80
"""``si_code`` of a signal from the kernel, which for these signals means the terminal."""

_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], check: Callable[[int], float]
) -> int:
    """Run the program to its end.

    On return the signals in ``PASSED_ON`` are still blocked, so that they cannot interrupt the
    clean-up. The caller is expected to exit.

    Args:
        command: program and arguments.
        environment: the program's environment.
        check: called with the program's PID when it has started, and again after as many seconds
            as it returned. It must not block. If it raises an error of ours, the program is killed.

    Returns:
        Its exit code, or minus the number of the signal that ended it.

    Raises:
        CannotRun: it cannot be started.
        HamiError: from ``check``.
    """
    # If the parent ignores SIGCHLD, we inherit that, and then no exit code can be read.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = PASSED_ON | {signal.SIGCHLD}
    inherited_mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    observer = GroupObserver()
    try:
        program = _start(command, environment, inherited_mask)
        check_at = time.monotonic()
        while True:
            if time.monotonic() >= check_at:
                check_at = time.monotonic() + _check(check, program)
            received = signal.sigtimedwait(awaited, max(0.0, check_at - time.monotonic()))
            if received is not None and received.si_signo in PASSED_ON:
                if not _program_received(received, observer):
                    os.kill(program, received.si_signo)
                continue
            # SIGCHLD, or the time is over, and another thread may have taken that signal. After a
            # stop of this process, CPython 3.11 may also return a signal that is none.
            ended = _exit_code(program)
            if ended is not None:
                return ended
    finally:
        observer.close()


def _check(check: Callable[[int], float], program: int) -> float:
    try:
        return check(program)
    except HamiError:
        # It has not been waited for, so its PID is still its own.
        os.kill(program, signal.SIGKILL)
        os.waitpid(program, 0)
        raise


def die_of(number: int) -> NoReturn:
    """Die of a signal, as the program did, so that a shell sees the signal and not an exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
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
    except FileNotFoundError as error:
        fix = "check its name, PATH, and the interpreter in its first line"
        raise CannotRun(command[0], "program not found", fix, status=127) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "check that it is a program and executable (chmod +x)"
        raise CannotRun(command[0], reason, fix, status=126) from error


def _program_received(received: signal.struct_siginfo, observer: GroupObserver) -> bool:
    """Whether a signal was sent to the whole group, by the terminal or by a process.

    The exception is a hang-up of the terminal, which only the session's leader receives.
    """
    if received.si_code == _SI_KERNEL:
        observer.reset()
        return received.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()
    return observer.has_received(received.si_signo)


def _exit_code(program: int) -> int | None:
    """The program's exit code; None if it runs. If the terminal stopped it, we stop too."""
    while True:
        waited, status = os.waitpid(program, os.WNOHANG | os.WUNTRACED)
        if waited == 0:
            return None
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if os.WSTOPSIG(status) in _TERMINAL_STOPS:
            _stop_like(os.WSTOPSIG(status))


def _stop_like(number: int) -> None:
    """Stop, so that the shell takes the terminal back; returns when we are continued.

    The same signal is used, never SIGSTOP: the kernel ignores it if no shell could continue us.
    """
    # The terminal's signal to us may still be pending, and would stop us a second time.
    while signal.sigtimedwait({signal.SIGTSTP}, 0):
        pass
    inherited_mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited_mask)
