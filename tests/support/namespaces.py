"""PID namespaces: in one, a process has other numbers than on the host, as in a container."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.running import Started

#: Starts a command as process 1 of a new PID namespace, with its own /proc.
IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

_KEEPER = Path(__file__).parent / "programs" / "keeper.py"


class Namespace:
    """A PID namespace whose processes a test starts and signals; used in `with`."""

    def __init__(self, env: Mapping[str, str]) -> None:
        # The keeper is not limited; the programs are.
        self._env = dict(env)
        self._keeper = Started([*IN_A_NAMESPACE, "python3", "-I", _KEEPER], {})

    def start(self, command: Sequence[str | Path]) -> int:
        """Start a program in it. Gives the program's number there."""
        return self._do(command=[str(part) for part in command], env=self._env)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a program of it that has not been waited for."""
        self._do(signal=number, pid=pid)

    def wait(self, pid: int) -> tuple[int, str]:
        """Wait for a program's end. Gives its exit code, or minus its signal, and its output."""
        code, output = self._do(wait=pid)
        return code, output

    def _do(self, **request: object):  # type: ignore[no-untyped-def]
        self._keeper.tell(json.dumps(request))
        return json.loads(self._keeper.next_line())

    def __enter__(self) -> "Namespace":
        return self

    def __exit__(self, *unused: object) -> None:
        # With process 1 of a namespace, the kernel ends all of it.
        self._keeper.kill()
        self._keeper.__exit__(None, None, None)
