"""A CUDA program of our own, for the doctor: what does a program see, and where is it stopped?

    python -m hami_py.gpu.probe             # can the driver be used, and which version is it
    python -m hami_py.gpu.probe allocate    # take all the memory that can be had on card 0

One JSON object on standard output; its ``failed`` names the call that did, if one did.
"""

import json
import sys
from dataclasses import asdict, dataclass

from hami_py.errors import HamiError
from hami_py.gpu.driver import PAGE, Driver


@dataclass
class Report:
    """What the probe saw.

    Attributes:
        version: the CUDA version that the driver speaks; 13050 is 13.5.
        count: cards seen.
        total: bytes that card 0 is said to have.
        free: bytes said to be free on it at the start, after the context was made.
        allocated: bytes that could be had.
        stopped_by: the error that ended it.
        failed: why the probe could not go on.
        fix: what to do about that.
    """

    version: int = 0
    count: int = 0
    total: int = 0
    free: int = 0
    allocated: int = 0
    stopped_by: str | None = None
    failed: str | None = None
    fix: str | None = None


def probe(*, allocate: bool) -> Report:
    """Look, and on request allocate, in this process."""
    report = Report()
    try:
        driver = Driver()
        report.version = driver.version()
        report.count = driver.count()
        if allocate:
            driver.use(0)
            report.total = driver.total(0)
            report.free = driver.free()
            _fill(driver, report)
    except HamiError as error:
        report.failed = f"{error.what}: {error.why}"
        report.fix = error.fix
    return report


def _fill(driver: Driver, report: Report) -> None:
    """Take memory in steps that are halved at each refusal: few calls, and little is left over."""
    step = report.total
    while step >= PAGE:
        error = driver.allocate(step)
        if error is None:
            report.allocated += step
        else:
            report.stopped_by = error
            step //= 2


if __name__ == "__main__":
    print(json.dumps(asdict(probe(allocate=sys.argv[1:] == ["allocate"]))))
