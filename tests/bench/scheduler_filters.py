"""How long filter and prioritize take: in the allocator alone, and as kube-scheduler calls them.

The second is measured with kube-scheduler's request, our process and one connection. The extender
is `hami scheduler`. It reads the cluster from an API server with prepared answers. A pod's time is
that of both calls, from the first byte sent to the last byte read. The cluster is full to about two
thirds, and each pod's best node is held for it, as usual. Names come in another order each time, as
kube-scheduler's workers produce them. There are many rounds, and both kinds of pods alternate,
because a machine can be busy for seconds. A third kind comes last, and waits for a cluster with
more room: every node rejects it with a reason, and prioritize is not called.

The time of the machine, of HTTP and of the client is measured as well, alternating with the rest:
the same server returns as many bytes without reading the request. If that is slow, too, the machine
is busy. On a virtual machine the kernel reports how much time other machines got instead.
"""

import contextlib
import math
import os
import random
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.http_client import Connection, in_turn
from bench.results import ROOT, Row
from bench.rows import percentile
from bench.scheduler_programs import Extender, canned, extender, floor
from bench.scheduler_state import CARDS, KINDS, Size, fill, limits, node_name, request, row
from cluster import recordings
from hami_py._native import Allocator
from hami_py.cluster.view import ClusterView
from hami_py.model.pods import wire
from hami_py.scheduler.settings import Timing

#: ms that a filter and a score may take together; and seconds for reading a snapshot.
_ENGINE_MS = 1.0
SNAPSHOT_S = 10.0

#: The row for each line of the program's output, and its target.
_ROWS = {
    "filter and score": ("filter + prioritize in the engine, class met before", _ENGINE_MS),
    "filter and score, new class": (
        "filter + prioritize in the engine, a new class each time",
        _ENGINE_MS,
    ),
    "filter, new class, all nodes refused": (
        "filter in the engine, a new class, all nodes refuse",
        _ENGINE_MS,
    ),
    "without unbound, 2,000 held": (
        "what more a refused pod takes in the engine, 2,000 pods hold cards",
        None,
    ),
}


