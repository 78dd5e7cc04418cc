"""What the commands of the Kubernetes side have in common."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from hami_py.errors import InvalidValue, StateError

if TYPE_CHECKING:
    from hami_py.kube import ApiServer
    from hami_py.serving import Listen

__all__ = [
    "api_server_options",
    "connect",
    "kubernetes_extra",
    "parse_listen",
    "run_until_told",
]


class _Service(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


def api_server_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that name an API server."""
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The cluster's kubeconfig; without it, this pod's cluster, or kubectl's.",
    )
    context = click.option(
        "--context", help="The kubeconfig's context; its current one if left out."
    )
    return kubeconfig(context(command))


@contextlib.contextmanager
def kubernetes_extra() -> Iterator[None]:
    """Says how to install what an import in it does not find."""
    try:
        yield
    except ImportError as error:
        raise StateError(
            "the Kubernetes side",
            f"{error.name} is not installed",
            "run: pip install 'hami-py[kubernetes]'",
        ) from error


def connect(kubeconfig: Path | None, context: str | None) -> ApiServer:
    """The API server that is named.

    Raises:
        StateError: it cannot be read, or what speaks with it is not installed.
    """
    with kubernetes_extra():
        from hami_py.kube import ApiServer  # noqa: PLC0415

        return ApiServer.connect(kubeconfig, context)


def parse_listen(field: str, text: str) -> Listen:
    """``ADDRESS:PORT``; an IPv6 address is in brackets."""
    with kubernetes_extra():
        from hami_py.serving import Listen  # noqa: PLC0415

    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) >= 1 << 16:
        raise InvalidValue(field, text, "write an address and a port, such as 127.0.0.1:9380")
    return Listen(host.strip("[]"), int(port))


def run_until_told(service: _Service) -> None:
    """Runs a service until SIGTERM or SIGINT, then lets it finish what it has begun."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    service.start()
    try:
        told.wait()
    finally:
        service.stop()
