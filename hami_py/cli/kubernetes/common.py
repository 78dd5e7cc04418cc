"""Options and helpers that the commands of the Kubernetes side share."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from hami_py.errors import InvalidValue, StateError

if TYPE_CHECKING:
    from hami_py.kube import ApiServer
    from hami_py.serving import Listen


class _Service(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


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


@contextlib.contextmanager
def kubernetes_extra() -> Iterator[None]:
    """Turns a failed import inside of it into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        raise StateError(
            "the Kubernetes side",
            f"{error.name} is not installed",
            "run: pip install 'hami-py[kubernetes]'",
        ) from error


def connect(kubeconfig: Path | None, context: str | None) -> ApiServer:
    """The API server of a kubeconfig.

    Raises:
        StateError: the kubeconfig is invalid, or the Kubernetes extra is not installed.
    """
    with kubernetes_extra():
        from hami_py.kube import ApiServer  # noqa: PLC0415

        return ApiServer.connect(kubeconfig, context)


def parse_listen(field: str, text: str) -> Listen:
    """Parses ``ADDRESS:PORT``; an IPv6 address is in brackets."""
    with kubernetes_extra():
        from hami_py.serving import Listen  # noqa: PLC0415

    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) >= 1 << 16:
        raise InvalidValue(field, text, "write an address and a port, such as 127.0.0.1:9380")
    return Listen(host.strip("[]"), int(port))


def run_service(service: _Service) -> None:
    """Runs a service until SIGTERM or SIGINT, then stops it gracefully."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    # The kernel may give a signal to any thread. In each of them the interpreter writes to the
    # pipe; a lock that the main thread waits for would not notice.
    wakes, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    service.start()
    try:
        select.select([wakes], [], [])
    finally:
        service.stop()
