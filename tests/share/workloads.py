"""The programs of these tests, and how long they must be watched.

A share holds over many kernels: each run is long enough for 200 of its longest, or takes a minute.
"""

from dataclasses import dataclass

from support.world import Container, Program


@dataclass(frozen=True)
class Workload:
    """A way to use a card: options of gpu/programs/load.c."""

    name: str
    options: tuple[object, ...]
    longest_us: int
    seconds: float
    """How long one container runs, on the virtual clock."""

    @property
    def program(self) -> Program:
        return Program(self.options)

    def alone(self, share: int | None, *, bare: bool = False) -> Container:
        """A container that is alone on its card."""
        return Container("alone", [self.program], share, bare=bare)


def _async(name: str, kernels_us: str, longest_us: int, seconds: float) -> Workload:
    return Workload(name, ("--work", "async", "--kernel-us", kernels_us), longest_us, seconds)


ASYNC_20US = _async("async 20 us", "20", 20, 3.0)
ASYNC_50US = _async("async 50 us", "50", 50, 4.0)
ASYNC_500US = _async("async 500 us", "500", 500, 10.0)
ASYNC_5MS = _async("async 5 ms", "5000", 5_000, 20.0)
ASYNC_50MS = _async("async 50 ms", "50000", 50_000, 60.0)
ASYNC_MIXED = _async("async 20 us to 50 ms", "20,500,5000,50000", 50_000, 60.0)
SYNC = Workload("sync 500 us", ("--work", "sync", "--kernel-us", "500"), 500, 10.0)
GRAPH = Workload(
    "graph of 20 x 25 us", ("--work", "graph", "--kernel-us", "25", "--chain", "20"), 500, 6.0
)
STREAMS = Workload("four streams", ("--work", "streams", "--kernel-us", "500"), 500, 10.0)
COPIES = Workload("copies and kernels", ("--work", "mixed", "--kernel-us", "500"), 500, 10.0)
BURSTY = Workload(
    "bursts of 10 %",
    ("--work", "bursty", "--kernel-us", 500, "--busy-percent", 10, "--period-us", 100_000),
    500,
    60.0,
)
DECODE = Workload(
    "decode",
    ("--work", "decode", "--kernel-us", 50, "--chain", 30, "--host-us", 300),
    50,
    6.0,
)
COOPERATIVE = Workload(
    "cooperative launches", (*ASYNC_500US.options, "--launcher", "cooperative"), 500, 6.0
)
EXTENDED = Workload("extended launches", (*ASYNC_500US.options, "--launcher", "ex"), 500, 6.0)

#: Percent of the card that programs have together while the stub's driver divides it: each has it
#: for 2 ms, and a switch takes 50 us.
DIVIDED = 97.5

#: A program that has run one kernel and has no more work.
IDLE = Program(("--work", "sync", "--kernel-us", "500", "--host-us", "1000000000"))
