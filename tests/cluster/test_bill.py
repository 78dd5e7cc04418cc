"""`hami cost` and the rules that it reads, on a real Prometheus with a known history of pods.

The history is made by Prometheus' own tool, first the agents' metrics, then what the rules record
of them. The tool writes no marks where series end. So Prometheus looks back for less than the
interval of the samples; tests/cluster/test_rules.py tests that the rules follow such marks.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cluster.monitoring.prometheus import Prometheus
from cluster.monitoring.rules import promtool, rules
from hami_py.cli import kubectl_hami
from support.artifacts import ROOT

pytestmark = [
    pytest.mark.programs("prometheus"),
    pytest.mark.usefixtures("programs"),
]

START = int(datetime(2026, 8, 10, tzinfo=timezone.utc).timestamp())
END = START + 3 * 86_400
OUTAGE = (START + 100_000 // 60 * 60, START + 107_200 // 60 * 60)
SCRAPE_S, RULES_S = 30, 60
MODELS = {"GPU-0": "NVIDIA A100", "GPU-1": "NVIDIA L4"}
PRICES = {"NVIDIA A100": 2.5, "NVIDIA L4": 0.5}
OPENCOST = 3
TEAMS = {"blue": "vision", "red": "speech"}


@dataclass(frozen=True)
class Pod:
    """It has a part of a card from ``start`` to ``end``, and uses ``busy`` of the card's time."""

    name: str
    namespace: str
    card: str
    part: float
    busy: float
    start: int
    end: int

    @property
    def seconds(self) -> int:
        """How long it ran while Prometheus did."""
        lost = min(self.end, OUTAGE[1]) - max(self.start, OUTAGE[0])
        return self.end - self.start - max(0, lost)


def history() -> list[Pod]:
    """Twelve long pods, and three hundred that run for a minute to ten."""
    chance = random.Random(7)  # noqa: S311
    made = []
    for number in range(312):
        seconds = chance.randint(20_000, 150_000) if number < 12 else chance.randint(60, 600)
        start = chance.randint(START + 60, END - 600 - seconds)
        part = chance.choice([0.1, 0.25, 0.5, 1.0])
        names = f"p{number}", chance.choice([*TEAMS]), chance.choice([*MODELS])
        made.append(Pod(*names, part, part * chance.random(), start, start + seconds))
    return made


PODS = history()


def samples(begin: int, end: int) -> Iterator[int]:
    """The times of the scrapes in between."""
    for at in range(START + 7, END, SCRAPE_S):
        if begin <= at < end and not OUTAGE[0] <= at < OUTAGE[1]:
            yield at


def written() -> Iterator[str]:
    """The history in OpenMetrics' format."""
    for card, model in MODELS.items():
        for at in samples(START, END):
            labels = f'Hostname="n1",UUID="{card}",modelName="{model}"'
            yield f"hami_card_memory_bytes{{{labels}}} 1 {at}"
    for at in samples(START, END):
        yield f'node_gpu_hourly_cost{{node="n1"}} {OPENCOST} {at}'
    for metric, value in (
        ("hami_container_card_allocated_ratio", lambda pod, _: pod.part),
        ("hami_container_engine_seconds_total", lambda pod, at: pod.busy * (at - pod.start)),
    ):
        yield from series(metric, value)
    for pod in PODS:
        labels = f'namespace="{pod.namespace}",pod="{pod.name}",label_team="{TEAMS[pod.namespace]}"'
        for at in samples(pod.start, pod.end):
            yield f"kube_pod_labels{{{labels}}} 1 {at}"
    yield "# EOF"


