"""The variables that a service manager passes to the main process of a service: `hami run`.

``LISTEN_PID`` and ``WATCHDOG_PID`` say which process the other variables are for (sd_listen_fds(3),
sd_watchdog_enabled(3)). Where it is ours, the program gets its own PID.

``NOTIFY_SOCKET`` is where a service says that it is ready. By default the manager takes that from
the main process only (sd_notify(3)). So the program gets a socket of ours, and we pass on what it
sends.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from hami_py.config import Settings
from hami_py.slices.runtime import runtime_directory

_OWN_PID: Final = ("LISTEN_PID", "WATCHDOG_PID")

_NOTIFY_SOCKET = "NOTIFY_SOCKET"

_LARGEST = 64 << 10
"""Bytes of a notification. systemd reads at most 4 KiB."""

_PATIENCE = 1.0
"""Seconds to wait for a manager that does not read."""

_MOST_FILES = 253
"""Open files in a message; the kernel's limit."""


def with_own_pid(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A command that starts the program with its own PID where ``environment`` has ours.

    Only the program's process knows its PID, so a shell becomes the program.
    """
    ours = [name for name in _OWN_PID if environment.get(name) == str(os.getpid())]
    if not ours:
        return list(command)
    # The number of a file descriptor of our process, of newer versions of systemd.
    lines = ["unset LISTEN_PIDFDID", *(f"export {name}=$$" for name in ours), 'exec "$@"']
    return ["/bin/sh", "-c", "; ".join(lines), "sh", *command]


class Notifications:
    """A socket for the program's notifications, and passing them on to the service manager.

    It is in the runtime directory, to which only this user has access.
    """

    def __init__(self, environment: Mapping[str, str], settings: Settings) -> None:
        self._manager = environment.get(_NOTIFY_SOCKET, "")
        self._socket: socket.socket | None = None
        if self._manager:
            directory = runtime_directory(settings.runtime_directory)
            self._path = directory / f"notify-{os.getpid()}"
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            try:
                ours.bind(str(self._path))
            except OSError:
                # Its path may be too long. Then the manager decides from whom it takes messages.
                ours.close()
            else:
                self._socket = ours

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The program's environment."""
        if self._socket is None:
            return dict(base)
        return {**base, _NOTIFY_SOCKET: str(self._path)}

    def descriptors(self) -> list[int]:
        """The descriptor that becomes readable when there is something to pass on."""
        return [] if self._socket is None else [self._socket.fileno()]

    def pass_on(self) -> None:
        """Pass on what has come, without waiting."""
        while self._socket is not None:
            try:
                message, files, *_ = socket.recv_fds(
                    self._socket, _LARGEST, _MOST_FILES, socket.MSG_CMSG_CLOEXEC
                )
            except OSError:
                return
            # The manager may have ended. That must not disturb the program.
            with suppress(OSError):
                self._send(message, files)
            for file in files:
                os.close(file)

    def _send(self, message: bytes, files: Sequence[int]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(_PATIENCE)
            is_abstract = self._manager.startswith("@")
            out.connect("\0" + self._manager[1:] if is_abstract else self._manager)
            socket.send_fds(out, [message], files)

    def close(self) -> None:
        """Pass on the rest, and remove the socket."""
        self.pass_on()
        if self._socket is not None:
            self._socket.close()
            self._path.unlink(missing_ok=True)
