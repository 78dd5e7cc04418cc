"""Programs and rights that a test needs and a machine may lack."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(why: str) -> NoReturn:
    """Skip the test with a reason; in CI (``CI`` is set) fail it."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