def engine(size: Size) -> list[Row]:
    """The allocator alone: processor time, as `native/allocator/examples/scale.rs` says it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "scale"
    command = [str(program), str(size.nodes), str(size.pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found = re.findall(
        r"^(.*): p50 ([\d.]+) ms, p99 ([\d.]+) ms, .*\(n = (\d+)\)$", done.stdout, re.MULTILINE
    )
    said = {what: (float(p50), float(p99), int(n)) for what, p50, p99, n in found}
    rows = []
    for what, (name, target) in _ROWS.items():
        p50, p99, n = said[what]
        rows += [
            row(f"{name}, p50", [p50], "ms", n=n),
            row(f"{name}, p99", [p99], "ms", target, n=n),
        ]
    return rows


def snapshot(size: Size, runs: int) -> list[Row]:
    """The state of the cluster from its snapshot."""
    filled = fill(size)
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        view = ClusterView.restore(filled.snapshot)
        seconds.append(time.perf_counter() - began)
        assert view.digest() == filled.digest, "something is lost or changed"
    return [row(f"start from a snapshot, {size}", seconds, "s", SNAPSHOT_S)]


_FILTERS = 400


def scrape(size: Size, runs: int) -> list[Row]:
    """Processor time of what is told by node and by card, and its bytes."""
    allocator = Allocator.restore(fill(size).snapshot)
    rows = [row("filter, nobody scrapes, p50", [_filters(allocator, size)], "ms", n=_FILTERS)]
    for what, metrics in (("node", allocator.node_metrics), ("card", allocator.card_metrics)):
        took = []
        for _ in range(runs):
            began = time.thread_time()
            written = metrics()
            took.append((time.thread_time() - began) * 1e3)
        rows += [
            row(f"a scrape by {what}, processor time, {size}", took, "ms"),
            row(f"a scrape by {what}, size", [len(written) / 1e6], "MB"),
            row(
                f"filter, scraped by {what} without a pause, p50",
                [_scraped(metrics, lambda: _filters(allocator, size))],
                "ms",
                n=_FILTERS,
            ),
        ]
    return rows


def _scraped(metrics: Callable[[], bytes], work: Callable[[], float]) -> float:
    ends = threading.Event()

    def scrapes() -> None:
        while not ends.is_set():
            metrics()

    thread = threading.Thread(target=scrapes)
    thread.start()
    try:
        return work()
    finally:
        ends.set()
        thread.join()


def _filters(allocator: Allocator, size: Size) -> float:
    names = msgspec.json.encode([node_name(at) for at in range(size.nodes)])
    took = []
    for at in range(_FILTERS):
        asked = wire.encode(request(size.pods + at, KINDS[at % len(KINDS)]))
        began = time.perf_counter()
        allocator.filter_names(asked, names, 0)
        took.append((time.perf_counter() - began) * 1e3)
    return percentile(took, 50)


TARGET_MS = 4.0
WARM_UP = 40
SEED = 20261122


@dataclass(frozen=True)
class Kind:
    """Pods of a kind.

    Attributes:
        name: of its rows.
        wants: MiB, cores and cards of the i-th pod.
        fits: whether there are nodes for it; else all of them refuse it.
        target_ms: of the 99th percentile, if there is one.
    """

    name: str
    wants: Callable[[int], tuple[int, int, int]]
    fits: bool = True
    target_ms: float | None = TARGET_MS


KNOWN = Kind(
    "filter + prioritize through HTTP, class met before", lambda at: KINDS[at % len(KINDS)]
)
FRESH = Kind(
    "filter + prioritize through HTTP, a new class each time", lambda at: (1_000 + at, 10, 1)
)
REFUSED = Kind(
    "filter through HTTP, a new class, all nodes refuse",
    # Less than a card has, also for the last of many thousands.
    lambda at: (60_000 + at, 0, CARDS),
    fits=False,
    target_ms=None,
)
ALL = (KNOWN, FRESH, REFUSED)


def times(name: str, runs: Sequence[Sequence[float]], target_ms: float | None = None) -> list[Row]:
    """Median and 99th percentile of runs of samples in ms; a target is the latter's."""
    n = sum(map(len, runs))
    return [
        row(f"{name}, p50", [percentile(run, 50) for run in runs], "ms", n=n),
        row(f"{name}, p99", [percentile(run, 99) for run in runs], "ms", target_ms, n=n),
    ]


def http(size: Size, rounds: int, pods: int) -> list[Row]:
    """Rows for each kind; ``pods`` a round."""
    names = [node_name(at) for at in range(size.nodes)]
    random.Random(SEED).shuffle(names)  # noqa: S311
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with canned(size, folder) as kubeconfig, extender(kubeconfig, folder) as ours:
            ours.check_knows(fill(size))
            asker = _Asker(ours, names)
            took: dict[str, list[list[float]]] = {kind.name: [] for kind in ALL}
            used: dict[str, list[list[float]]] = {kind.name: [] for kind in ALL}
            alone = []
            asker.round(KNOWN, WARM_UP)
            sizes, began, stolen_s = asker.sizes, time.monotonic(), _stolen_s()
            with floor(folder, sizes["/filter"][1], sizes["/prioritize"][1]) as port:

                def measure(kind: Kind, warming: Kind) -> None:
                    asker.round(warming, WARM_UP)
                    run = asker.round(kind, pods)
                    took[kind.name].append(run[0])
                    used[kind.name].append(run[1])

                for _ in range(rounds):
                    for kind in (KNOWN, FRESH):
                        # Hundreds of new classes have made the allocator forget the others.
                        measure(kind, KNOWN)
                    # A new connection, because a server closes one that is idle for as long as a
                    # round.
                    with contextlib.closing(Connection(port)) as connection:
                        alone.append(_bytes_alone(connection, sizes, pods))
                # A refusal looks at all that is held, in a full cluster next to none.
                time.sleep(Timing().hold_s)
                for _ in range(rounds):
                    measure(REFUSED, REFUSED)
            asker.close()
            of_all_s = (time.monotonic() - began) * (os.cpu_count() or 1)
            stolen = (_stolen_s() - stolen_s) * 100 / of_all_s
        rows = []
        for kind in ALL:
            rows += times(kind.name, took[kind.name], kind.target_ms)
            rows += times(f"{kind.name}, our processor time", used[kind.name])
        rows += times("as many bytes through HTTP, and nothing behind", alone)
        name = "of the machine's time meanwhile given to others by its host"
        rows.append(row(name, [stolen], "%"))
    return [*rows, row(f"start from answers that are ready, {size}", [ours.start_s], "s")]


