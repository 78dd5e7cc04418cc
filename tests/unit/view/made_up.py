"""A made-up cluster that a page can show: nodes with cards, pods, texts that would be markup."""

from __future__ import annotations

import math

from hami_py.model import NodeCard, SliceUse
from hami_py.monitor import Histories, History, Reading
from hami_py.overview import (
    NamespaceReport,
    NodeReport,
    Overview,
    WaitingPod,
)
from hami_py.view.picture import EventPicture, Shown, picture
from hami_py.view.session import Refused
from support.slice_uses import container

GIB = 1 << 30

#: What a program could write into an event, a reason or a command.
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


def overview(nodes: int, cards: int, containers: int = 2, step: int = 0) -> Overview:
    """A cluster with these numbers of each; ``step`` changes what is used."""
    reports, running = [], []
    for n in range(nodes):
        name = f"gpu-{n:03}"
        found = []
        for c in range(cards):
            uuid, busy = f"GPU-{n:03}-{c}", (n * 7 + c * 3 + step) % 10
            for k in range(containers if busy else 0):
                running.append(made_up(name, uuid, c, busy, k))
            used = busy * 7 * GIB
            found.append(
                NodeCard(
                    *(uuid, c, "NVIDIA A100-SXM4-80GB"),
                    state="cordoned" if n % 50 == 7 and c == 1 else "schedulable",
                    memory=80 * GIB,
                    memory_allocated=min(80, busy * 8) * GIB,
                    memory_used=used,
                    share_allocated=busy / 10,
                    share_used=0.9 * busy / 10,
                    containers=containers if busy else 0,
                )
            )
        silent = "its node agent does not answer: no answer within 2 s" if n % 60 == 11 else None
        reports.append(
            NodeReport(
                name, f"10.0.{n // 250}.{n % 250}", "full", "preload", tuple(found), None, silent
            )
        )
    waiting = (
        WaitingPod("team", "train-large", None, "too little memory free on its cards", 190, nodes),
        WaitingPod("team", "hostile", "gpu-001", f"ErrImagePull: {HOSTILE}"),
    )
    namespaces = (
        NamespaceReport("team", "cards", 40, 64, 320 * GIB, 512 * GIB, 12.0, 20.0, 250 * GIB),
        NamespaceReport("research", None, 12, None, 96 * GIB, None, 3.0, None, None),
    )
    return Overview(tuple(reports), tuple(running), waiting, namespaces)


def made_up(node: str, uuid: str, index: int, busy: int, k: int) -> SliceUse:
    namespace, pod = (("team", "train"), ("research", "serve"))[k % 2]
    return container(
        *(namespace, f"{pod}-{node}-{index}", "main", uuid),
        node=node,
        index=index,
        limit=busy * 4 * GIB,
        share=busy * 5,
        memory_used=int(busy * 3.5 * GIB),
        memory_peak=busy * 4 * GIB,
        share_used=0.9 * busy / 20,
        throttled=busy * 31.0,
        refusals=busy % 3,
        processes=1,
    )


EVENTS = (
    EventPicture("2026-11-27T10:02:03Z", True, "Pod", "team", "hostile", "Failed", HOSTILE, 12),
    EventPicture(
        *("2026-11-27T10:01:00Z", False, "Pod", "team", "train-gpu-001-1", "Resized"),
        "The memory limit of card 1 is 32 GiB now.",
    ),
)


def shown(found: Overview, at_s: float = 0.0) -> Shown:
    return picture(found, at_s, title="gpu.example:6443", user="ada", events=EVENTS)


def history(found: Overview, node: str) -> History:
    """An hour of waves."""
    histories = Histories()
    here = [each for each in found.containers if each.node == node]
    cards = [card for each in found.nodes if each.name == node for card in each.cards]
    for step in range(180):
        wave = 0.75 + 0.25 * math.sin(step / 9)
        readings = [
            Reading(
                ("", "", "", card.uuid),
                int((card.memory_used or 0) * wave),
                (card.share_used or 0) * wave,
            )
            for card in cards
        ]
        readings += [
            Reading(each.key, int(each.use.memory_used * wave), (each.share_used or 0) * wave)
            for each in here
        ]
        histories.take(readings, 20.0 * step)
    return histories.history(20.0 * 180 - 15)


class MadeUp:
    """A viewer of it, which a test can change."""

    def __init__(self, found: Overview) -> None:
        self.found = found
        self.refused: Refused | None = None
        self.problem = ""
        self.shown: Shown | None = shown(found)

    def show(self, found: Overview, at_s: float = 0.0) -> None:
        self.found, self.shown = found, shown(found, at_s)

    def history(self, node: str) -> History | None:
        return history(self.found, node)
