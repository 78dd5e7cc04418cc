"""Executes random programs of device memory, and compares account and ledger after each command."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.console import OUT_OF_MEMORY, Console
from support.random_memory import as_bytes, without_thread
from support.slices import MIB
from support.stub import StubServer
from support.traces import value

#: Seconds until the memory of a killed process must be released.
_DEADLINE = 20.0

_UNIT = 512
"""The account rounds every allocation up to this."""

_UNKNOWN = 1 << 50
"""More bytes than any card has."""

_CHUNK, _GRANULE = 32 * MIB, 2 * MIB
"""A pool may grow by a chunk; large allocations and graphs take whole granules."""


class Broken(Exception):
    """A rule that a program has broken. `rule` is its name."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


@dataclass(frozen=True)
class Setting:
    """What the cards of a slice take: the limits in bytes, and what a context takes.

    `context` is 0 where the slice charges requests only; else granules are charged as well. With
    `is_whole` all sizes are multiples of 512 bytes.
    """

    limits: tuple[int, int]
    context: int = 0
    is_whole: bool = True


class Execution:
    """One execution of a program, in a new slice; used in `with`."""

    def __init__(
        self, gpu: StubServer, slice: Path, console: Callable[[], Console], setting: Setting
    ) -> None:
        self._gpu, self._slice, self._setting = gpu, slice, setting
        self._console = console
        self._stack = ExitStack()
        self._consoles: dict[str, Console] = {}
        # Descriptors by `A:h1`; physical memory by the same names: bytes, card.
        self._descriptors: dict[str, tuple[str, str]] = {}
        self._physical: dict[str, tuple[int, int]] = {}
        # What descriptors refer to; what they keep.
        self._exported: dict[str, tuple[int, int]] = {}
        self._kept: dict[str, tuple[int, int]] = {}
        self._graphs: dict[str, int] = {}
        self._pools: dict[str, int] = {}
        self._capturing: dict[str, int] = {}

    def __enter__(self) -> "Execution":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._wait(lambda: self._is_empty(self._gpu.ledger()))

    def __call__(self, command: str) -> int | None:
        """Make one call, and check the rules; the result, None if the command was left out."""
        name, call, *words = without_thread(command)
        if call == "killed":
            self._kill(name)
            return 0
        line = self._resolve(command)
        if line is None or (call == "export" and f"{name}:{words[0]}" in self._descriptors):
            return None
        console = self._console_of(name)
        result = console(line)
        outputs = console.outputs
        if command.split()[1] == "fork" and result == 0 and call != "close_fd":
            raise Broken("fork", f"{line} succeeded in a child")
        self._told(name, call, words, result, outputs)
        self._check(f"{line} -> {result}")
        closed = [it for it in self._kept if it.split("#")[0] not in self._descriptors]
        if closed:
            # A query looks at most every 10 ms which descriptors are closed.
            time.sleep(0.011)
        if self._check_info(console) is not None:
            for export in closed:
                del self._kept[export]
        if result == OUT_OF_MEMORY:
            self._check_refusal(console, command)
        return result

    def end(self) -> None:
        """Kill the processes: all memory must come back."""
        for name in list(self._consoles):
            self._kill(name)

    # Calls.

    def _console_of(self, name: str) -> Console:
        if name not in self._consoles:
            console = self._stack.enter_context(self._console())
            self._consoles[name] = console
            console("init")
            console("device 0")
            console("stream s0")
            console("stream s1")
        return self._consoles[name]

    def _kill(self, name: str) -> None:
        console = self._consoles.pop(name, None)
        if console is None:
            return
        console.kill()
        prefix = f"{name}:"
        for known in (self._descriptors, self._physical, self._kept):
            for key in [key for key in known if key.startswith(prefix)]:
                del known[key]
        self._wait(lambda: self._is_freed(console.pid))
        # What others have imported from it stays charged to it.
        self._wait(self._agrees)
        # A living process looks for dead ones at most every 10 ms.
        time.sleep(0.011)
        self._check(f"kill {name}")

    def _resolve(self, command: str) -> str | None:
        """The console's line: descriptors have numbers."""
        _, *words = command.split()
        for position, word in enumerate(words):
            if word.startswith("@"):
                found = self._descriptors.get(word[1:])
                if found is None:
                    return None
                words[position] = " ".join(found if "import" in words else found[1:])
        return " ".join(words)

    def _told(self, name: str, call: str, words: list[str], result: int, outputs: str) -> None:
        key = f"{name}:{words[0]}" if words else ""
        if call == "close_fd":
            del self._descriptors[words[0][1:]]
        if result != 0:
            return
        if call == "create" and words[2:3] != ["host"]:
            device = int(words[2]) if len(words) > 2 else 0
            self._physical[key] = (as_bytes(words[1]), device)
        elif call == "export":
            self._descriptors[key] = (str(value(outputs, "pid")), str(value(outputs, "fd")))
            self._exported[key] = self._physical.get(key, (_UNKNOWN, 0))
            self._kept[f"{key}#{len(self._kept)}"] = self._exported[key]
        elif call == "import":
            self._physical[key] = self._exported[words[1][1:]]
        self._told_of_pools(name, call, words)
        self._told_of_graphs(name, call, words)

    def _told_of_pools(self, name: str, call: str, words: list[str]) -> None:
        if call == "pool":
            self._pools[f"{name}:{words[0]}"] = int(words[1])

    def _told_of_graphs(self, name: str, call: str, words: list[str]) -> None:
        """What graphs allocate at most, in granules."""
        key = f"{name}:{words[0]}" if words else ""
        if call == "graph":
            self._graphs[key] = 0
        elif call in {"alloc_node", "alloc_node_on"}:
            graph, size = words[1:3] if call == "alloc_node" else words[2:4]
            self._graphs[f"{name}:{graph}"] += _granules(as_bytes(size))
        elif call == "begin":
            self._capturing[key] = 0
        elif call == "async" and f"{name}:{words[2]}" in self._capturing:
            self._capturing[f"{name}:{words[2]}"] += _granules(as_bytes(words[1]))
        elif call == "end":
            self._graphs[f"{name}:{words[1]}"] = self._capturing.pop(key, _UNKNOWN)
        elif call == "instantiate":
            self._graphs[key] = self._graphs.get(f"{name}:{words[1]}", _UNKNOWN)

    # Rules.

    def _check(self, after: str) -> None:
        ledger = self._gpu.ledger()
        for card, limit in enumerate(self._setting.limits):
            of_card = ledger["cards"][card]
            if of_card["requested"]["peak"] > limit:
                raise Broken("limit", f"{after}: card {card}: {of_card}")
            if self._setting.context and of_card["occupied"]["peak"] > limit:
                raise Broken("limit with driver memory", f"{after}: card {card}: {of_card}")
            low, high = self._expected(ledger, card)
            charged, driver = self._accounted(card)
            if not low <= charged <= high:
                raise Broken(
                    "account",
                    f"{after}: card {card}: charged {charged}, expected {low} to {high}: {of_card}",
                )
            expected = self._driver_memory(of_card)
            if driver != expected:
                raise Broken(
                    "driver memory",
                    f"{after}: card {card}: charged {driver}, expected {expected}: {of_card}",
                )

    def _agrees(self) -> bool:
        ledger = self._gpu.ledger()
        for card in range(len(self._setting.limits)):
            low, high = self._expected(ledger, card)
            charged, driver = self._accounted(card)
            is_right = low <= charged <= high
            if not is_right or driver != self._driver_memory(ledger["cards"][card]):
                return False
        return True

    def _expected(self, ledger: dict[str, Any], card: int) -> tuple[int, int]:
        """The least and the most that may be charged for requests."""
        of_card = ledger["cards"][card]
        held = of_card["held"]["now"]
        kept = sum(size for size, on in self._kept.values() if on == card)
        padding = 0 if self._setting.is_whole else (_UNIT - 1) * of_card["allocations"]
        return held, held + kept + padding

    def _driver_memory(self, of_card: dict[str, Any]) -> int:
        if not self._setting.context:
            return 0
        return sum(int(of_card[part]["now"]) for part in ("context", "local", "rounding"))

    def _accounted(self, card: int) -> tuple[int, int]:
        """The charges for requests and for the driver."""
        from hami_py._native import Account

        processes = Account.open(self._slice / "account").snapshot().processes
        driver = sum(process.driver_memory[card] for process in processes)
        return sum(process.memory[card] for process in processes) - driver, driver

    def _check_info(self, console: Console, thread: str = "") -> int | None:
        """cuMemGetInfo tells limit and rest. Returns the current card, if there is one."""
        from hami_py._native import Account

        if console(f"{thread}info") != 0:
            return None
        free, total = value(console.outputs, "free"), value(console.outputs, "total")
        if total not in self._setting.limits:
            raise Broken("info", f"total is {total}")
        card = self._setting.limits.index(total)
        used = Account.open(self._slice / "account").snapshot().memory_used[card]
        of_card = self._gpu.ledger()["cards"][card]
        expected = min(max(0, total - used), of_card["total"] - of_card["used"])
        if free != expected:
            raise Broken("info", f"card {card}: free is {free}, expected {expected}: {of_card}")
        return card

    def _check_refusal(self, console: Console, command: str) -> None:
        """A request that fits must be granted."""
        name, call, *words = without_thread(command)
        needed = self._needed(name, call, words)
        card = self._card_of(name, call, words)
        if card is None and call in _LINEAR:
            thread = command.split()[2] if command.split()[1] == "on" else ""
            card = self._check_info(console, f"on {thread} " if thread else "")
        cards = range(len(self._setting.limits)) if card is None else [card]
        rooms = [self._room(card) for card in cards]
        if all(needed <= room for room in rooms):
            raise Broken("refused", f"{command}: {needed} bytes, room {rooms}")

    def _room(self, card: int) -> int:
        ledger = self._gpu.ledger()
        driver = self._driver_memory(ledger["cards"][card])
        charged = self._expected(ledger, card)[1]
        return self._setting.limits[card] - charged - driver

    def _card_of(self, name: str, call: str, words: list[str]) -> int | None:
        """The card of a request that names it."""
        if call == "create":
            return int(words[2]) if len(words) > 2 else 0
        if call == "context":
            return int(words[1])
        if call == "device":
            return int(words[0])
        if call == "green":
            return int(words[2])
        if call == "from_pool":
            return self._pools.get(f"{name}:{words[2]}")
        return None

    def _needed(self, name: str, call: str, words: list[str]) -> int:
        """At most so many bytes are needed for a request; very many if that is not known."""
        if call in {"launch", "upload"}:
            return self._graphs.get(f"{name}:{words[call == 'launch']}", _UNKNOWN)
        if call in {"device", "context", "green"}:
            return self._setting.context
        if call not in _BYTES:
            return _UNKNOWN
        numbers = [as_bytes(word) for word in words[1:] if word[0].isdigit()]
        # What a command leaves out is 1.
        bytes = _BYTES[call]([*numbers, *[1] * 7])
        return self._rounded(bytes) if call in _LINEAR - {"managed"} else _units(bytes)

    def _rounded(self, bytes: int) -> int:
        is_large = self._setting.context and bytes > MIB
        return _granules(bytes) if is_large else _units(bytes)

    # Ends.

    def _wait(self, condition: Callable[[], bool]) -> None:
        from hami_py._native import Account

        until = time.monotonic() + _DEADLINE
        while not condition():
            if time.monotonic() > until:
                charges = [self._accounted(card) for card in range(len(self._setting.limits))]
                seen = f"charged: {charges}, ledger: {self._gpu.ledger()}"
                raise Broken("release", f"not within {_DEADLINE} s: {seen}")
            Account.open(self._slice / "account").reclaim()
            time.sleep(0.002)

    def _is_freed(self, pid: int) -> bool:
        return all(
            process["state"] == "freed"
            for process in self._gpu.ledger()["processes"]
            if process["pid"] == pid
        )

    def _is_empty(self, ledger: dict[str, Any]) -> bool:
        return all(card["used"] == 0 and card["held"]["now"] == 0 for card in ledger["cards"])


