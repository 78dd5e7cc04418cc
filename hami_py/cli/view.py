"""``hami view``: a read-only web page of what cards do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py import config
from hami_py.cli.kubernetes.common import api_server_options
from hami_py.cli.kubernetes.settings import read_settings, settings_option
from hami_py.cli.service import kubernetes_extra, parse_listen, run_service
from hami_py.cli.top import read_machine
from hami_py.model import check_object_name
from hami_py.model.names import parse_address

if TYPE_CHECKING:
    from hami_py.kube import UserServers
    from hami_py.serving import Listen

_PORT = 9384


@click.command()
@click.option("--local", is_flag=True, help="Show this machine instead of a cluster.")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default=f"127.0.0.1:{_PORT}",
    show_default=True,
    help="Where to listen, without TLS.",
)
@click.option(
    "--sessions",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="The most sessions at once: one for each token and namespace.",
)
@click.option("--title", help="The name that the page shows. Default: the API server's address.")
@click.option(
    "--api-server",
    metavar="HOST:PORT",
    help="The API server, if there is no kubeconfig; needs --certificate-authority.",
)
@click.option(
    "--certificate-authority",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The certificates that it is checked with.",
)
@click.option(
    "--system-namespace",
    default="hami-system",
    show_default=True,
    help="The namespace of hami-py's own parts.",
)
@settings_option
@api_server_options
def view(
    *,
    local: bool,
    listen: str,
    sessions: int,
    title: str | None,
    api_server: str | None,
    certificate_authority: Path | None,
    system_namespace: str,
    settings_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Serve a read-only web page of what the cards of a cluster do, until SIGTERM or SIGINT.

    The page asks each user for a token, or a proxy in front sends one. A user sees what the token
    may see: of a kubeconfig, only the API server's address and certificates are used.

    With --local it shows this machine, as `hami top` does, and prints the address to open.
    """
    if local:
        _serve_machine(parse_listen("--listen", listen))
        return
    at = parse_listen("--listen", listen)
    check_object_name("--system-namespace", system_namespace)
    settings = read_settings(settings_file)
    with kubernetes_extra():
        from hami_py.view import View, ViewSettings  # noqa: PLC0415
        from hami_py.view.session import SessionSettings  # noqa: PLC0415

    servers = _servers(api_server, certificate_authority, kubeconfig, context)
    session = SessionSettings(title or servers.host, system_namespace, settings)
    run_service(View(servers, ViewSettings(at, sessions, session)))


def _servers(
    api_server: str | None, authority: Path | None, kubeconfig: Path | None, context: str | None
) -> UserServers:
    with kubernetes_extra():
        from hami_py.kube import UserServers  # noqa: PLC0415

    if (api_server is None) != (authority is None):
        raise click.UsageError("Give --api-server and --certificate-authority together.")
    if api_server is None or authority is None:
        return UserServers.of_kubeconfig(kubeconfig, context)
    name, port = parse_address("--api-server", api_server, "10.96.0.1:443")
    url = f"https://[{name}]:{port}" if ":" in name else f"https://{name}:{port}"
    return UserServers.at(url, authority)


def _serve_machine(listen: Listen) -> None:
    with kubernetes_extra():
        from hami_py.monitor import NodeFigures  # noqa: PLC0415
        from hami_py.view import LocalView  # noqa: PLC0415

    settings = config.read()

    def read() -> NodeFigures:
        cards, rows, _ = read_machine(settings)
        return NodeFigures("", cards, rows)

    service = LocalView(read, listen)
    click.echo(service.address)
    run_service(service)
