"""``hami scheduler``: tells kube-scheduler which nodes a pod's cards are on."""

from __future__ import annotations

from pathlib import Path

import click

from hami_py.cli.kubernetes.common import (
    api_server_options,
    connect,
    kubernetes_extra,
    parse_listen,
    run_until_told,
)


@click.command(short_help="Run the scheduler extender.")
@click.option(
    "--listen", default="127.0.0.1:9380", show_default=True, help="Where kube-scheduler asks."
)
@click.option("--probes", help="Where health and metrics are read; at --listen too if left out.")
@click.option(
    "--pod-selector",
    default="hami.io/pod=true",
    show_default=True,
    help="The label of the pods to follow, which the webhook sets; empty follows all.",
)
@api_server_options
def scheduler(
    *,
    listen: str,
    probes: str | None,
    pod_selector: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the scheduler extender until it is told to end.

    It belongs beside kube-scheduler, in one pod: deploy/scheduler has the configuration.
    """
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.scheduler.service import Scheduler, SchedulerSettings  # noqa: PLC0415

    settings = SchedulerSettings(
        listen=parse_listen("--listen", listen),
        probes=parse_listen("--probes", probes) if probes else None,
        pod_selector=pod_selector,
    )
    run_until_told(Scheduler(server, settings))
