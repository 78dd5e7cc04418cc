"""Run a program as if we were not there: its terminal, its signals, its way of ending.

The program keeps our process group, so the terminal treats it and us as one job. From this follows
who gets a signal: what is sent to the whole group (Ctrl-C, Ctrl-Z, a new window size, ``kill %1``,
by ``timeout``) has reached the program already; what a process sends to us alone is passed on. Of
what the *terminal* sends the kernel says so in ``si_code``, and for that the signals are taken
synchronously, not by handlers; for the rest there is a ``Witness``.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from hami_py.errors import CannotRun
from hami_py.slices.witness import Witness

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
"""``si_code`` of a signal that the kernel itself sent, which for these means the terminal."""

LOOK_INTERVAL = 1.0
"""Seconds between two looks of ours at what the program needs beside itself."""

_TERMINAL_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], look: Callable[[], None]
) -> int:
    """Run the program to its end.

    On return the signals in ``PASSED_ON`` are still blocked, so that none of them can interrupt the
    clean-up: the caller is expected to exit.

    Args:
        command: program and arguments.
        environment: the program's.
        look: called every second while it runs; it must not wait.

    Returns:
        Its exit code, or minus the number of the signal that ended it.

    Raises:
        CannotRun: it cannot be started.
    """
    # A parent that ignores SIGCHLD hands this on, and then no exit code could be read.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = PASSED_ON | {signal.SIGCHLD}
    inherited_mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    witness = Witness()
    try:
        program = _start(command, environment, inherited_mask)
        while True:
            received = signal.sigtimedwait(awaited, LOOK_INTERVAL)
            if received is None:
                look()
            elif received.si_signo == signal.SIGCHLD:
                ended = _look_after(program)
                if ended is not None:
                    return ended
            elif not _program_has_it(received, witness):
                os.kill(program, received.si_signo)
    finally:
        witness.end()


def die_of(number: int) -> NoReturn:
    """End as the program ended, so that a shell sees the signal itself and not an exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The core dump worth having is the program's. A file is not begun for one byte; where cores go
    # to a program, the kernel would pass over 0 and takes 1 alone for "none" (core(5)).
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0 if hard == 0 else 1, hard))
    with suppress(OSError):
        # SIGKILL has no action to set.
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    # Reached only where the signal does not end a process.
    sys.exit(128 + number)


def _start(
    command: Sequence[str], environment: Mapping[str, str], mask: set[int | signal.Signals]
) -> int:
    # Python ignores these two for itself; a program must not inherit that.
    python_ignores = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        return os.posix_spawnp(
            command[0], list(command), environment, setsigmask=mask, setsigdef=python_ignores
        )
    except FileNotFoundError as error:
        fix = "check its name, PATH, and the interpreter in its first line"
        raise CannotRun(command[0], "it was not found", fix, status=127) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = "check that it is a program and may be executed (chmod +x)"
        raise CannotRun(command[0], reason, fix, status=126) from error


def _program_has_it(received: signal.struct_siginfo, witness: Witness) -> bool:
    """It was sent to the whole group, by the terminal or by a process.

    A hang-up of the terminal is the exception: it goes to the session's leader alone.
    """
    if received.si_code == _SI_KERNEL:
        witness.forget()
        return received.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()
    return witness.has_seen(received.si_signo)


def _look_after(program: int) -> int | None:
    """How the program ended, if it has; stop where the terminal has stopped it."""
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

    By the same signal, never SIGSTOP: where no shell could continue us, the kernel ignores it.
    """
    # Ours from the terminal may still be pending, and would stop us a second time.
    while signal.sigtimedwait({signal.SIGTSTP}, 0):
        pass
    inherited_mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited_mask)
