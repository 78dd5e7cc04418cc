"""``hami webhook``: checks and completes pods that request a card."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.settings import judging_options, read_settings, report_settings
from hami_py.cli.service import kubernetes_extra, parse_listen, run_service
from hami_py.model import check_object_name


@click.command()
@click.option(
    "--listen", default="0.0.0.0:9443", show_default=True, help="The address and port to listen on."
)
@click.option(
    "--namespace", default="hami-system", show_default=True, help="The namespace of the webhook."
)
@click.option(
    "--name",
    default="hami-webhook",
    show_default=True,
    help="The name of the Secret, the Service and both webhook configurations.",
)
@click.option(
    "--certificate-secret",
    metavar="SECRET",
    help="Serve the certificate of this Secret (tls.crt, tls.key, ca.crt), which something else "
    "creates and renews. Default: the webhook creates its own.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A DNS name or IP address at which the API server reaches the webhook; may be repeated. "
    "Default: the names of the Service.",
)
@judging_options
@click.option(
    "--runtime-class", help="The runtime class for pods that request a card and name none."
)
@api_server_options
def webhook(
    *,
    listen: str,
    namespace: str,
    name: str,
    certificate_secret: str | None,
    hosts: tuple[str, ...],
    settings_file: Path | None,
    schedulers: tuple[str, ...],
    preloads: tuple[str, ...],
    runtime_class: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the admission webhook until it gets SIGTERM or SIGINT.

    It keeps its certificate in a Secret. It writes the authority that the API server must trust
    into the two webhook configurations, and also their rules, once it answers. deploy/ has these
    objects and the rights that it needs.
    """
    names = [("--namespace", namespace), ("--name", name)]
    names += [("--certificate-secret", certificate_secret)] if certificate_secret else []
    names += [("--host", each) for each in hosts if not _is_address(each)]
    names += [] if runtime_class is None else [("--runtime-class", runtime_class)]
    for field, text in names:
        check_object_name(field, text)
    at = parse_listen("--listen", listen)
    pod_settings = read_settings(settings_file, schedulers, preloads)
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.webhook.keeper import WebhookObjects  # noqa: PLC0415
        from hami_py.webhook.service import Webhook, WebhookSettings  # noqa: PLC0415

    reached_by = hosts or (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
    settings = WebhookSettings(
        objects=WebhookObjects(
            namespace=namespace,
            secret=certificate_secret or name,
            mutating=name,
            validating=name,
            names=reached_by,
            is_ours=certificate_secret is None,
        ),
        listen=at,
        pods=pod_settings,
        runtime_class=runtime_class,
    )
    report_settings(pod_settings)
    run_service(Webhook(server, settings))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