_LINEAR = {"alloc", "managed", "pitch", "array", "array3d", "mipmap", "external"}


_BYTES: dict[str, Callable[[list[int]], int]] = {
    "alloc": lambda of: of[0],
    "managed": lambda of: of[0],
    "create": lambda of: of[0],
    "external": lambda of: of[0],
    "pitch": lambda of: _units(of[0]) * of[1],
    "array": lambda of: of[0] * max(of[1], 1) * of[2] * of[3],
    "array3d": lambda of: of[0] * of[1] * max(of[2], 1) * of[4] * of[5],
    "mipmap": lambda of: 2 * of[0] * of[1] * of[5] * of[6],
    "async": lambda of: _granules(of[0]) + _CHUNK,
    "from_pool": lambda of: _granules(of[0]) + _CHUNK,
}
"""What requests need at most, from the numbers in the command."""


def _units(bytes: int) -> int:
    return -(-bytes // _UNIT) * _UNIT


def _granules(bytes: int) -> int:
    return -(-bytes // _GRANULE) * _GRANULE


def execute(
    execution: Execution,
    next_command: Callable[[int | None], str | None],
    *,
    to_the_end: bool = True,
) -> Broken | None:
    """Execute a program; the rule that it breaks.

    `next_command` takes the last result, and returns None at the end. Without `to_the_end`, it does
    not matter whether memory comes back.
    """
    try:
        with execution:
            result = None
            while (command := next_command(result)) is not None:
                result = execution(command)
            if to_the_end:
                execution.end()
    except Broken as broken:
        return broken
    except (AssertionError, TimeoutError) as ended:
        return Broken("ended", str(ended)[:2000])
    return None
