"""How much of the card the driver takes for itself, when, and when it gives it back.

Nobody documents these numbers and they differ between cards and drivers, but a limit that counts
them needs them. All of them are differences of what NVML says, read by another process.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator

from bench.results import Row, middle_half
from gpu.card import SOURCES, Card
from gpu.console import (
    DEFAULT_POOL,
    RELEASE_THRESHOLD,
    RESERVED_NOW,
    Console,
)
from support.slices import KIB, MIB

REPEATS = 3

#: One run's numbers: name, value, unit.
Sample = Iterator[tuple[str, float, str]]


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, group by group; a text is what could not be measured."""
    for group in (contexts, pages, pitches, managed, pools, frees, deaths):
        try:
            yield _rows(group, card, command)
        except (AssertionError, OSError, KeyError) as error:
            yield f"{group.__name__}: {type(error).__name__}: {error}"


def _rows(group: Callable[[Card], Sample], card: Card, command: str) -> list[Row]:
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(REPEATS):
        for name, value, unit in group(card):
            found.setdefault((name, unit), []).append(value)
    return [
        Row(
            name,
            round(statistics.median(values), 3),
            unit,
            round(middle_half(values), 3),
            len(values),
            None,
            "lower",
            command,
        )
        for (name, unit), values in found.items()
    ]


