"""``hami explain``, ``hami what-if``, ``hami snapshot`` and ``hami replay``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.manifests import NO_TEMPLATE, NoPods, read_pods
from hami_py.cli.kubernetes.settings import judging_options, read_settings, settings_option
from hami_py.cli.output import align, report
from hami_py.errors import InvalidValue, state_errors
from hami_py.model import check_object_name, legible

if TYPE_CHECKING:
    from hami_py.cluster.explanation import NodeView, Outcome
    from hami_py.cluster.view import ClusterView
    from hami_py.model.pods import PodSettings

_READ_S = 30.0

_MOST_NODES = 20
"""The nodes that `explain` shows without ``--all``."""

_CHECKED = (
    "checked: cards, cordons, taints, node selectors and node affinity; not checked: CPUs, memory, "
    "ports, volumes, spreading, affinity to pods"
)
_CHECKED_OF_SNAPSHOT = "checked: cards; a snapshot has no cordons, taints and labels of nodes"

_snapshot_option = click.option(
    "--snapshot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read this file, written by `hami snapshot`, instead of a cluster.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
_files = click.argument(
    "manifests", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False)
)


@click.group(no_args_is_help=False)
def explain() -> None:
    """Explain the state of an object."""


@explain.command("pod", short_help="Show the nodes that fit a pod, and why others do not.")
@click.argument("name")
@click.option("--namespace", "-n", default="default", show_default=True)
@click.option("--all", "shows_all", is_flag=True, help="Show all nodes, and each of their cards.")
@settings_option
@_json_option
@api_server_options
def explain_pod(
    *,
    name: str,
    namespace: str,
    shows_all: bool,
    settings_file: Path | None,
    as_json: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show which nodes have cards for a pod, and why the others do not fit.

    The best 20 nodes are shown, without their cards, unless --all is given.
    The extender's allocator answers, for the cluster as the API server reports it now. Cards that a
    running extender holds for other pods count as free. A pod that has its cards already is judged
    as if it had none. Cordons, taints, node selectors and node affinity are checked as well; other
    rules of kube-scheduler are not. For a pod that waits, kube-scheduler's last message and the
    pod's scheduling gates are shown.
    """
    check_object_name("NAME", name)
    check_object_name("--namespace", namespace)
    settings = read_settings(settings_file)
    server = connect(kubeconfig, context)
    from hami_py.cluster.view import ClusterView, find_pod  # noqa: PLC0415
    from hami_py.model import pods  # noqa: PLC0415
    from hami_py.model.pods.request import read_pod  # noqa: PLC0415
    from hami_py.overview.waiting import unbound_pod  # noqa: PLC0415

    pod = find_pod(server, namespace, name, deadline_s=_READ_S)
    view = ClusterView.read(server, settings)
    views, bare = view.explain(pod), view.without_cards()
    _report_left_out(view)
    if as_json:
        answer = {"gates": pod.gates, "nodes": views, "without_cards": bare}
        _write_json({**answer, "left_out": view.left_out})
        return
    assignment = pods.assignment_of(pod)
    if assignment is not None:
        requesting = read_pod(pod, settings).requesting
        for container, shares in assignment.containers.items():
            read = requesting.get(container)
            mode = f" ({read.share_mode})" if read is not None else ""
            for share in shares:
                time = f"{share.cores} percent of its time{'' if share.is_mig else mode}"
                time = time if share.cores else "no limit on its time"
                allocated = f"{share.memory_mib} MiB, {time}"
                at = share.mig
                card = f"instance {at.profile} at {at.start} of {share.card}" if at else share.card
                click.echo(f"{container} has {card} on {assignment.node}: {allocated}")
        containers = assignment.containers.values()
        by = (
            view.enforcement(assignment.node, [card.is_mig for card in each]) for each in containers
        )
        for each in dict.fromkeys(by):
            if each is not None:
                click.echo(f"by what {assignment.node} offers now, {each}")
        click.echo("the cards of this pod count as free below")
    elif pod.spec.node_name is None:
        click.echo(f"pod {namespace}/{name} waits for a node: {unbound_pod(pod, view, settings)}")
        if pod.gates:
            gates = ", ".join(map(legible, pod.gates))
            click.echo(f"no scheduler tries it while it has these scheduling gates: {gates}")
        if pod.unscheduled and pod.unscheduled.message:
            click.echo(f"kube-scheduler's message: {legible(pod.unscheduled.message)}")
    _write_views(views, shows_all=shows_all)
    if bare:
        click.echo(f"nodes without cards, not shown: {len(bare)}")
    click.echo(_CHECKED)


