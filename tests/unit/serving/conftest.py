from collections.abc import Iterator

import pytest

from unit.serving.listener import LONG, Listener, Open


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def has_tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opened(has_tls: bool) -> Iterator[Open]:
    listeners: list[Listener] = []

    def one(connections: int = 8, head_s: float = LONG) -> Listener:
        listeners.append(Listener(connections, head_s, has_tls=has_tls))
        return listeners[-1]

    yield one
    for listener in listeners:
        listener.end()
