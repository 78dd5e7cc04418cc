"""Memory and processor time of agent and coordinator, while pods idle or compute in turns."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.node_clusters import Subject
from cluster import crowd
from cluster.crowd import Kind, Size

#: Seconds after the last pod has started, in which agent and coordinator come to rest.
SETTLE_S = 10.0


@dataclass(frozen=True)
class Costs:
    """Of all processes together. ``proportional_mib`` counts shared pages once."""

    resident_mib: float
    proportional_mib: float
    percent_of_a_core: float


def costs(subject: Subject, pods: int, program: str, seconds: float) -> Costs:
    """While so many pods run this program of programs/tenant.c."""
    kinds = (Kind(program, pods, Size(1024, 5)),)
    crowd.create(subject.cluster, kinds, program)
    crowd.running(subject.cluster, kinds)
    time.sleep(SETTLE_S)
    ours = list(_processes(subject))
    before, began = sum(map(processor_s, ours)), time.monotonic()
    time.sleep(seconds)
    used, took = sum(map(processor_s, ours)) - before, time.monotonic() - began
    found = Costs(
        sum(memory_mib(process, "Rss") for process in ours),
        sum(memory_mib(process, "Pss") for process in ours),
        100 * used / took,
    )
    crowd.delete(subject.cluster)
    return found


def _processes(subject: Subject) -> Iterator[int]:
    found = 0
    for pod in subject.cluster.api.list("/api/v1/namespaces/hami-system/pods"):
        if pod["metadata"]["name"].startswith("hami-node-"):
            for process in subject.cluster.processes(pod["metadata"]["uid"]):
                found += 1
                yield process
    assert found == 2, f"agent and coordinator are {found} processes"


def processor_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(process: int, which: str) -> float:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = re.search(rf"^{which}:\s+(\d+) kB", text, re.MULTILINE)
    assert found, text
    return int(found[1]) / 1024
