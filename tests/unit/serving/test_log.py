"""What a listener logs: our own lines, and none of uvicorn's about its start and its end."""

from __future__ import annotations

import logging

import pytest

from unit.serving.listener import Listener


def test_a_listener_logs_its_address_and_nothing_of_uvicorns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each start and end was six lines of a logger called uvicorn.error."""
    with caplog.at_level(logging.INFO):
        listener = Listener(8, 10.0, has_tls=False)
        listener.silent().close()
        listener.server.stop()
    where = f"127.0.0.1:{listener.server.port}"
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("hami_py.serving.server", f"listening on {where}"),
        ("hami_py.serving.server", f"no longer listening on {where}"),
    ]
