"""Functions for the commands that run a service."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from hami_py.errors import StateError
from hami_py.model.names import parse_address

if TYPE_CHECKING:
    from hami_py.serving import Listen


class _Service(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


@contextlib.contextmanager
def kubernetes_extra() -> Iterator[None]:
    """Turns a failed import inside of it into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        raise StateError(
            "this command",
            f"{error.name} is not installed",
            'install the wheel with its extra: pip install "$(ls dist/hami_py-*.whl)[kubernetes]"',
        ) from error


def parse_listen(field: str, text: str) -> Listen:
    """Parses an ``ADDRESS:PORT`` to listen on; port 0 is any free one."""
    with kubernetes_extra():
        from hami_py.serving import Listen  # noqa: PLC0415

    return Listen(*parse_address(field, text, "127.0.0.1:9380", first_port=0))


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
