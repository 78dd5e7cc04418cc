"""A CUDA program: what a program sees, and at how much memory it is stopped.

    python -m hami_py.gpu.probe             # initialise the driver and read its version
    python -m hami_py.gpu.probe totals      # also the memory of each card
    python -m hami_py.gpu.probe allocate    # also allocate all available memory on card 0

It writes one JSON object to standard output; ``failed`` names the call that failed, if any.
"""

import json
import sys
from dataclasses import asdict, dataclass, field

from hami_py.errors import HamiError
from hami_py.gpu.driver import PAGE, Driver


@dataclass
class Report:
    """The probe's report.

    Attributes:
        version: the CUDA version that the driver supports; 13050 is 13.5.
        totals: the reported memory of each card in bytes, by UUID; ``total`` is that of card 0.
        free: its reported free memory in bytes, after the context was created.
        allocated: bytes that could be allocated.
        stopped_by: the error of the last refused allocation.
    """

    version: int = 0
    count: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    total: int = 0
    free: int = 0
    allocated: int = 0
    stopped_by: str | None = None
    failed: str | None = None
    fix: str | None = None


def probe(what: str = "") -> Report:
    """Probe the driver in this process; ``what``: ``totals``, ``allocate`` or nothing more."""
    report = Report()
    try:
        driver = Driver()
        report.version = driver.version()
        report.count = driver.count()
        if what == "totals":
            report.totals = {driver.uuid(i): driver.total(i) for i in range(report.count)}
        if what == "allocate":
            driver.use(0)
            report.total = driver.total(0)
            report.free = driver.free()
            _fill(driver, report)
    except HamiError as error:
        report.failed = f"{error.what}: {error.why}"
        report.fix = error.fix
    return report


def _fill(driver: Driver, report: Report) -> None:
    """Allocate in steps that are halved at each refusal: that needs few calls and leaves little."""
    step = report.total
    while step >= PAGE:
        error = driver.allocate(step)
        if error is None:
            report.allocated += step
        else:
            report.stopped_by = error
            step //= 2


if __name__ == "__main__":
    print(json.dumps(asdict(probe(*sys.argv[1:2]))))
