"""How much of the card the driver takes for itself, when, and when it frees it.

These numbers are not documented and differ between cards and drivers, but a limit that counts them
needs them. All of them are differences of NVML's numbers, read by another process.
"""

import os
import time
from collections.abc import Iterator

from bench.results import Row
from gpu.card import SOURCES, Card
from gpu.measures import driver_memory, kinds, local_memory
from gpu.measures.growth import Growth, Sample, rows, settle
from support.console import RELEASE_THRESHOLD, RESERVED_NOW, Console
from support.slices import KIB, MIB


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, group by group; a text is a measurement that failed."""
    # The groups with the most contexts, and so the slowest on a real card, are the last.
    groups = (
        *(
            contexts,
            probes,
            pages,
            kinds.arrays,
            kinds.virtual,
            kinds.graphs,
            kinds.exports,
            kinds.handles,
        ),
        *(driver_memory.modules, driver_memory.libraries, driver_memory.green),
        *(driver_memory.limits, driver_memory.resets, driver_memory.returns),
        *(pitches, managed, frees, deaths, pools),
        *local_memory.GROUPS,
    )
    for group in groups:
        yield from rows(group, card, command)


def contexts(card: Card) -> Sample:
    """A context, modules and local memory, step by step."""
    grown, idle = Growth(card), card.used()
    with Console(card.programs("console"), card.env) as console:
        console.do("lookup dlsym", "init")
        yield "cuInit", grown(), "bytes"
        console.do("device 0")
        yield "primary context", grown(), "bytes"
        own = card.observe()["processes"].get(str(console.pid))
        yield "NVML lists the process under its own PID", float(own is not None), "(1 = yes)"
        if own is not None:
            yield (
                "process's bytes by NVML less the card's growth",
                own - (card.used() - idle),
                "bytes",
            )
        total, free = console.value("info", "total"), console.value("info", "free")
        outside = card.observe()
        yield "NVML total less cuMemGetInfo total", outside["total"] - total, "bytes"
        yield "NVML free less cuMemGetInfo free", outside["free"] - free, "bytes"
        yield from _modules(console, grown)
        console.do("context c 0")
        yield "second context (cuCtxCreate)", grown(), "bytes"
        console.do("destroy c")
        yield "second context destroyed", grown(), "bytes"


def probes(card: Card) -> Sample:
    """What a process takes that only calls cuInit and cuDevicePrimaryCtxRetain: hami's estimate."""
    for _ in range(3):
        yield from _probed(card, "probe process, alone")
    with Console(card.programs("console"), card.env) as first:
        first.do("lookup dlsym", "init", "device 0")
        yield from _probed(card, "probe process, beside another")


def _probed(card: Card, title: str) -> Sample:
    settle(card)
    before = card.observe()
    grown = Growth(card)
    with Console(card.programs("console"), card.env) as console:
        console.do("lookup dlsym", "init")
        yield f"{title}: cuInit", grown(), "bytes"
        console.do("device 0")
        yield f"{title}: cuDevicePrimaryCtxRetain", grown(), "bytes"
        listed = card.observe()["processes"]
        new = [used for pid, used in listed.items() if pid not in before["processes"]]
        if len(new) == 1 and new[0] is not None:
            yield f"{title}: NVML's figure of the process", new[0], "bytes"
        yield f"{title}: all of it", card.used() - before["used"], "bytes"


def _modules(console: Console, grown: Growth) -> Sample:
    for title, file, kernel, arguments in (
        ("module without local memory", "plain.ptx", "empty", "0"),
        ("module with 64 KiB of local memory a thread", "scratch.ptx", "scratch", "8 4096"),
    ):
        console.do(f"module m {SOURCES / file}")
        yield f"{title}: load", grown(), "bytes"
        console.do(f"kernel k m {kernel}", f"launch_with k - {arguments}", "sync_context")
        yield f"{title}: first launch", grown(), "bytes"
        console.do(f"launch_with k - {arguments}", "sync_context")
        yield f"{title}: second launch", grown(), "bytes"


