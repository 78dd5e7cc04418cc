from collections.abc import Iterator

import pytest

from unit.serving.site import LONG, Open, Site


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def has_tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opened(has_tls: bool) -> Iterator[Open]:
    sites: list[Site] = []

    def one(connections: int = 8, head_s: float = LONG) -> Site:
        sites.append(Site(connections, head_s, has_tls=has_tls))
        return sites[-1]

    yield one
    for site in sites:
        site.end()
