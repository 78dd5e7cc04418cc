"""A stub GPU server for one test, and what its ledger says.

The ledger is the tests' oracle: it is kept by the stub inside its own lock, and shares no code and
no idea with the library under test.
"""

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.artifacts import Artifacts
from support.running import Started

#: Seconds that the server has to answer, or a state has to be reached; far more than any takes.
_DEADLINE = 60.0


class StubServer:
    """A running `stub-gpu serve`; used in `with`.

    ``cards`` are profile names or files, separated by commas. ``options`` become the server's
    flags: ``free_delay_ms=50`` is ``--free-delay-ms 50``.
    """

    def __init__(self, artifacts: Artifacts, folder: Path, cards: str, **options: object) -> None:
        folder.mkdir()
        self.cards = cards
        self._artifacts = artifacts
        self._socket = folder / "gpu.sock"
        self._control = folder / "control.sock"
        flags = [part for name, value in options.items() for part in flag(name, value)]
        self._server = Started(
            [
                artifacts.stub_gpu,
                "serve",
                "--with-parent",
                *flag("socket", self._socket),
                *flag("control", self._control),
                *flag("cards", cards),
                *flags,
            ],
            {},
        )

    def __enter__(self) -> "StubServer":
        try:
            self._server.wait_for("ready", _DEADLINE)
        except BaseException:
            self._server.kill()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.kill()
        self._server.__exit__(None, None, None)

    @property
    def env(self) -> dict[str, str]:
        """The environment with which a program finds this GPU; slices charge requests only.

        Most tests compare requested bytes with a limit, whatever card they run on.
        """
        return {**self.charging_env, "HAMI_CONTEXT_MEMORY": "0", "HAMI_GRANULE": "0"}

    @property
    def charging_env(self) -> dict[str, str]:
        """The same, and slices charge what the driver takes as they do for users."""
        return {
            "LD_LIBRARY_PATH": str(self._artifacts.stub_dir),
            "STUB_GPU_SOCKET": str(self._socket),
        }

    @property
    def client_socket(self) -> Path:
        """Where programs reach it."""
        return self._socket

    @property
    def control_socket(self) -> Path:
        """Where it is asked and told."""
        return self._control

    def control(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request to the control socket, and its answer."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(_DEADLINE)
            connection.connect(str(self._control))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
        assert "error" not in answer, f"{request}: {answer}"
        return answer

    def ledger(self) -> dict[str, Any]:
        """The memory that each client holds, now and at most: `cards` and `processes`."""
        return self.control({"command": "ledger"})

    def uuids(self) -> list[str]:
        """The cards' UUIDs, in PCI order."""
        return [card["uuid"] for card in self.ledger()["cards"]]

    def held(self, card: int = 0) -> int:
        """Bytes that programs asked for and hold now."""
        return int(self.ledger()["cards"][card]["requested"]["now"])

    def peak(self, card: int = 0) -> int:
        """The most bytes that programs ever held at one instant."""
        return int(self.ledger()["cards"][card]["requested"]["peak"])

    def booked(self, kind: str, card: int = 0) -> int:
        """Bytes of one kind now, such as `requested`, `context` or `modules`."""
        return int(self.ledger()["cards"][card][kind]["now"])

    def calls(self, library: str = "cuda") -> Counter[str]:
        """How often each function was called, all processes together; 0 if it never was."""
        total: Counter[str] = Counter()
        for process in self.ledger()["processes"]:
            if process["library"] == library:
                total.update(process["calls"])
        return total

    def wait_until(
        self, condition: Callable[["StubServer"], bool], deadline: float = _DEADLINE
    ) -> None:
        """Wait until this is true of the server."""
        until = time.monotonic() + deadline
        while not condition(self):
            if time.monotonic() > until:
                raise TimeoutError(f"not within {deadline} s: {self.ledger()}")
            time.sleep(0.002)


def flag(name: str, value: object) -> list[str]:
    """An option of the server as words of its command line."""
    return [f"--{name.replace('_', '-')}", str(value)]
