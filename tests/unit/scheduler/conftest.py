import pytest

from unit.scheduler.small import Small


@pytest.fixture
def small() -> Small:
    """Two nodes with a card each; a pod takes a whole one."""
    return Small().listed()
