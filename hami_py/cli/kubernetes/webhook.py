"""``hami webhook``: judges and completes pods that ask for a card."""

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
    help="A name or address that the API server reaches us by; the Service's if left out.",
)
@click.option("--scheduler", help="The scheduler of pods that ask for a card; theirs if left out.")
@click.option("--runtime-class", help="The runtime class of such pods, where they name none.")
@api_server_options
def webhook(
    *,
    listen: str,
    namespace: str,
    name: str,
    hosts: tuple[str, ...],
    scheduler: str | None,
    runtime_class: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Run the admission webhook until it is told to end.

    It keeps its own certificate in a Secret, and the authority that the API server needs to trust
    it in the two webhook configurations; deploy/ has both, and the rights that it needs.
    """
    server = connect(kubeconfig, context)
    with kubernetes_extra():
        from hami_py.webhook.keeper import Place  # noqa: PLC0415
        from hami_py.webhook.patch import Extras  # noqa: PLC0415
        from hami_py.webhook.service import LABELS, Webhook, WebhookSettings  # noqa: PLC0415

    names = hosts or (f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local")
    settings = WebhookSettings(
        place=Place(namespace, name, name, name, names),
        listen=parse_listen("--listen", listen),
        extras=Extras(LABELS, scheduler, runtime_class),
    )
    run_until_told(Webhook(server, settings))