def series(metric: str, value: Callable[[Pod, int], float]) -> Iterator[str]:
    for pod in PODS:
        card = f'Hostname="n1",UUID="{pod.card}",modelName="{MODELS[pod.card]}"'
        labels = f'{card},namespace="{pod.namespace}",pod="{pod.name}",container="c"'
        for at in samples(pod.start, pod.end):
            yield f"{metric}{{{labels}}} {value(pod, at)} {at}"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Takes 20 s."""
    folder = tmp_path_factory.mktemp("bill")

    def looking_back(seconds: int) -> Prometheus:
        flags = {
            "query.lookback-delta": f"{seconds * 1000 - 1}ms",
            "storage.tsdb.path": str(folder / "data"),
            "storage.tsdb.retention.time": "10y",
        }
        return Prometheus(folder / f"{seconds}", [], Path(), flags)

    page, file = folder / "page", folder / "rules.yaml"
    page.write_text("\n".join(written()) + "\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", page, folder / "data")
    making = looking_back(SCRAPE_S)
    recorded = [rule for rule in rules() if "record" in rule]
    # A run of the tool does not see what it has made itself.
    for is_second in (False, True):
        group = [rule for rule in recorded if ("hami:" in rule["expr"]) is is_second]
        file.write_text(yaml.safe_dump({"groups": [{"name": "recorded", "rules": group}]}))
        with making:
            times = (f"--start={START}", f"--end={END}", f"--eval-interval={RULES_S}s")
            to = (f"--url={making.url}", f"--output-dir={folder / 'data'}")
            promtool("tsdb", "create-blocks-from", "rules", *times, *to, file)
    with looking_back(RULES_S) as server:
        yield server


def cost(prometheus: Prometheus, *options: str) -> dict[str, Any]:
    prices = (f"--price={model}={amount}" for model, amount in PRICES.items())
    command = ["cost", "--prometheus", prometheus.url, "--month", "2026-08", "--format", "json"]
    done = CliRunner().invoke(kubectl_hami, [*command, *prices, *options], catch_exceptions=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def expected(key: Callable[[Pod], str]) -> Mapping[tuple[str, str], tuple[float, float]]:
    """The reserved and the used card-hours, by the key of a pod and its model."""
    sums: dict[tuple[str, str], list[float]] = {}
    for pod in PODS:
        row = sums.setdefault((key(pod), MODELS[pod.card]), [0.0, 0.0])
        row[0] += pod.part * pod.seconds / 3600
        row[1] += pod.busy * pod.seconds / 3600
    return {key: (reserved, used) for key, (reserved, used) in sums.items()}


@pytest.mark.parametrize(
    ("by", "column", "key"),
    [
        ("namespace", "namespace", lambda pod: pod.namespace),
        ("label:team", "label_team", lambda pod: TEAMS[pod.namespace]),
    ],
)
def test_a_bill_is_within_a_hundredth(
    prometheus: Prometheus, by: str, column: str, key: Callable[[Pod], str]
) -> None:
    rows = cost(prometheus, "--by", by)["rows"]
    sums = expected(key)
    assert {(row[column], row["model"]) for row in rows} == {*sums}
    for row in rows:
        reserved, used = sums[row[column], row["model"]]
        assert row["reserved_card_hours"] == pytest.approx(reserved, rel=0.01)
        assert row["used_card_hours"] == pytest.approx(used, rel=0.01)
        assert row["cost"] == pytest.approx(reserved * PRICES[row["model"]], rel=0.01)


def test_the_bill_of_a_pod_is_right_to_the_minute(prometheus: Prometheus) -> None:
    rows = {row["pod"]: row for row in cost(prometheus, "--by", "pod", "-n", "red")["rows"]}
    assert {row["namespace"] for row in rows.values()} == {"red"}
    for pod in PODS:
        if pod.namespace == "red" and pod.seconds == pod.end - pod.start:
            minutes = rows[pod.name]["reserved_card_hours"] * 60 / pod.part
            assert minutes == pytest.approx(pod.seconds / 60, abs=1), pod


def test_opencost_s_price_makes_a_bill_too(prometheus: Prometheus) -> None:
    query = "sum by (namespace) (sum_over_time(hami:pod_gpu_cost:hourly[31d:1m])) / 60"
    assert query in (ROOT / "docs" / "operate.md").read_text()
    at = str(datetime(2026, 9, 1, tzinfo=timezone.utc).timestamp())
    found = prometheus.get("query", query=query, time=at)["result"]
    costs = {each["metric"]["namespace"]: float(each["value"][1]) for each in found}
    for namespace in TEAMS:
        hours = sum(pod.part * pod.seconds for pod in PODS if pod.namespace == namespace) / 3600
        assert costs[namespace] == pytest.approx(hours * OPENCOST, rel=0.01)


def test_a_month_of_which_prometheus_has_a_part_says_which(prometheus: Prometheus) -> None:
    found = cost(prometheus)
    minute = "2026-08-{}Z".format
    assert (found["from"], found["to"]) == (minute("01T00:00"), "2026-09-01T00:00Z")
    outage = [f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%dT%H:%MZ}" for at in OUTAGE]
    missing = [
        [found["from"], minute("10T00:00")],
        outage,
        [minute("13T00:00"), found["to"]],
    ]
    assert found["missing"] == missing
