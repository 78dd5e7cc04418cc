"""The errors of the package. Each type tells the caller what to do.

Every error is a ``HamiError``. Its message is one line: what failed, why, and how to fix it. The
Rust core raises ``InvalidValue``, ``DamagedFile`` and ``Unfit`` from this module.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class HamiError(Exception):
    """The base of all errors of this package.

    Attributes:
        what: what failed.
        why: the reason.
        fix: how to fix it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        # Exception gets all three, so that the error can be pickled.
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.fix}"


class InvalidValue(HamiError, ValueError):
    """A value is invalid: write another.

    Attributes:
        field: the option, argument, resource or variable.
        value: the refused text.
    """

    def __init__(self, field: str, value: str, fix: str) -> None:
        # The text is untrusted: shortened and quoted it stays on one line. A terminal interprets
        # more characters than JSON must escape.
        short = value[:64]
        shown = json.dumps(short, ensure_ascii=not short.isprintable()) + "…" * (len(value) > 64)
        super().__init__(field, f"{shown} is refused", fix)
        self.args = (field, value, fix)
        self.field = field
        self.value = value

    def __str__(self) -> str:
        """The text, with a colon before the fix, because the fix belongs to the value."""
        return f"{self.what}: {self.why}: {self.fix}"


class DamagedFile(HamiError, ValueError):
    """A limits page or account is damaged: create the slice again."""

    def __init__(self, problem: str) -> None:
        super().__init__("damaged file", problem, "create the slice again")
        self.args = (problem,)


class NoDriver(HamiError):
    """There is no working NVIDIA driver: install or load it; a retry does not help."""


class NoDevice(HamiError):
    """The driver works but shows no card: add one to this machine or container."""


class DriverError(HamiError):
    """A driver call failed: check the card (``nvidia-smi``, ``dmesg``), then retry."""


class Unfit(HamiError):
    """A pod does not fit a node: try another node.

    Attributes:
        node: the node's name.
        reason: the reason, in one line with figures.
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node}", reason, "try another node")
        self.args = (node, reason)
        self.node = node
        self.reason = reason


class UnknownCard(HamiError):
    """A card does not exist, or is not visible here: name another."""


class UnknownSlice(HamiError):
    """A slice does not exist, or its id is ambiguous: see ``hami ps``."""


class SliceInUse(HamiError):
    """A slice cannot be removed yet: end its processes first.

    Attributes:
        pids: the processes that are in it or hold it, if they are visible here.
    """

    def __init__(self, what: str, pids: Iterable[int]) -> None:
        self.pids = tuple(sorted(pids))
        listed = " ".join(map(str, self.pids))
        by = (
            f"by process {listed.replace(' ', ', ')}"
            if listed
            else "by a process of another container"
        )
        fix = f"end them (`kill {listed}`), then retry" if listed else "end it in that container"
        if os.getpid() in self.pids:
            fix = "close it in this process first (`Slice.close()`, or leave its `with` block)"
        super().__init__(what, f"it is in use {by}", fix)
        self.args = (what, self.pids)


class StateError(HamiError):
    """A file or directory of hami cannot be used: fix its owner, mode or location."""


@contextmanager
def state_errors(what: str, fix: str) -> Iterator[None]:
    """Raise a ``StateError`` for each ``OSError`` inside."""
    try:
        yield
    except OSError as error:
        name, why = str(error.filename or ""), error.strerror or str(error)
        raise StateError(what, why if name in what else f"{name}: {why}", fix) from error


class UnsupportedPlatform(HamiError):
    """The preload library does not support this system: use another image or machine."""


class CannotRun(HamiError):
    """A program could not be started.

    Attributes:
        status: the exit code that shells use: 127 = not found, 126 = found but not executable.
    """

    def __init__(self, what: str, why: str, fix: str, status: int = 126) -> None:
        super().__init__(what, why, fix)
        self.args = (what, why, fix, status)
        self.status = status


class NotLimited(HamiError):
    """A program uses the GPU without the preload library: start it so that it loads that."""


class CannotRelaunch(HamiError):
    """This process cannot be restarted in a slice: start it in one with ``hami run``."""
