"""`make demo-cluster`: real CUDA programs in limited pods on a real Kubernetes, on the stub driver.

It starts a control plane, containerd and a kubelet on this machine, and applies deploy/ as it is.
The pods' image contains nothing of hami. The stub's ledger records outside of the pods how much
memory each of them held, and how long it had the card. Nothing stays on the machine.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from clients.harness import MIB
from cluster import binaries, images
from cluster.limited_pods import Limited, Result, install, measure
from cluster.whole import GROUPS, WholeCluster

#: All on one card. Together they take 80 % of its time.
PODS = (Limited("train", 3000, 30), Limited("notebook", 4096, 20), Limited("serve", 6000, 30))

SECONDS = 8

#: Points that a pod may have more than its share, and the part of it that it has to get: a busy
#: machine passes on turns late.
_MORE, _LEAST = 5, 0.7

#: The part of its limit, less the driver's memory, that a program must be able to allocate.
_ENOUGH = 0.99


def main() -> int:
    """Print the table; 0 if every limit held."""
    for group in GROUPS:
        binaries.ensure(group)
    images.whole()
    begin = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="hami-demo-") as folder,
        WholeCluster(Path(folder), cards="h100") as cluster,
    ):
        _say("a control plane and a node run", begin)
        install(cluster)
        _say("webhook, scheduler and node agent are ready", begin)
        results = measure(cluster, PODS, SECONDS)
        driver = int(cluster.gpu.ledger()["cards"][0]["context"]["peak"]) // MIB // len(PODS)
        _say("the pods have run", begin)
    table, holds = _table(PODS, results, driver)
    print("\nkubectl apply -k deploy/, and three pods on one card   (stub driver)")
    Console(width=140, height=50).print(table)
    return 0 if holds else 1


def _say(what: str, begin: float) -> None:
    print(f"{time.monotonic() - begin:5.1f} s  {what}", flush=True)


def _table(
    pods: Sequence[Limited], results: Mapping[str, Result], driver: int
) -> tuple[Table, bool]:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("pod", no_wrap=True)
    table.add_column("card", no_wrap=True)
    for heading in (
        "gpumem",
        "memory\nit saw",
        "allocated before\nout-of-memory",
        "driver's\nown",
        "peak by\nthe ledger",
        "gpucores",
        "share by\nthe ledger",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    all_hold = True
    for pod in pods:
        result = results[pod.name]
        holds = is_limited(pod, result, driver)
        all_hold = all_hold and holds
        table.add_row(
            pod.name,
            result.card[:12],
            *(f"{amount:,.0f} MiB" for amount in (pod.memory_mib, result.seen, result.allocated)),
            f"{driver:,.0f} MiB",
            f"{result.peak:,.0f} MiB",
            f"{pod.cores} %",
            f"{result.percent:.1f} %",
            "holds" if holds else f"DOES NOT HOLD: {result.error}",
        )
    return table, all_hold


def is_limited(pod: Limited, result: Result, driver: float) -> bool:
    """Whether a pod had its limits, and nearly all of what they allow."""
    usable = pod.memory_mib - driver
    return (
        result.seen == pod.memory_mib
        and _ENOUGH * usable <= result.allocated <= usable
        and "OUT_OF_MEMORY" in result.error
        and result.allocated + driver <= result.peak <= pod.memory_mib
        and _LEAST * pod.cores <= result.percent <= pod.cores + _MORE
    )


if __name__ == "__main__":
    sys.exit(main())