class Growth:
    """What NVML's "used" has grown by since the last time it was asked."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._last = card.used()

    def __call__(self) -> int:
        now = self._card.used()
        grown, self._last = now - self._last, now
        return grown


def contexts(card: Card) -> Sample:
    """A context, modules and local memory, step by step."""
    grown, idle = Growth(card), card.used()
    with Console(card.programs("console"), card.env) as console:
        console.do("init")
        yield "cuInit", grown(), "bytes"
        console.do("use", 0)
        yield "primary context", grown(), "bytes"
        own = card.observe()["processes"].get(str(console.pid))
        yield "NVML lists the process under its own PID", float(own is not None), "(1 = yes)"
        if own is not None:
            yield (
                "process's bytes by NVML less the card's growth",
                own - (card.used() - idle),
                "bytes",
            )
        info = console.do("info")
        outside = card.observe()
        yield "NVML total less cuMemGetInfo total", outside["total"] - info["total"], "bytes"
        yield "NVML free less cuMemGetInfo free", outside["free"] - info["free"], "bytes"
        yield from _modules(console, grown)
        second = console.do("create", 0)["context"]
        yield "second context (cuCtxCreate)", grown(), "bytes"
        console.do("destroy", second)
        yield "second context destroyed", grown(), "bytes"


def _modules(console: Console, grown: Growth) -> Sample:
    for title, file, kernel, arguments in (
        ("module without local memory", "plain.ptx", "empty", ()),
        ("module with 64 KiB of local memory a thread", "scratch.ptx", "scratch", (8, 4096)),
    ):
        console.do("module", SOURCES / file)
        yield f"{title}: load", grown(), "bytes"
        console.do("launch", kernel, *arguments)
        console.do("sync")
        yield f"{title}: first launch", grown(), "bytes"
        console.do("launch", kernel, *arguments)
        console.do("sync")
        yield f"{title}: second launch", grown(), "bytes"


def pages(card: Card) -> Sample:
    """What cuMemAlloc takes for a request of so many bytes, and how many small ones share it."""
    with card.console() as console:
        grown = Growth(card)
        for size in (1, 512, MIB, 2 * MIB, 2 * MIB + 1, 3 * MIB, 33 * MIB):
            slot = console.do("alloc", size)["slot"]
            yield f"cuMemAlloc({size})", grown(), "bytes"
            console.do("free", slot)
            grown()
        console.do("alloc", 1)
        grown()
        fitting = 1
        while fitting < 4000 and grown() == 0:
            console.do("alloc", 512)
            fitting += 1
        yield "allocations of 512 bytes before the card's use grows again", fitting, "allocations"


def pitches(card: Card) -> Sample:
    """Which pitch the driver chooses for rows of so many bytes."""
    with card.console() as console:
        for width in (1, 4, 512, 513, 1025, 4097, 65537):
            answer = console.do("pitch", width, 64)
            yield f"pitch of rows of {width}", answer["pitch"], "bytes"
            console.do("free", answer["slot"])


def managed(card: Card) -> Sample:
    """Managed memory that nobody has touched."""
    with card.console() as console:
        grown = Growth(card)
        slot = console.do("managed", 256 * MIB)["slot"]
        yield "cuMemAllocManaged(256 MiB), untouched", grown(), "bytes"
        console.do("free", slot)
        yield "the same, freed", grown(), "bytes"


def pools(card: Card) -> Sample:
    """How the default pool grows, and when it gives back."""
    for size in (KIB, MIB, 31 * MIB, 33 * MIB, 100 * MIB):
        with card.console() as console:
            console.do("default_pool")
            grown = Growth(card)
            name = f"cuMemAllocAsync({size // KIB} KiB)"
            slot = console.do("async", size)["slot"]
            yield f"{name}: reserved", _reserved(console), "bytes"
            yield f"{name}: card", grown(), "bytes"
            console.do("free_async", slot)
            yield f"{name}: reserved after cuMemFreeAsync", _reserved(console), "bytes"
            console.do("sync")
            yield f"{name}: reserved after synchronising", _reserved(console), "bytes"
            yield f"{name}: card after synchronising", grown(), "bytes"
    with card.console() as console:
        console.do("default_pool")
        console.do("set_pool_attribute", DEFAULT_POOL, RELEASE_THRESHOLD, (1 << 64) - 1)
        slots = [console.do("async", MIB)["slot"] for _ in range(40)]
        yield "40 times cuMemAllocAsync(1 MiB): reserved", _reserved(console), "bytes"
        for slot in slots[::2]:
            console.do("free_async", slot)
        console.do("sync")
        console.do("trim", DEFAULT_POOL, 0)
        yield "half of them freed, pool trimmed: reserved", _reserved(console), "bytes"
    with card.console() as console:
        grown = Growth(card)
        pool = console.do("create_pool")["pool"]
        yield "cuMemPoolCreate: card", grown(), "bytes"
        console.do("from_pool", pool, MIB)
        answer = console.do("pool_attribute", pool, RESERVED_NOW)
        yield "created pool, 1 MiB: reserved", answer["value"], "bytes"


def _reserved(console: Console) -> int:
    return console.do("pool_attribute", DEFAULT_POOL, RESERVED_NOW)["value"]


def frees(card: Card) -> Sample:
    """Whether cuMemFree waits for kernels, and whether the bytes are there when it returns."""
    with card.console() as console:
        console.do("module", SOURCES / "plain.ptx")
        grown = Growth(card)
        slot = console.do("alloc", 256 * MIB)["slot"]
        grown()
        console.do("free", slot)
        yield "card right after cuMemFree(256 MiB)", grown(), "bytes"
        for title, kernel in (("idle card", None), ("kernel of 200 ms running", 200_000_000)):
            slot = console.do("alloc", 256 * MIB)["slot"]
            if kernel:
                console.do("launch", "spin", kernel)
            yield f"cuMemFree, {title}", console.do("free", slot)["ns"] / 1e6, "ms"
            console.do("sync")


def deaths(card: Card) -> Sample:
    """How long after SIGKILL a process's bytes are there again, by NVML."""
    for title, kernel in (("idle", None), ("kernel of 200 ms running", 200_000_000)):
        # The driver may keep a little that it had not taken before.
        before = card.used() + 16 * MIB
        with card.console() as console:
            console.do("module", SOURCES / "plain.ptx")
            console.do("alloc", 1024 * MIB)
            if kernel:
                console.do("launch", "spin", kernel)
            start = time.monotonic()
            os.kill(console.pid, 9)
            card.wait_until(lambda limit=before: card.used() <= limit, "the bytes come back")
            yield f"SIGKILL to bytes back, {title}", (time.monotonic() - start) * 1e3, "ms"
