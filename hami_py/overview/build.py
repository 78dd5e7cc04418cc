"""Builds the overview from objects and figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from hami_py.cluster.explanation import AllocatedCard, AllocatedNamespace
from hami_py.cluster.view import ClusterView, Listed
from hami_py.errors import HamiError
from hami_py.model import NodeCard, SliceCard, SliceUse, pods
from hami_py.model.pods import objects
from hami_py.model.pods.wire import NodeMode
from hami_py.monitor import NodeFigures, used_shares
from hami_py.node.rows import share_of
from hami_py.overview.agents import Answers
from hami_py.overview.objects import SeenNode, SeenPod
from hami_py.overview.report import NamespaceReport, NodeReport, Overview, WaitingPod
from hami_py.overview.waiting import is_waiting, waiting_pod

_MIB = 1 << 20
_PERCENT = 100


@dataclass(frozen=True)
class Objects:
    """The objects of the API server; ``None``: the user may not read them.

    Attributes:
        pods: the pods that request cards.
        has_all_pods: ``pods`` are those of all namespaces, so their sums are what is allocated.
    """

    pods: Listed[SeenPod]
    nodes: Listed[SeenNode] | None = None
    quotas: Listed[objects.ResourceQuota] | None = None
    has_all_pods: bool = True


@dataclass(frozen=True)
class Judged:
    """The part of an overview that needs only the objects; it takes the most time to build.

    Attributes:
        nodes: the nodes with cards, by name, without figures of use.
        containers: the containers with an assignment, likewise.
        waiting: the pods that do not run, by namespace and name.
        namespaces: what each namespace has; empty: not all pods and quotas may be read.
        unreadable: the objects that cannot be read, and why.
    """

    nodes: tuple[NodeReport, ...]
    containers: tuple[SliceUse, ...]
    waiting: tuple[WaitingPod, ...]
    namespaces: tuple[AllocatedNamespace, ...]
    unreadable: tuple[str, ...]


def judge(found: Objects, settings: pods.PodSettings, namespace: str | None = None) -> Judged:
    """Places the pods on the cards, and judges those that wait.

    With a namespace, only its pods are shown. Cards and nodes are shown as a whole in any case.
    """
    view = _view(found, settings)
    # With some of the pods or quotas alone, the allocator would answer for another cluster.
    whole = view if found.has_all_pods and found.quotas is not None else None
    shown = [pod for pod in found.pods.objects if namespace in (None, pod.metadata.namespace)]
    waiting = [waiting_pod(pod, whole, settings) for pod in shown if is_waiting(pod)]
    left_out = view.left_out if view is not None else ()
    usages = whole.namespaces() if whole is not None else []
    nodes = tuple(_nodes(view, found, settings)) if view is not None else ()
    return Judged(
        nodes,
        tuple(_assigned(shown, {node.name: node.mode for node in nodes})),
        tuple(sorted(waiting, key=lambda pod: (pod.namespace, pod.pod))),
        tuple(usage for usage in usages if namespace in (None, usage.namespace)),
        tuple(f"{it.kind} {it.name} cannot be read: {it.reason}" for it in left_out),
    )


def build(
    judged: Judged, answers: Answers, notes: Iterable[str] = (), namespace: str | None = None
) -> Overview:
    """The overview. A node whose cards others allocate shows no cards but by its agent."""
    known = {node.name for node in judged.nodes}
    of_others = (
        NodeReport(name=name, address="", mode="", level=figures.level, cards=tuple(figures.cards))
        for name, figures in sorted(answers.figures.items())
        if name not in known
    )
    containers = tuple(_containers(judged.containers, answers.figures, namespace))
    return Overview(
        (*(_used(node, answers) for node in judged.nodes), *of_others),
        containers,
        judged.waiting,
        tuple(_namespaces(judged.namespaces, containers)),
        (*notes, *judged.unreadable),
    )


def _view(found: Objects, settings: pods.PodSettings) -> ClusterView | None:
    if found.nodes is None:
        return None
    nodes: Listed[objects.Node] = Listed(list(found.nodes.objects), found.nodes.undecoded)
    seen: Listed[objects.Pod] = Listed(list(found.pods.objects), found.pods.undecoded)
    return ClusterView.of(nodes, found.quotas or Listed([]), seen, settings)


def _nodes(view: ClusterView, found: Objects, settings: pods.PodSettings) -> Iterator[NodeReport]:
    there = {node.name: node for node in found.nodes.objects} if found.nodes is not None else {}
    usages = {usage.name: usage for usage in view.usage()}
    for name in sorted({*usages, *view.blocked}):
        usage, node = usages.get(name), there.get(name)
        cards = usage.cards if usage is not None else ()
        yield NodeReport(
            name=name,
            address=node.address if node is not None else "",
            mode=usage.mode if usage is not None else "",
            cards=tuple(_cards(cards, _models(node, settings), found.has_all_pods)),
            blocked=view.blocked.get(name),
        )


def _models(node: objects.Node | None, settings: pods.PodSettings) -> dict[str, str]:
    try:
        read = pods.read_node(node, settings) if node is not None else None
    except HamiError:
        return {}
    return {card.uuid: card.model for card in read.cards} if read is not None else {}


def _cards(
    usages: Iterable[AllocatedCard], models: Mapping[str, str], has_all_pods: bool
) -> Iterator[NodeCard]:
    for usage in sorted(usages, key=lambda card: (card.index is None, card.index or 0, card.uuid)):
        yield NodeCard(
            uuid=usage.uuid,
            index=usage.index,
            model=models.get(usage.uuid, ""),
            state=usage.state,
            memory=usage.memory_mib * _MIB,
            memory_allocated=usage.memory_allocated_mib * _MIB if has_all_pods else None,
            share_allocated=usage.cores_allocated / _PERCENT if has_all_pods else None,
            containers=usage.slots_allocated if has_all_pods else None,
        )


def _used(node: NodeReport, answers: Answers) -> NodeReport:
    """The node with the figures of its agent, or why there are none."""
    figures, silent = answers.figures.get(node.name), answers.silent.get(node.name)
    if figures is None:
        if silent is None and answers.forbidden is None:
            silent = "no node agent runs there"
        return msgspec.structs.replace(node, silent=silent)
    seen, shares = {card.uuid: card for card in figures.cards}, used_shares(figures)
    cards = []
    for card in node.cards:
        known = seen.get(card.uuid, card)
        cards.append(
            replace(
                card,
                memory_used=known.memory_used,
                foreign=known.foreign,
                healthy=known.healthy,
                share_used=shares.get(card.uuid),
            )
        )
    return msgspec.structs.replace(node, level=figures.level, cards=tuple(cards))


def _containers(
    assigned: Iterable[SliceUse], figures: Mapping[str, NodeFigures], namespace: str | None
) -> list[SliceUse]:
    """Those of assignments, and those of figures: a container without an assignment has cards."""
    indexes = {card.uuid: card.index for node in figures.values() for card in node.cards}
    rows = {
        each.key: replace(each, use=replace(each.use, index=indexes.get(each.use.uuid)))
        for each in assigned
    }
    rows |= {
        each.key: each
        for node in figures.values()
        for each in node.containers
        if namespace in (None, each.namespace)
    }
    return [rows[key] for key in sorted(rows)]


def _assigned(
    shown: Iterable[SeenPod], modes: Mapping[str, NodeMode | Literal[""]]
) -> Iterator[SliceUse]:
    for pod in shown:
        if pod.is_over:
            continue
        mode = modes.get(pod.spec.node_name or "") or "full"
        try:
            assignment = pods.assignment_of(pod)
        except HamiError:
            # The allocator blocks its node for it, and the node says so.
            continue
        for container, cards in assignment.containers.items() if assignment else ():
            for card in cards:
                memory, share = card.memory_mib * _MIB, share_of(card, mode)
                yield SliceUse(
                    use=SliceCard(uuid=card.card, memory_limit=memory, share=share),
                    namespace=pod.metadata.namespace or "",
                    pod=pod.metadata.name,
                    container=container,
                    node=pod.spec.node_name or "",
                    is_known=False,
                )


def _namespaces(
    usages: Iterable[AllocatedNamespace], containers: Iterable[SliceUse]
) -> Iterator[NamespaceReport]:
    peaks: dict[str, list[int | None]] = {}
    for each in containers:
        peak = each.use.memory_peak if each.is_known else None
        peaks.setdefault(each.namespace, []).append(peak)
    for usage in usages:
        seen = [peak for peak in peaks.get(usage.namespace, []) if peak is not None]
        is_known = len(seen) == len(peaks.get(usage.namespace, []))
        yield from _quotas(usage, sum(seen) if is_known else None)


def _quotas(usage: AllocatedNamespace, peak: int | None) -> Iterator[NamespaceReport]:
    for quota in usage.quotas or (None,):
        mib, cores = (None, None) if quota is None else (quota.memory_mib, quota.cores)
        yield NamespaceReport(
            namespace=usage.namespace,
            quota=quota.name if quota is not None else None,
            cards=usage.cards,
            cards_limit=quota.gpu if quota is not None else None,
            memory=usage.memory_mib * _MIB,
            memory_limit=None if mib is None else mib * _MIB,
            share=usage.cores / _PERCENT,
            share_limit=None if cores is None else cores / _PERCENT,
            memory_peak=peak,
        )