def pages(card: Card) -> Sample:
    """The bytes that cuMemAlloc takes for a request, and how many small requests share them."""
    with card.console() as console:
        grown = Growth(card)
        for size in (1, 512, MIB, MIB + 1, 3 * MIB // 2, 2 * MIB, 2 * MIB + 1, 3 * MIB, 33 * MIB):
            console.do(f"alloc a {size}")
            yield f"cuMemAlloc({size})", grown(), "bytes"
            console.do("free a")
            grown()
        for size in (64 * KIB, MIB - 512, MIB + 1):
            console.do(*(f"alloc a{number} {size}" for number in range(100)))
            yield f"100 times cuMemAlloc({size})", grown(), "bytes"
            console.do(*(f"free a{number}" for number in range(100)))
            yield f"100 times cuMemAlloc({size}), all freed", grown(), "bytes"
        console.do("alloc a 1")
        grown()
        fitting = 1
        while fitting < 4000 and grown() == 0:
            console.do("alloc a 512")
            fitting += 1
        yield "allocations of 512 bytes before the card's use grows again", fitting, "allocations"


def pitches(card: Card) -> Sample:
    """The pitch that the driver chooses for rows of some sizes."""
    with card.console() as console:
        for width in (1, 4, 512, 513, 1025, 4097, 65537):
            pitch = console.value(f"pitch a {width} 64 4", "pitch")
            yield f"pitch of rows of {width}", pitch, "bytes"
            console.do("free a")


def managed(card: Card) -> Sample:
    """Managed memory that was never touched."""
    with card.console() as console:
        grown = Growth(card)
        console.do("managed a 256M 1")
        yield "cuMemAllocManaged(256 MiB), untouched", grown(), "bytes"
        console.do("free a")
        yield "the same, freed", grown(), "bytes"


def pools(card: Card) -> Sample:
    """How the default pool grows, and when it shrinks."""
    for size in (KIB, MIB, 31 * MIB, 33 * MIB, 100 * MIB):
        with card.console() as console:
            console.do("default_pool p 0")
            grown = Growth(card)
            name = f"cuMemAllocAsync({size // KIB} KiB)"
            console.do(f"async a {size} -")
            yield f"{name}: reserved", _reserved(console), "bytes"
            yield f"{name}: card", grown(), "bytes"
            console.do("free_async a")
            yield f"{name}: reserved after cuMemFreeAsync", _reserved(console), "bytes"
            console.do("sync_context")
            yield f"{name}: reserved after synchronising", _reserved(console), "bytes"
            yield f"{name}: card after synchronising", grown(), "bytes"
    with card.console() as console:
        console.do("default_pool p 0", f"set p {RELEASE_THRESHOLD} {(1 << 64) - 1}")
        console.do(*(f"async a{number} 1M -" for number in range(40)))
        yield "40 times cuMemAllocAsync(1 MiB): reserved", _reserved(console), "bytes"
        console.do(*(f"free_async a{number}" for number in range(0, 40, 2)))
        console.do("sync_context", "trim p 0")
        yield "half of them freed, pool trimmed: reserved", _reserved(console), "bytes"
    with card.console() as console:
        grown = Growth(card)
        console.do("pool p 0")
        yield "cuMemPoolCreate: card", grown(), "bytes"
        console.do("from_pool a 1M p -")
        yield "created pool, 1 MiB: reserved", _reserved(console), "bytes"


def _reserved(console: Console) -> int:
    return console.attribute("p", RESERVED_NOW)


def frees(card: Card) -> Sample:
    """Whether cuMemFree waits for kernels, and whether the bytes are free when it returns."""
    with card.console() as console:
        console.do(f"module m {SOURCES / 'plain.ptx'}", "kernel k m spin")
        grown = Growth(card)
        console.do("alloc a 256M")
        grown()
        console.do("free a")
        yield "card right after cuMemFree(256 MiB)", grown(), "bytes"
        for title, kernel in (("idle card", None), ("kernel of 200 ms running", 200_000_000)):
            console.do("alloc a 256M")
            if kernel:
                console.do(f"launch_with k - {kernel}")
            yield f"cuMemFree, {title}", console.value("time free a", "ns") / 1e6, "ms"
            console.do("sync_context")


def deaths(card: Card) -> Sample:
    """How long after SIGKILL a process's bytes are free, by NVML."""
    for title, kernel in (("idle", None), ("kernel of 200 ms running", 200_000_000)):
        # The driver may keep a little more than before.
        before = card.used() + 16 * MIB
        with card.console() as console:
            console.do(f"module m {SOURCES / 'plain.ptx'}", "kernel k m spin", "alloc a 1G")
            if kernel:
                console.do(f"launch_with k - {kernel}")
            start = time.monotonic()
            os.kill(console.pid, 9)
            card.wait_until(lambda limit=before: card.used() <= limit, "the bytes come back")
            yield f"SIGKILL to bytes back, {title}", (time.monotonic() - start) * 1e3, "ms"
