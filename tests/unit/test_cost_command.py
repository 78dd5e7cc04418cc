"""`hami cost` with a made-up Prometheus; tests/cluster/test_bill.py has a real one."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from hami_py.cli import kubectl_hami
from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.monitor import prometheus
from hami_py.monitor.bill import month_of

MAY = 1_777_593_600
"""2026-05-01T00:00Z."""


@dataclass
class Answers:
    """Its answers; ``minutes`` of May, 1 for the first, and 2.5 card-hours on the first day."""

    url: str = ""
    minutes: range = range(1, 31 * 1440 + 1)
    body: bytes | None = None
    pause_s: float = 0.0
    asked: list[dict[str, list[str]]] = field(default_factory=list)

    def body_of(self, path: str, query: dict[str, list[str]]) -> bytes:
        """The answer to a query of the API."""
        self.asked.append(query)
        if self.body is not None:
            return self.body
        if path.endswith("query_range"):
            first, last = ((int(query[name][0]) - MAY) // 60 for name in ("start", "end"))
            found = [[MAY + 60 * at, "2"] for at in range(first, last + 1) if at in self.minutes]
            result: list[Any] = [{"metric": {}, "values": found}] if found else []
        elif int(query["time"][0]) == MAY + 86_400:
            names = {"namespace": "red", "pod": "p", "label_team": "vision"}
            amount = "0.5" if "_used:" in query["query"][0] else "2.5"
            model = {"modelName": "NVIDIA A100"}
            result = [{"metric": {**names, **model}, "value": [MAY, amount]}]
        else:
            result = []
        return json.dumps({"status": "success", "data": {"result": result}}).encode()


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            body = found.body_of(url.path, parse_qs(url.query))
            self.send_response(200 if found.body is None else 422)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            step = 1 if found.pause_s else len(body)
            # The command may have given up.
            with suppress(OSError):
                for at in range(0, len(body), step):
                    self.wfile.write(body[at : at + step])
                    time.sleep(found.pause_s)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def run(answers: Answers, *options: str) -> Result:
    usual = ["cost", "--prometheus", answers.url, "--month", "2026-05", *options]
    return CliRunner().invoke(kubectl_hami, usual, catch_exceptions=False)


def refused(answers: Answers, *options: str) -> str:
    with pytest.raises(HamiError) as error:
        run(answers, *options)
    return str(error.value)


def test_the_table_has_the_sums(answers: Answers) -> None:
    said = run(answers, "--by", "pod", "--price", "NVIDIA A100=2").stdout.splitlines()
    assert [line.split() for line in said] == [
        ["NAMESPACE", "POD", "MODEL", "RESERVED", "CARD-h", "USED", "CARD-h", "COST"],
        ["red", "p", "NVIDIA", "A100", "2.50", "0.50", "5.00"],
        ["TOTAL", "2.50", "0.50", "5.00"],
    ]


def test_a_spreadsheet_gets_the_same(answers: Answers) -> None:
    said = run(answers, "--by", "label:team", "--format", "csv").stdout.splitlines()
    heads = "label_team,model,reserved_card_hours,used_card_hours,cost"
    assert said == [heads, "vision,NVIDIA A100,2.5,0.5,"]


def test_what_the_bill_leaves_out_is_named(answers: Answers) -> None:
    answers.minutes = range(121, 44_581)
    said = run(answers, "--price", "NVIDIA L4=1").stderr.splitlines()
    first, last = "2026-05-01T00:00Z to 2026-05-01T02:00Z", "2026-05-31T23:00Z to 2026-06-01T00:00Z"
    assert said == [
        f"hami: not billed: Prometheus has no data for 3.0 h of 744.0 h: {first}, {last}",
        "hami: no --price for 'NVIDIA A100': its card-hours have no cost",
    ]
    answers.minutes = range(0)
    assert "it has no hami:cards:count from 2026-05-01T00:00Z" in refused(answers)


def test_the_days_of_a_month_do_not_overlap(answers: Answers) -> None:
    run(answers, "-n", "red")
    ranges = [query for query in answers.asked if "start" in query]
    assert [int(query["start"][0]) for query in ranges] == [
        MAY + day * 86_400 + 60 for day in range(31)
    ]
    sums = [query["query"][0] for query in answers.asked if "time" in query]
    assert {text for text in sums if "used" not in text} == {
        "sum by (namespace, modelName) "
        '(sum_over_time(hami:namespace_cards:sum{namespace="red"}[86399s:60s]) / 60)'
    }


def test_the_current_month_ends_now() -> None:
    begin, end = month_of(datetime(2026, 5, 20, tzinfo=timezone.utc), MAY + 119.0)
    assert (begin, end) == (MAY, MAY + 60)
    assert month_of(datetime(2026, 12, 1, tzinfo=timezone.utc), 4e9)[1] == 1_798_761_600
    with pytest.raises(InvalidValue, match="choose a month that has begun"):
        month_of(datetime(2026, 6, 1, tzinfo=timezone.utc), MAY + 119.0)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--price", "A100"], "--price"),
        (["--price", "A100=dear"], "--price"),
        (["--price", "A100=-1"], "--price"),
        (["--price", "A100=inf"], "--price"),
        (["--by", "team"], "--by"),
        (["--by", "label:"], "--by"),
        (["-n", 'x"}'], "--namespace"),
        (["--prometheus", "127.0.0.1:9090"], "--prometheus"),
    ],
)
def test_an_invalid_option_is_refused(answers: Answers, options: list[str], field: str) -> None:
    with pytest.raises(InvalidValue) as error:
        run(answers, *options)
    assert error.value.field == field
    assert answers.asked == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"status": "error", "error": "too many\\nsamples"}', "too many samples"),
        (b'{"status": "success", "warnings": ["a store is down"]}', "a store is down"),
        (b"<html>", "it is no answer of Prometheus"),
        (b"[]", "it is no answer of Prometheus"),
    ],
)
def test_a_failure_is_no_empty_bill(answers: Answers, body: bytes, why: str) -> None:
    answers.body = body
    assert refused(answers) == (
        f"Prometheus at {answers.url}: {why}; check --prometheus, or try again later"
    )


def test_a_slow_answer_ends_at_the_deadline(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_DEADLINE_S", 0.2)
    answers.body, answers.pause_s = b" " * 9, 0.1
    with pytest.raises(StateError, match="no answer"):
        run(answers)
