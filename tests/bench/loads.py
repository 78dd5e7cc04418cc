"""The programs that compete for a card, and the part of the card that each should get.

This module has only data. A workload describes how a program uses the card. A member is a slice
that runs a workload under a share. A scenario is the set of members that run at the same time. The
caller decides who runs a scenario, on which clock and on which card.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """One way to use a card: the options of gpu/programs/load.c."""

    name: str
    options: tuple[str, ...]
    longest_us: int
    """Its longest kernel, or graph: what cannot be divided."""
    like: "Workload | None" = None
    """Where it does not always have something for the card to do: one that does, with the same
    kernels. What that one gets done without a share is the whole card for both."""

    @property
    def unit(self) -> "Workload":
        """The workload whose work without a share is 100 percent."""
        return self.like or self


def _saturating(name: str, kernels_us: Sequence[int]) -> Workload:
    listed = ",".join(map(str, kernels_us))
    return Workload(name, ("--work", "async", "--kernel-us", listed), max(kernels_us))


ASYNC_20US = _saturating("async-20us", [20])
ASYNC_50US = _saturating("async-50us", [50])
ASYNC_500US = _saturating("async-500us", [500])
ASYNC_5MS = _saturating("async-5ms", [5_000])
ASYNC_20MS = _saturating("async-20ms", [20_000])
ASYNC_50MS = _saturating("async-50ms", [50_000])
ASYNC_ALL = _saturating("async-20us..50ms", [20, 500, 5_000, 50_000])
SYNC = Workload("sync-500us", ("--work", "sync", "--kernel-us", "500"), 500, ASYNC_500US)
GRAPH = Workload("graph-20x25us", ("--work", "graph", "--kernel-us", "25", "--chain", "20"), 500)
STREAMS = Workload("streams-500us", ("--work", "streams", "--kernel-us", "500"), 500)
MIXED = Workload("mixed-500us", ("--work", "mixed", "--kernel-us", "500"), 500)
BURSTY = Workload(
    "bursty-10%",
    ("--work", "bursty", "--kernel-us", "500", "--busy-percent", "10", "--period-us", "100000"),
    500,
    ASYNC_500US,
)
DECODE = Workload(
    "decode-30x50us",
    ("--work", "decode", "--kernel-us", "50", "--chain", "30", "--host-us", "300"),
    50,
    ASYNC_50US,
)
IDLE = Workload(
    "idle",
    ("--work", "sync", "--kernel-us", "500", "--host-us", "1000000000"),
    500,
    ASYNC_500US,
)
"""One kernel, and then nothing: a member that could want something and does not."""

#: Programs that answer somebody, and note how long each step takes.
DECODE_1MS = Workload(
    "decode-30x50us+1ms",
    ("--work", "decode", "--kernel-us", "50", "--chain", "30", "--host-us", "1000", "--steps"),
    50,
)
SERVER = Workload(
    "server-10x1ms",
    (
        *("--work", "server", "--kernel-us", "1000", "--chain", "10", "--busy-percent", "20"),
        *("--seed", "2", "--steps"),
    ),
    1_000,
)
NOTEBOOK = Workload(
    "notebook-100us",
    ("--work", "sync", "--kernel-us", "100", "--host-us", "1000000", "--steps"),
    100,
)


def meeting(kernel_us: int, *, streams: bool = False) -> Workload:
    """Kernels that wait for each other: of two processes, or of two blocking streams of one."""
    work = "meet-streams" if streams else "meet"
    options = "--work", work, "--kernel-us", str(kernel_us), "--steps"
    return Workload(f"{work}-{kernel_us}us", options, kernel_us)


SOLO = (ASYNC_50US, SYNC, GRAPH, ASYNC_50MS, STREAMS, MIXED, BURSTY, DECODE)

COMPANY = (ASYNC_20US, ASYNC_500US, ASYNC_5MS, ASYNC_50MS, ASYNC_ALL)

CAPS = (10, 25, 30, 50, 75, 90)


@dataclass(frozen=True)
class Member:
    """A slice: a program, or several of the same, under a share of the card."""

    workload: Workload
    share: int | None = None
    mode: str = "hard"
    processes: int = 1
    expected: float | None = None
    """Percent of the card that it should get; None where it is not judged."""
    bare: bool = False
    """Outside of any slice, as without us: what everything is compared with."""


@dataclass(frozen=True)
class Scenario:
    """Members that run at once; named ``workload/slices/shares`` as in the results."""

    name: str
    members: tuple[Member, ...]

    @property
    def longest_us(self) -> int:
        return max(member.workload.longest_us for member in self.members)

    @property
    def busy(self) -> list[int]:
        """Those whose part is judged, by their places."""
        return [i for i, member in enumerate(self.members) if member.expected is not None]

    @property
    def lends(self) -> bool:
        """Whether idle time is lent, so that nothing of the card may be lost."""
        return all(member.mode == "soft" for member in self.members)


def baseline(workload: Workload) -> Scenario:
    """The program as it runs without us."""
    return Scenario(f"{workload.name}/1/none", (Member(workload, bare=True),))


def solo(workload: Workload, caps: Sequence[int], demand: float) -> Iterator[Scenario]:
    """Alone under each share. ``demand``: percent of the card that it takes without one."""
    for cap in caps:
        member = Member(workload, cap, expected=min(float(cap), demand))
        yield Scenario(f"{workload.name}/1/{cap}", (member,))


def company(workload: Workload, shares: Sequence[int], mode: str = "hard") -> Scenario:
    """Several slices of which each always wants more, and that share out the whole card."""
    members = tuple(Member(workload, share, mode, expected=float(share)) for share in shares)
    return Scenario(_named(workload.name, shares, mode), members)


def with_idle(workload: Workload, shares: Sequence[int], idle: int, mode: str) -> Scenario:
    """Some want more, and ``idle`` others with a share as the first's want nothing.

    What the idle ones leave is lent in soft mode by weight, and stays unused in hard mode.
    """
    given = sum(shares) if mode == "soft" else 100
    busy = tuple(Member(workload, share, mode, expected=100 * share / given) for share in shares)
    resting = (Member(IDLE, shares[0], mode),) * idle
    name = _named(workload.name, shares, f"{mode}+{idle}idle")
    return Scenario(name, (*busy, *resting))


def crowd(workload: Workload, share: int, processes: int) -> Scenario:
    """One slice with several processes."""
    member = Member(workload, share, processes=processes, expected=float(share))
    return Scenario(f"{workload.name}/1x{processes}/{share}", (member,))


def beside_one_without(workload: Workload, share: int) -> Scenario:
    """A slice with a share, and one without, which takes the rest."""
    capped = Member(workload, share, expected=float(share))
    return Scenario(
        f"{workload.name}/2/{share}+none",
        (capped, Member(workload, expected=100.0 - share)),
    )


def mixture(first: Workload, second: Workload, shares: tuple[int, int], mode: str) -> Scenario:
    """Two slices with different kernels."""
    members = tuple(
        Member(workload, share, mode, expected=float(share))
        for workload, share in zip((first, second), shares, strict=True)
    )
    name = f"{first.name}+{second.name.removeprefix('async-')}"
    return Scenario(_named(name, shares, mode), members)


def _named(workload: str, shares: Sequence[int], mode: str) -> str:
    return f"{workload}/{len(shares)}/{'+'.join(map(str, shares))}-{mode}"
