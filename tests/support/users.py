"""Another user of this machine, in whose name a test, run by root, does things.

Functions run in a forked child that has given root up: neither the interpreter's files nor the
checkout need be readable by that user.
"""

import contextlib
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any


class User:
    """A user of this number, with a home; it need not be in any list of users."""

    def __init__(self, number: int, home: Path) -> None:
        self.number, self.home = number, home
        home.mkdir(mode=0o755)
        os.chown(home, number, number)

    def command(self, *command: str | Path) -> list[str | Path]:
        """The command, run as this user."""
        who = str(self.number)
        return ["setpriv", f"--reuid={who}", f"--regid={who}", "--clear-groups", "--", *command]

    def call(self, function: Callable[[], Any]) -> Any:
        """The result of the function when this user calls it."""

        @contextlib.contextmanager
        def called() -> Iterator[Any]:
            yield function()

        with self.holding(called()) as result:
            return result

    @contextlib.contextmanager
    def holding(self, entered: AbstractContextManager[Any]) -> Iterator[Any]:
        """The manager's value, while a process of this user is inside it."""
        results, result = os.pipe()
        until, end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(end)
            self._child(entered, result, until)
        os.close(result)
        os.close(until)
        try:
            with open(results, "rb") as stream:  # noqa: PTH123 - a descriptor
                sent = stream.read()
            answer, value = pickle.loads(sent) if sent else ("failed", "ended without a word")  # noqa: S301
            assert answer == "value", value
            yield value
        finally:
            os.close(end)
            _, status = os.waitpid(child, 0)
        assert status == 0

    def _child(self, entered: AbstractContextManager[Any], result: int, until: int) -> None:
        code = 1
        try:
            os.setgroups([])
            os.setgid(self.number)
            os.setuid(self.number)
            os.chdir("/")
            with entered as value:
                os.write(result, pickle.dumps(("value", value)))
                os.close(result)
                os.read(until, 1)
            code = 0
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(result, pickle.dumps(("failed", traceback.format_exc())))
        finally:
            os._exit(code)
