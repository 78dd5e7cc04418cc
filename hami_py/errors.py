"""What can go wrong, as types that say what the caller must do about it.

Every error is a ``HamiError`` whose message is one line that names what failed, why, and how to
fix it. The Rust core raises ``InvalidValue`` and ``DamagedFile`` from here.
"""

import json
import os
from collections.abc import Iterable

__all__ = [
    "CannotRelaunch",
    "CannotRun",
    "DamagedFile",
    "DriverError",
    "HamiError",
    "InvalidValue",
    "NoDevice",
    "NoDriver",
    "SliceInUse",
    "StateError",
    "Unfit",
    "UnknownCard",
    "UnknownSlice",
    "UnsupportedPlatform",
]


class HamiError(Exception):
    """The base of everything that this package raises by itself.

    Attributes:
        what: what failed.
        why: the reason, as precisely as it is known.
        fix: what to do about it.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        # All three go to Exception, so that the error survives pickling.
        super().__init__(what, why, fix)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.fix}"


class InvalidValue(HamiError, ValueError):
    """A value was refused: write another.

    Attributes:
        field: the option, argument, resource or variable.
        value: the text as it came.
    """

    def __init__(self, field: str, value: str, fix: str) -> None:
        # A value may come from anywhere: quoted, it stays on one line, and short; a terminal obeys
        # more than what JSON has to escape.
        short = value[:64]
        shown = json.dumps(short, ensure_ascii=not short.isprintable()) + "…" * (len(value) > 64)
        super().__init__(field, f"{shown} is refused", fix)
        self.args = (field, value, fix)
        self.field = field
        self.value = value

    def __str__(self) -> str:
        """The value and what to write instead belong together: no new clause between them."""
        return f"{self.what}: {self.why}: {self.fix}"


class DamagedFile(HamiError, ValueError):
    """A limits page or account is not what its format says: make the slice again."""

    def __init__(self, problem: str) -> None:
        super().__init__("damaged file", problem, "make the slice again")
        self.args = (problem,)


class NoDriver(HamiError):
    """There is no working NVIDIA driver here: install or load it, trying again does not help."""


class NoDevice(HamiError):
    """The driver works and has no card for us: give this machine or container one."""


class DriverError(HamiError):
    """The driver failed in a call: look at the card (``nvidia-smi``, ``dmesg``), then try again."""


class Unfit(HamiError):
    """A node does not take a pod.

    Attributes:
        node: its name.
        reason: why, in one line with figures.
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node}", reason, "try another one, or again when pods have ended")
        self.args = (node, reason)
        self.node = node
        self.reason = reason


class UnknownCard(HamiError):
    """A card was named that is not there, or not visible here: name another."""


class UnknownSlice(HamiError):
    """A slice was named that is not there, or more than one is meant: look at ``hami ps``."""


class SliceInUse(HamiError):
    """A slice cannot be removed yet: end what is in it first.

    Attributes:
        pids: the processes that are in it or hold it, as far as they can be told.
    """

    def __init__(self, what: str, pids: Iterable[int]) -> None:
        self.pids = tuple(sorted(pids))
        listed = " ".join(map(str, self.pids))
        by = (
            f"by process {listed.replace(' ', ', ')}"
            if listed
            else "by a process of another container"
        )
        fix = f"end what is in it (`kill {listed}`), then try again" if listed else "end it there"
        if os.getpid() in self.pids:
            fix = "close it here first (`Slice.close()`, or the end of its `with` block)"
        super().__init__(what, f"it is in use {by}", fix)
        self.args = (what, self.pids)


class StateError(HamiError):
    """One of our own files or directories cannot be used: fix its owner, mode or place."""


class UnsupportedPlatform(HamiError):
    """The preload library cannot work on this system: use another image or machine."""


class CannotRun(HamiError):
    """A program could not be started.

    Attributes:
        status: the exit code that shells use for this: 127 not found, 126 found but not startable.
    """

    def __init__(self, what: str, why: str, fix: str, status: int = 126) -> None:
        super().__init__(what, why, fix)
        self.args = (what, why, fix, status)
        self.status = status


class CannotRelaunch(HamiError):
    """This process cannot be started again in a slice: start it in one, with ``hami run``."""
