"""Options and helpers that the commands of the Kubernetes side share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.service import kubernetes_extra

if TYPE_CHECKING:
    from hami_py.kube import ApiServer


def api_server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that name an API server."""
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The kubeconfig file. Default: this pod's service account, or else kubectl's file.",
    )
    context = click.option(
        "--context", help="The context in the kubeconfig. Default: its current context."
    )
    return kubeconfig(context(command))


def connect(kubeconfig: Path | None, context: str | None) -> ApiServer:
    """The API server of a kubeconfig.

    Raises:
        StateError: the kubeconfig is invalid, or the Kubernetes extra is not installed.
    """
    with kubernetes_extra():
        from hami_py.kube import ApiServer  # noqa: PLC0415

        return ApiServer.connect(kubeconfig, context)
