"""``hami scheduler``: finds nodes with cards for pods, called by kube-scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.settings import read_settings, report_settings, settings_option
from hami_py.cli.service import kubernetes_extra, parse_listen, run_service
from hami_py.errors import InvalidValue
from hami_py.model import check_object_name


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9380",
    show_default=True,
    help="The address and port for kube-scheduler.",
)
@click.option(
    "--probes",
    help="A second address and port for health and metrics. Default: only --listen.",
)
@click.option(
    "--pod-selector",
    default="hami.io/pod=true",
    show_default=True,
    help="The label of the pods to follow, which the webhook sets; an empty text follows all.",
)
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    help="kube-scheduler's lease, if it has several replicas. A new leader waits until no binding "
    "of the previous leader can be on its way, and a replica without the lease binds nothing.",
)
@click.option(
    "--lease-holder",
    metavar="HOSTNAME",
    help="The name of kube-scheduler's host. Default: this host, which is right in one pod.",
)
@settings_option
@api_server_options
def scheduler(
    *,
    listen: str,
    probes: str | None,
    pod_selector: str,
    lease: str | None,
    lease_holder: str | None,
    settings_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the scheduler extender until it gets SIGTERM or SIGINT.

    It runs in the same pod as kube-scheduler; deploy/scheduler has the configuration.
    """
    at = parse_listen("--listen", listen)
    probed_at = parse_listen("--probes", probes) if probes else None
    leased = _parse_lease(lease) if lease is not None else None
    pod_settings = read_settings(settings_file)
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.scheduler.service import Scheduler  # noqa: PLC0415
        from hami_py.scheduler.settings import SchedulerSettings  # noqa: PLC0415

    settings = SchedulerSettings(
        listen=at,
        probes=probed_at,
        pods=pod_settings,
        pod_selector=pod_selector,
        lease=leased,
        lease_holder=lease_holder,
    )
    report_settings(pod_settings)
    run_service(Scheduler(server, settings))


def _parse_lease(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not slash:
        raise InvalidValue(
            "--lease", text, "write namespace/name, such as hami-system/hami-scheduler"
        )
    return check_object_name("--lease", namespace), check_object_name("--lease", name)