def _stolen_s() -> float:
    """Seconds that processors were ready to run and did not get to, since the machine began."""
    ticks = Path("/proc/stat").read_text().split(maxsplit=9)[8]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def _bytes_alone(
    connection: Connection, sizes: Mapping[str, tuple[int, int]], pods: int
) -> list[float]:
    took = []
    for _ in range(pods):
        asked = [in_turn([connection], path, [bytes(size)]) for path, (size, _) in sizes.items()]
        took.append(sum(one.seconds[0] for one in asked) * 1e3)
    return took


class _Asker:
    """kube-scheduler, as far as the extender sees it.

    Attributes:
        sizes: bytes of the last question and answer, by path.
    """

    def __init__(self, ours: Extender, names: Sequence[str]) -> None:
        self._ours = ours
        self._connection = Connection(ours.port)
        self._names = list(names)
        self._pod = recordings.read("extender-filter-names")["Pod"]
        self._asked = 0
        self._prng = random.Random(SEED)  # noqa: S311
        self.sizes: dict[str, tuple[int, int]] = {}

    def close(self) -> None:
        self._connection.close()

    def round(self, kind: Kind, pods: int) -> tuple[list[float], list[float]]:
        """Milliseconds of each pod, and those of our processor time."""
        took, used = [], []
        for _ in range(pods):
            self._asked += 1
            pod = self._next(limits(*kind.wants(self._asked)))
            names = workers_order(self._prng, self._names)
            before = self._ours.processor_s()
            filtered, seconds = self._ask("/filter", pod, names)
            fits = filtered["NodeNames"]
            others = filtered["FailedNodes"], filtered["FailedAndUnresolvableNodes"]
            assert len(fits) + sum(map(len, others)) == len(names)
            if kind.fits:
                assert fits, "the cluster is full: place fewer pods"
                scores, more = self._ask("/prioritize", pod, fits)
                assert [score["Host"] for score in scores] == fits
                seconds += more
            else:
                assert filtered["FailedNodes"].keys() == set(names)
            took.append(seconds * 1e3)
            used.append((self._ours.processor_s() - before) * 1e3)
        return took, used

    def _ask(self, path: str, pod: Any, names: Sequence[str]) -> tuple[Any, float]:
        # In the order in which Go writes ExtenderArgs.
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
        asked = in_turn([self._connection], path, [body])
        self.sizes[path] = len(body), len(asked.answers[0])
        return msgspec.json.decode(asked.answers[0]), asked.seconds[0]

    def _next(self, asked: dict[str, int]) -> Any:
        written = {name: str(value) for name, value in asked.items()}
        (container,) = self._pod["spec"]["containers"]
        container["resources"] = {"limits": written, "requests": written}
        uid = f"11111111-0000-4000-8000-{self._asked:012}"
        self._pod["metadata"].update(name=f"asked-{self._asked}", uid=uid)
        return self._pod


def workers_order(prng: random.Random, names: Sequence[str]) -> list[str]:
    """As two workers leave them who take chunk after chunk, now the one ahead and now the other.

    kube-scheduler's chunks are as long as the root of the number of nodes.
    """
    length = math.isqrt(len(names)) + 1
    chunks = iter([names[at : at + length] for at in range(0, len(names), length)])
    hands = [list(next(chunks, ())), list(next(chunks, ()))]
    ordered: list[str] = []
    while any(hands):
        hand = prng.randrange(2)
        done = prng.randint(1, 20)
        ordered += hands[hand][:done]
        hands[hand] = hands[hand][done:] or list(next(chunks, ()))
    return ordered
