"""Programs of the distribution: they are tested where they are installed."""

import shutil

from support import requirements


def require(program: str) -> None:
    """Say loudly what is not tested and why; in CI that is a failure.

    ``make test-tools`` installs what it can.
    """
    if shutil.which(program):
        return
    requirements.skip_or_fail(
        f"{program} is not installed: `make test-tools` installs it as root, from Debian"
    )
