"""What the driver takes of the card for contexts, code and limits, and how fast memory returns."""

import time
from dataclasses import dataclass

from gpu.card import SOURCES, Card
from gpu.measures.growth import Growth, Sample, tried
from support.console import SUCCESS, Console
from support.slices import MIB


@dataclass(frozen=True)
class Limit:
    """A limit of a context, and the kernel that uses what it sizes."""

    name: str
    size: str
    file: str
    kernel: str
    argument: str


LIMITS = (
    Limit("stack", "16K", "deep.ptx", "deep", "100"),
    Limit("heap", "256M", "heap.ptx", "allocate", "1M"),
    Limit("printf", "64M", "print.ptx", "print", "0"),
)

#: A module's title, and its file and kernel.
IMAGES = (
    ("small module", "plain.ptx", "empty"),
    ("module with 64 MiB of .global", "large.ptx", "touch"),
    ("module that calls malloc", "heap.ptx", "allocate"),
    ("module that calls vprintf", "print.ptx", "print"),
)

#: Seconds to wait for freed memory.
WAIT = 1.0


def modules(card: Card) -> Sample:
    """When a module takes memory, and whether its end returns that."""
    with card.console() as console:
        grown = Growth(card)
        for title, file, kernel in IMAGES:
            yield from tried(title, _module(console, grown, title, file, kernel))


def _module(console: Console, grown: Growth, title: str, file: str, kernel: str) -> Sample:
    for call, commands in (
        ("cuModuleLoadData", (f"module m {SOURCES / file}",)),
        ("cuModuleGetFunction", (f"kernel k m {kernel}",)),
        ("first launch", ("launch_with k - 64", "sync_context")),
        ("second launch", ("launch_with k - 64", "sync_context")),
        ("cuModuleUnload", ("unload m",)),
    ):
        console.do(*commands)
        yield f"{title}: {call}", grown(), "bytes"


def libraries(card: Card) -> Sample:
    """The same for libraries, which the driver may load into a context later."""
    with card.console() as console:
        grown = Growth(card)
        for module, file, kernel in IMAGES[:2]:
            title = module.replace("module", "library")
            yield from tried(title, _library(console, grown, title, file, kernel))


def _library(console: Console, grown: Growth, title: str, file: str, kernel: str) -> Sample:
    for call, commands in (
        ("cuLibraryLoadData", (f"library l {SOURCES / file}",)),
        ("cuLibraryGetKernel", (f"library_kernel k l {kernel}",)),
        ("first launch", ("launch_with k - 64", "sync_context")),
        ("cuLibraryUnload", ("library_unload l",)),
    ):
        console.do(*commands)
        yield f"{title}: {call}", grown(), "bytes"


def green(card: Card) -> Sample:
    """A green context, in a process that has no other context."""
    with Console(card.programs("console"), card.env) as console:
        console.do("lookup dlsym", "init")
        grown = Growth(card)
        for title, commands in (
            ("cuGreenCtxCreate without a primary context", ("green g 16",)),
            ("cuCtxFromGreenCtx, current", ("green_context c g", "current c")),
            ("cuMemAlloc(64 MiB) in a green context", ("alloc a 64M",)),
            ("module and launch in a green context", _LAUNCH),
            ("second green context", ("green h 16",)),
            ("second green context destroyed", ("green_free h",)),
            ("primary context beside a green context", ("device 0",)),
            ("green context destroyed", ("green_free g",)),
            ("primary context released", ("release 0",)),
        ):
            console.do(*commands)
            yield title, grown(), "bytes"


_LAUNCH = (
    f"module m {SOURCES / 'plain.ptx'}",
    "kernel k m empty",
    "launch_with k - 0",
    "sync_context",
)


def limits(card: Card) -> Sample:
    """When a raised limit takes memory, and whether it returns when the limit is lowered."""
    for limit in LIMITS:
        with card.console() as console:
            yield from tried(f"limit {limit.name}", _limit(console, Growth(card), limit))


def _limit(console: Console, grown: Growth, limit: Limit) -> Sample:
    name, size = limit.name, limit.size
    title = f"cuCtxSetLimit({name}, {size})"
    before = console.value(f"limit_get {name}", "value")
    yield f"limit {name}: default", before, "bytes"
    console.do(*_LAUNCH)
    grown()
    for step, commands in (
        ("at once", (f"limit {name} {size}",)),
        ("launch that does not use it", ("launch_with k - 0", "sync_context")),
        ("module that uses it", _loaded(limit)),
        ("first launch that uses it", (f"launch_with u - {limit.argument}", "sync_context")),
    ):
        console.do(*commands)
        yield f"{title}: {step}", grown(), "bytes"
    yield f"{title}: cuCtxGetLimit", console.value(f"limit_get {name}", "value"), "bytes"
    # The heap's limit cannot be changed once a kernel has used the heap.
    yield f"{title}: set back", console(f"limit {name} {before}"), "CUresult"
    yield f"{title}: set back", grown(), "bytes"
    console.do("launch_with k - 0", "sync_context")
    yield f"{title}: launch after it is set back", grown(), "bytes"


def _loaded(limit: Limit) -> tuple[str, str]:
    return f"module n {SOURCES / limit.file}", f"kernel u n {limit.kernel}"


def resets(card: Card) -> Sample:
    """A primary context that is reset and created again, in the same process."""
    with card.console() as console:
        grown = Growth(card)
        console.do("alloc a 64M", f"module m {SOURCES / 'large.ptx'}")
        grown()
        console.do("reset 0")
        yield "cuDevicePrimaryCtxReset, with 64 MiB and a module of 64 MiB", grown(), "bytes"
        console.do("device 0")
        yield "primary context after the reset", grown(), "bytes"
        console.do("context c 0")
        yield "cuCtxCreate beside it", grown(), "bytes"
        console.do("destroy c", "release 0")
        yield "cuCtxDestroy and cuDevicePrimaryCtxRelease", grown(), "bytes"


def returns(card: Card) -> Sample:
    """How long after a call NVML shows that the memory is free."""
    with card.console() as console:
        for title, take, give in (
            ("cuMemFree of 256 MiB", ("alloc a 256M",), "free a"),
            ("cuMemRelease of 256 MiB, never mapped", ("create h 256M",), "release h"),
            ("cuMemUnmap of 256 MiB, released", _MAPPED, "unmap r 256M"),
            ("cuArrayDestroy of 256 MiB", ("array a 16384 16384",), "array_free a"),
            ("cuModuleUnload, 64 MiB of .global", _LARGE, "unload m"),
            ("cuCtxDestroy", ("context c 0",), "destroy c"),
        ):
            yield from tried(title, _returned(card, console, title, take, give))


_MAPPED = "reserve r 256M", "create h 256M", "map r h 256M", "access r 256M", "release h"
_LARGE = f"module m {SOURCES / 'large.ptx'}", "kernel k m touch", "launch_with k - 0"


def _returned(card: Card, console: Console, title: str, take: tuple[str, ...], give: str) -> Sample:
    before = card.used()
    console.do(*take, "sync_context")
    taken = card.used() - before
    start = time.monotonic()
    assert console(give) == SUCCESS, f"{give}: {console.outputs}"
    called = time.monotonic()
    # The driver may keep a little more than before.
    while card.used() > before + min(taken // 2, 16 * MIB) and time.monotonic() - called < WAIT:
        time.sleep(0.001)
    seen = time.monotonic()
    yield f"{title}: the call", (called - start) * 1e3, "ms"
    yield f"{title}: until NVML shows it, at most 1 s", (seen - called) * 1e3, "ms"
    yield f"{title}: kept", card.used() - before, "bytes"
