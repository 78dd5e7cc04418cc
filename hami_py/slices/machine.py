"""The service of a machine whose users share its cards (``hami machine``), as its users ask it.

Where it runs, it makes the slices, because they must hold between users. A request is one packet,
and so is the answer (``hami_py.machine.requests``).
"""

import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hami_py import errors
from hami_py.config import Settings
from hami_py.errors import HamiError, StateError
from hami_py.model import SliceInfo
from hami_py.slices.record import RECORD, Record, read_record

SOCKET = "machine.sock"
"""The name of the socket in the runtime directory."""

USERS = "users"
"""The directory that the service makes there, for the library; the end of the service leaves it."""

_LARGEST = 1 << 20
"""Bytes of an answer."""

PATIENCE_S = 10.0
"""How long a request may take. The service answers in milliseconds, one request at a time."""

_PATIENCE = struct.pack("@ll", int(PATIENCE_S), 0)
"""The same as a ``struct timeval``."""

_PAUSE_S = 0.1

_REPEATABLE = {"job", "list", "account", "devices"}
"""Requests that may be made again when nothing is known of the first one."""


class NoAnswer(StateError):
    """The service does not answer."""


@dataclass(frozen=True)
class Machine:
    """The service, with its runtime directory."""

    runtime: Path

    @property
    def slices(self) -> Path:
        """The directory of the slices of all users."""
        return self.runtime / "slices"

    def ask(self, do: str, *, wait_s: float = PATIENCE_S, **fields: object) -> dict[str, Any]:
        """What the service answers; ``wait_s`` is for one that is being restarted, in seconds.

        Raises:
            HamiError: it refuses the request, with its reason, or does not answer.
        """
        request = json.dumps({"do": do, **fields}, default=asdict).encode()
        end = time.monotonic() + wait_s
        while True:
            try:
                with self._connected(end) as connection:
                    connection.send(request)
                    answer = connection.recv(_LARGEST)
                why = "it closed the connection: too many of yours are open"
                if answer or do not in _REPEATABLE:
                    break
            except (ConnectionRefusedError, FileNotFoundError) as error:
                raise _silent("it does not run") from error
            except (ConnectionResetError, BrokenPipeError) as error:
                # It has not read the request: it was killed, or has closed the connection.
                why = error.strerror or str(error)
            except OSError as error:
                raise _silent(error.strerror or str(error)) from error
            if time.monotonic() > end:
                raise _silent(why)
            time.sleep(_PAUSE_S)
        if not answer:
            raise _silent(why)
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise _error(**found["error"])
        return found

    def _connected(self, end: float) -> socket.socket:
        """A connection; waits until then for a service that is being restarted.

        Its timeouts are the kernel's: with Python's, connecting would fail at once while others
        wait, too.
        """
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, _PATIENCE)
            try:
                connection.connect(str(self.runtime / SOCKET))
            except (ConnectionRefusedError, FileNotFoundError):
                connection.close()
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def held(self, directory: Path) -> "MachineHold":
        """A slice that the service has said this process holds.

        Raises:
            StateError: it cannot be read.
        """
        record = read_record(directory)
        if record is None:
            raise StateError(f"slice {directory.name}", f"its {RECORD} cannot be read", "retry")
        return MachineHold(self, directory, record)

    def pages(self, do: str, **fields: object) -> Iterator[dict[str, Any]]:
        """All answers to a request for a list.

        Raises:
            HamiError: as ``ask``.
        """
        after: object = None
        while True:
            answer = self.ask(do, wait_s=PATIENCE_S, **fields, after=after)
            yield answer
            after = answer["after"]
            if after is None:
                return

    def listed(self, *, everyone: bool = False) -> list[SliceInfo]:
        """The slices of this user, oldest first; or all that this user may see.

        Raises:
            HamiError: as ``ask``.
        """
        # Imported here, because only lists need it.
        import msgspec  # noqa: PLC0415

        return [
            msgspec.convert(each, SliceInfo, dec_hook=lambda _, path: Path(path))
            for answer in self.pages("list", everyone=everyone)
            for each in answer["slices"]
        ]


def _silent(why: str) -> NoAnswer:
    fix = "ask an administrator: `systemctl status hami-machine`"
    return NoAnswer("the service hami machine", why, fix)


def machine(settings: Settings) -> Machine | None:
    """The service of this machine, also while it is away; None = it has not run since boot."""
    found = Machine(settings.node_runtime)
    return found if (found.runtime / USERS).is_dir() else None


def required_machine(settings: Settings) -> Machine:
    """The service of this machine.

    Raises:
        NoAnswer: it has not run since boot.
    """
    found = machine(settings)
    if found is None:
        raise _silent("it does not run")
    return found


def is_of_machine(settings: Settings, directory: Path) -> bool:
    """Whether a slice is the machine's, so that its service looks after it."""
    return directory.parent == Machine(settings.node_runtime).slices


@dataclass
class MachineHold:
    """A slice of the machine that this process holds, until it releases it or exits."""

    machine: Machine
    directory: Path
    record: Record

    def release(self) -> None:
        """Release the slice; the service removes it if nothing keeps it.

        Raises:
            HamiError: the service refuses.
        """
        # A service that is away notices later that this process has exited.
        with suppress(NoAnswer):
            self.machine.ask("release", wait_s=0, slice=self.directory.name)

    def abandon(self) -> None:
        """Release a slice in which no program was started."""
        self.release()


def _error(kind: str, args: Sequence[Any]) -> HamiError:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, HamiError):
        return found(*args)
    return StateError("the service hami machine", f"{kind}: {args}", "install the same version")
