"""``hami webhook``: judges and completes pods that ask for a card."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from hami_py.cli.kubernetes.common import (
    api_server_options,
    connect,
    kubernetes_extra,
    parse_listen,
    run_until_told,
)
from hami_py.cli.kubernetes.settings import judging_options, read_settings, say_settings
from hami_py.model import check_object_name


@click.command(short_help="Run the admission webhook.")
@click.option("--listen", default="0.0.0.0:9443", show_default=True, help="Where to listen.")
@click.option("--namespace", default="hami-system", show_default=True, help="Our namespace.")
@click.option(
    "--name",
    default="hami-webhook",
    show_default=True,
    help="The Secret's, the Service's and the configurations' name.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A name or address that the API server reaches us by; again for more. Left out: the "
    "Service's names.",
)
@judging_options
@click.option("--runtime-class", help="The runtime class of such pods, where they name none.")
@api_server_options
def webhook(
    *,
    listen: str,
    namespace: str,
    name: str,
    hosts: tuple[str, ...],
    settings_file: Path | None,
    schedulers: tuple[str, ...],
    preloads: tuple[str, ...],
    runtime_class: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the admission webhook until it is told to end.

    It keeps its own certificate in a Secret, and the authority that the API server needs to trust
    it in the two webhook configurations; deploy/ has all three, and the rights that it needs.
    """
    given = [("--namespace", namespace), ("--name", name)]
    given += [("--host", each) for each in hosts if not _is_address(each)]
    given += [] if runtime_class is None else [("--runtime-class", runtime_class)]
    for field, text in given:
        check_object_name(field, text)
    at = parse_listen("--listen", listen)
    judged = read_settings(settings_file, schedulers, preloads)
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.webhook.keeper import WebhookObjects  # noqa: PLC0415
        from hami_py.webhook.service import Webhook, WebhookSettings  # noqa: PLC0415

    names = hosts or (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
    settings = WebhookSettings(
        objects=WebhookObjects(namespace, name, name, name, names),
        listen=at,
        pods=judged,
        runtime_class=runtime_class,
    )
    say_settings(judged)
    run_until_told(Webhook(server, settings))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
