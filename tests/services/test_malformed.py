"""Malformed requests are rejected at once, with a reason, and leave nothing behind.

Both services run as in a cluster, by their commands, and are called over their sockets.
"""

import contextlib
import http.client
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest

from cluster.servers import free_ports
from services import malformed
from services.api_server import api_server
from services.running import DEADLINE, Connect, ask, command, peak, resident, trusting, until_ready
from support.tiers import amount

EACH = amount("malformed requests")
GOOD_EVERY = 50
MOST_GROWTH = 20 << 20
FINE = {200, 400, 413, 422}


def bear(connect: Connect, routes: Mapping[str, tuple[str, ...]], seed: int) -> Counter[int]:
    """The statuses of the responses to malformed requests; valid ones are answered in between."""
    statuses: Counter[int] = Counter()
    good = cycle(malformed.as_recorded(routes))
    with contextlib.closing(connect()) as connection:

        def status(path: str, body: bytes) -> int:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status in FINE, (path, body[:2_000], text)
            assert text
            return answer.status

        for number, (path, body) in enumerate(malformed.requests(routes, seed, EACH)):
            statuses[status(path, body)] += 1
            if number % GOOD_EVERY == 0:
                assert status(*next(good)) == 200
    return statuses


@pytest.mark.timeout(1200)
def test_malformed_requests_are_rejected_and_leave_nothing_behind(tmp_path: Path) -> None:
    """Sends thousands of requests to both services: only many show that memory does not grow."""
    tls = trusting()
    hook_port, port = free_ports(2)

    def hook() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", hook_port, timeout=DEADLINE, context=tls)

    def extender() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)

    with api_server(tmp_path) as kubeconfig, contextlib.ExitStack() as services:
        pids = [
            services.enter_context(
                command(
                    tmp_path / f"{name}.log",
                    *(name, "--listen", f"127.0.0.1:{at}", "--kubeconfig", str(kubeconfig)),
                )
            )
            for name, at in (("webhook", hook_port), ("scheduler", port))
        ]
        until_ready(hook)
        until_ready(extender)
        began = [resident(pid) for pid in pids]
        good = [
            (hook, "/mutate", "admission-review-create"),
            (extender, "/filter", "extender-filter-names"),
        ]
        before = [ask(*question) for question in good]
        assert [status for status, _ in before] == [200, 200]
        with ThreadPoolExecutor() as threads:
            webhook = threads.submit(bear, hook, malformed.WEBHOOK, 7)
            scheduler = threads.submit(bear, extender, malformed.SCHEDULER, 8)
            for statuses in (webhook.result(), scheduler.result()):
                assert statuses[200] > EACH // 20
                assert statuses[400] > EACH // 5
                # Of the large ones; the others are read whole.
                assert statuses[413] > EACH // malformed.LARGE_EVERY // 5
        # At no time, from before the first request of any kind.
        for pid, at_first in zip(pids, began, strict=True):
            assert peak(pid) - at_first < MOST_GROWTH
        # And they are as they were.
        assert [ask(*question) for question in good] == before