@click.command("what-if")
@_files
@_snapshot_option
@judging_options
@_json_option
@api_server_options
def what_if(
    *,
    manifests: tuple[Path, ...],
    snapshot: Path | None,
    settings_file: Path | None,
    schedulers: tuple[str, ...],
    preloads: tuple[str, ...],
    as_json: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show where the pods of manifests would be placed, one after the other, if created now.

    For Deployments, StatefulSets, ReplicaSets, ReplicationControllers, Jobs and CronJobs, these are
    all pods that exist at once, and for DaemonSets one on each node with cards. Objects of other
    kinds count if they have a pod template at spec.template, or as a PyTorchJob in
    spec.*ReplicaSpecs; all others are skipped and named. What the webhook would remove, replace or
    warn of is shown. Cordons, taints, node selectors and node affinity count as well, except with
    a snapshot, which has only cards. CPUs, memory, ports, volumes, spreading and affinity to pods
    do not count.
    """
    settings = read_settings(settings_file, schedulers, preloads)
    wanted, without = read_pods(manifests)
    view = _read_view(snapshot, kubeconfig, context, settings)
    outcomes = view.what_if(wanted)
    _report_left_out(view)
    if as_json:
        answer = {"pods": outcomes, "no_pods": without, "left_out": view.left_out}
        _write_json({**answer, "state": view.digest()})
        return
    _write_outcomes(outcomes)
    _write_without_pods(without)
    click.echo(_CHECKED if snapshot is None else _CHECKED_OF_SNAPSHOT)
    if snapshot is not None:
        click.echo(f"state {view.digest()}")


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file. Default: -, standard output.",
)
@settings_option
@api_server_options
def snapshot(
    *,
    output: Path | None,
    settings_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Save nodes, cards, quotas and what pods have, for `hami replay` and `hami what-if`.

    A snapshot has names and sizes, but no images, environment variables or secrets. Of nodes it has
    only the cards, and no cordons, taints and labels.
    """
    settings = read_settings(settings_file)
    view = _read_view(None, kubeconfig, context, settings)
    _report_left_out(view)
    state = view.snapshot()
    if output is None or str(output) == "-":
        sys.stdout.buffer.write(state + b"\n")
        return
    with state_errors(str(output), "name a file that can be written"):
        output.write_bytes(state + b"\n")


@click.command()
@click.argument("snapshot", type=click.Path(path_type=Path, dir_okay=False))
@_files
@judging_options
@_json_option
@click.pass_context
def replay(command: click.Context, /, **options: object) -> None:
    """Place the pods of manifests on a snapshot with the extender's allocator.

    The same snapshot and pods give the same answer on every machine. The command is
    `hami what-if --snapshot` without the options of a cluster.
    """
    command.invoke(what_if, kubeconfig=None, context=None, **options)


def _report_left_out(view: ClusterView) -> None:
    for item in view.left_out:
        report(
            f"left out: {item.kind} {legible(item.name)} cannot be decoded: {legible(item.reason)}"
        )


def _write_views(views: Sequence[NodeView], *, shows_all: bool) -> None:
    if not views:
        click.echo("no node has cards")
        return
    lines = [("NODE", "FITS", "SCORE/100", "WHY")]
    for view in views if shows_all else views[:_MOST_NODES]:
        score = "" if view.score is None else str(view.score)
        why = "" if view.reason is None else legible(view.reason)
        lines.append((view.node, "yes" if view.fits else "no", score, why))
    for line in align(lines):
        click.echo(line)
    hidden = 0
    for view in views:
        for card in view.cards:
            if not shows_all and not card.also_on:
                hidden += 1
                continue
            reasons = [each.reason for each in card.containers if each.reason]
            free = f"{card.free_mib} MiB, {card.free_cores} percent, {card.free_slots} slots free"
            also = [f"node {node} reports this card, too" for node in card.also_on]
            parts = [f"{view.node} card {card.index} {card.uuid}: {free}", *reasons, *also]
            click.echo("; ".join(parts))
    more = 0 if shows_all else max(0, len(views) - _MOST_NODES)
    counts = [f"{count} {what}" for count, what in ((more, "nodes"), (hidden, "cards")) if count]
    if counts:
        click.echo(f"not shown without --all: {', '.join(counts)}")


def _write_without_pods(without: Sequence[NoPods]) -> None:
    skipped = []
    for owner in without:
        name = " ".join(legible(part) for part in (owner.kind, owner.name) if part)
        if owner.reason == NO_TEMPLATE:
            skipped.append(name)
        else:
            click.echo(f"{name} creates no pod now: {owner.reason}")
    if skipped:
        click.echo(f"skipped, {NO_TEMPLATE}: {', '.join(skipped)}")


def _write_outcomes(outcomes: Sequence[Outcome]) -> None:
    # The pods of a Deployment have the same name here, and mostly the same answer if they do not
    # fit.
    for _, equal in groupby(outcomes, key=_answer):
        outcome, *others = equal
        # Names come from manifests and snapshots, so they are not trusted.
        pod = legible(outcome.pod)
        if others:
            pod += f" ({len(others) + 1} pods)"
        if outcome.node is None or outcome.assignment is None:
            click.echo(f"{pod}: nowhere")
            for node, reason in sorted(outcome.reasons.items()):
                why = legible(reason)
                click.echo(f"  {legible(node)}: {why}" if node else f"  {why}")
            if not outcome.reasons:
                click.echo("  no node has cards")
        else:
            shares = [
                f"{container}: {legible(share.card)}"
                for container, allocated in outcome.assignment.containers.items()
                for share in allocated
            ]
            click.echo(f"{pod}: {legible(outcome.node)} ({', '.join(shares)})")
        for warning in outcome.warnings:
            click.echo(f"  the webhook: {legible(warning)}")


def _answer(outcome: Outcome) -> object:
    """Equal for equal answers: an assignment has the UID of its pod."""
    containers = outcome.assignment and outcome.assignment.containers
    return outcome.pod, outcome.node, containers, outcome.reasons, outcome.warnings


def _write_json(value: object) -> None:
    import msgspec  # noqa: PLC0415

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def _read_view(
    snapshot: Path | None, kubeconfig: Path | None, context: str | None, settings: PodSettings
) -> ClusterView:
    """The cluster now, or at the time of a snapshot.

    Raises:
        InvalidValue: the file is not a snapshot.
        StateError: a file cannot be read.
    """
    if snapshot is None:
        server = connect(kubeconfig, context)
        from hami_py.cluster.view import ClusterView  # noqa: PLC0415

        return ClusterView.read(server, settings)
    from hami_py.cluster.view import ClusterView  # noqa: PLC0415
    from hami_py.kube.documents import read_file  # noqa: PLC0415

    try:
        return ClusterView.restore(read_file(snapshot), settings)
    except InvalidValue as error:
        fix = f"{error.fix}; name a file that `hami snapshot` wrote"
        raise InvalidValue(f"{snapshot}: {error.field}", error.value, fix) from None
