"""Rubbish is turned away at once, with a reason, and costs nothing that stays."""

import contextlib
import http.client
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import rubbish

#: Seconds that one answer may take, on a busy machine.
DEADLINE = 30.0
COUNT = 100_000
WARM_UP = 5_000
MOST_GROWTH = 20 << 20
FINE = {200, 400, 413, 422}


@pytest.fixture
def services() -> Iterator[tuple[int, int]]:
    """The port and PID of our services."""
    with subprocess.Popen(
        [sys.executable, "-m", "services.serve"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
            assert process.poll() is None
        finally:
            process.stdin.close()
            process.wait(DEADLINE)


def resident(pid: int) -> int:
    text = Path(f"/proc/{pid}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(600)
def test_a_hundred_thousand_malformed_requests(services: tuple[int, int]) -> None:
    port, pid = services
    statuses: Counter[int] = Counter()
    before = 0
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    with contextlib.closing(link) as connection:
        for number, (path, body) in enumerate(rubbish.requests(7, COUNT)):
            if number == WARM_UP:
                before = resident(pid)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            statuses[answer.status] += 1
            assert answer.status in FINE, (path, body[:2_000], text)
            assert text
    assert resident(pid) - before < MOST_GROWTH
    assert statuses[200] > COUNT // 20
    assert statuses[400] > COUNT // 5
