"""The rules of deploy/chart/files/rules.yaml, by Prometheus' own tool: which alert fires when."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.monitoring.rules import RULES, alerts, promtool

pytestmark = [
    pytest.mark.programs("prometheus"),
    pytest.mark.usefixtures("programs"),
]

MIB = 1 << 20
POD = 'Hostname="n1",UUID="GPU-0",namespace="ml",pod="{}"'
TRAIN, IDLE = POD.format("train"), POD.format("idle")
OF_TRAIN = {"Hostname": "n1", "UUID": "GPU-0", "namespace": "ml", "pod": "train"}
ALLOCATED = 'hami_scheduler_namespace_allocated{{instance="{}",namespace="ml",resource="{}"}}'
QUOTA = 'hami_scheduler_quota_limit{{instance="s1",namespace="ml",quota="{}",resource="{}"}}'
VERB = 'hami_scheduler_verb_duration_seconds_bucket{{verb="{}",le="{}"}}'


@dataclass(frozen=True)
class Case:
    """An alert fires with these series, and not for the healthy ones among them.

    ``series`` are by name in promtool's notation, one value a minute. ``fires`` has the labels and
    the summary of each alert at the minute ``at``. At the minute ``before``, none fires.
    """

    alert: str
    series: dict[str, str]
    before: int
    at: int
    fires: list[tuple[dict[str, str], str]] = field(default_factory=list)


CASES = [
    Case(
        "HamiNodeAgentDown",
        {
            'hami_scheduler_node_cards{node="stopped",state="schedulable"}': "8x20",
            'hami_scheduler_node_cards{node="n1",state="schedulable"}': "8x20",
            'up{job="hami-node",node="n1"}': "1x20",
            'hami_node_registered{node="n1"}': "1x20",
            'up{job="hami-node",node="never"}': "0x20",
        },
        *(4, 6),
        [
            ({"node": "stopped"}, "No node agent reports from stopped."),
            ({"node": "never"}, "No node agent reports from never."),
        ],
    ),
    Case(
        "HamiNodeNotRegistered",
        {
            'hami_node_registered{Hostname="n1"}': "0x20",
            'hami_node_registered{Hostname="n2"}': "1x20",
        },
        *(4, 6),
        [({"Hostname": "n1"}, "The kubelet of n1 does not know the cards.")],
    ),
    Case(
        "HamiWebhookDown",
        {'up{job="hami-webhook",pod="a"}': "1x5 0x20", 'up{job="hami-webhook",pod="b"}': "1x9 0x9"},
        *(9, 13),
        [({}, "No replica of the webhook answers.")],
    ),
    Case(
        "HamiSchedulerDown",
        {'up{job="hami-scheduler"}': "1x5", 'up{job="hami-webhook"}': "1x20"},
        *(6, 13),
        [({}, "No replica of the extender answers.")],
    ),
    Case(
        "HamiWebhookCertificateExpires",
        {
            'hami_webhook_certificate_expiry_timestamp_seconds{instance="w1"}': f"{172800 + 119}x9",
            'hami_webhook_certificate_expiry_timestamp_seconds{instance="w2"}': "604800x9",
        },
        *(1, 2),
        [({"instance": "w1"}, "w1 has a certificate for 1d 23h 59m 59s more.")],
    ),
    Case(
        "HamiWebhookOverloaded",
        {
            'hami_webhook_incomplete_bodies_total{instance="w1"}': "0x5 1x5",
            'hami_webhook_incomplete_bodies_total{instance="w2"}': "9x10",
        },
        *(5, 6),
        [({"instance": "w1"}, "w1 has refused reviews unread.")],
    ),
    Case(
        "HamiSchedulerSlow",
        {
            VERB.format("bind", "1"): "0x20",
            VERB.format("bind", "4"): "0+10x20",
            VERB.format("bind", "+Inf"): "0+10x20",
            VERB.format("filter", "1"): "0+10x20",
            VERB.format("filter", "+Inf"): "0+10x20",
        },
        *(5, 7),
        [({"verb": "bind"}, "bind takes 3.97s.")],
    ),
    Case(
        "HamiSchedulerBlind",
        {
            'hami_scheduler_watch_silence_seconds{instance="s1",kind="pods"}': "0+60x20",
            'hami_scheduler_watch_silence_seconds{instance="s1",kind="nodes"}': "120x20",
        },
        *(10, 11),
        [({"instance": "s1", "kind": "pods"}, "s1 has heard nothing of pods for 11m 0s.")],
    ),
    Case(
        "HamiInvalidObjects",
        {
            'hami_scheduler_invalid_objects_total{instance="s1"}': "0x5 1x5",
            'hami_scheduler_invalid_objects_total{instance="s2"}': "0x10",
            'hami_scheduler_undecodable_objects_total{instance="s2",kind="nodes"}': "0x5 2x5",
            'hami_scheduler_undecodable_objects_total{instance="s2",kind="pods"}': "7x10",
        },
        *(5, 6),
        [
            ({"instance": "s1"}, "The extender cannot read some nodes, pods or quotas."),
            (
                {"instance": "s2", "kind": "nodes"},
                "The extender cannot read some nodes, pods or quotas.",
            ),
        ],
    ),
    Case(
        "HamiCardUnhealthy",
        {
            'hami_card_healthy{Hostname="n1",UUID="GPU-0",gpu="0"}': "1x5 0x5",
            'hami_card_healthy{Hostname="n1",UUID="GPU-1",gpu="1"}': "1x10",
        },
        *(6, 7),
        [
            (
                {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0"},
                "Card 0 (GPU-0) of n1 gets no new pods.",
            )
        ],
    ),
    Case(
        "HamiCardMissing",
        {
            'hami_scheduler_node_cards{instance="s1",node="n1",state="missing"}': "2x10",
            'hami_scheduler_node_cards{instance="s2",node="n1",state="missing"}': "2x10",
            'hami_scheduler_node_cards{instance="s1",node="n2",state="schedulable"}': "8x10",
        },
        *(0, 1),
        [({"node": "n1"}, "Pods have 2 cards that n1 no longer publishes.")],
    ),
    Case(
        "HamiCardDuplicated",
        {'hami_scheduler_duplicated_cards{instance="s1"}': "0x5 8x10"},
        *(10, 11),
        [({"instance": "s1"}, "8 cards are published by more than one node.")],
    ),
    Case(
        "HamiPodsWait",
        {
            'hami_scheduler_longest_wait_seconds{instance="s1",reason="full"}': "3000+60x20",
            'hami_scheduler_longest_wait_seconds{instance="s2",reason="full"}': "3000+60x20",
            'hami_scheduler_longest_wait_seconds{instance="s1",reason="cordoned"}': "60x20",
        },
        *(15, 16),
        [({"reason": "full"}, "A pod has waited for cards for 1h 6m 0s: full.")],
    ),
    Case(
        "HamiStartsBlocked",
        {
            'hami_node_waiting_containers{Hostname="n1"}': "3x20",
            'hami_node_waiting_containers{Hostname="n2"}': "3x2 0x20",
        },
        *(4, 5),
        [({"Hostname": "n1"}, "3 containers of n1 do not get their cards.")],
    ),
    Case(
        "HamiLimitExceeded",
        {
            f"hami_pod_excess_memory_bytes{{{TRAIN}}}": f"{512 * MIB}x5",
            f"hami_pod_excess_memory_bytes{{{IDLE}}}": f"{64 * MIB}x5",
        },
        *(0, 1),
        [(OF_TRAIN, "ml/train holds 512MiB beyond its limits.")],
    ),
    Case(
        "HamiLimitBypassed",
        {
            'hami_node_unexplained_processes{Hostname="n1",kind="bypass"}': "2x5",
            'hami_node_unexplained_processes{Hostname="n1",kind="covered"}': "0x5",
            'hami_node_unexplained_processes{Hostname="n1",kind="foreign"}': "9x5",
        },
        *(0, 1),
        [
            (
                {"Hostname": "n1", "kind": "bypass"},
                "2 processes of n1 use a card without limits (bypass).",
            )
        ],
    ),
    Case(
        "HamiMemoryLimitReached",
        {
            f"hami_container_refusals_total{{{TRAIN}}}": "0+1x40",
            f"hami_container_memory_used_bytes{{{TRAIN}}}": f"{950 * MIB}x40",
            f"hami_container_memory_limit_bytes{{{TRAIN}}}": f"{1000 * MIB}x40",
            # Too large a request of a program that has most of its memory free.
            f"hami_container_refusals_total{{{IDLE}}}": "0+1x40",
            f"hami_container_memory_used_bytes{{{IDLE}}}": f"{100 * MIB}x40",
            f"hami_container_memory_limit_bytes{{{IDLE}}}": f"{1000 * MIB}x40",
        },
        *(10, 12),
        [(OF_TRAIN, "ml/train is refused memory at its limit.")],
    ),
    Case(
        "HamiShareMissed",
        {
            # 30 % of the card's time, and 15 % are used.
            f"hami_container_share_limit_ratio{{{TRAIN}}}": "0.3x40",
            f"hami_container_engine_seconds_total{{{TRAIN}}}": "0+9x40",
            f"hami_container_throttled_seconds_total{{{TRAIN}}}": "0+48x40",
            # As little, without waiting.
            f"hami_container_share_limit_ratio{{{IDLE}}}": "0.3x40",
            f"hami_container_engine_seconds_total{{{IDLE}}}": "0+9x40",
            f"hami_container_throttled_seconds_total{{{IDLE}}}": "0+3x40",
            # It waits, and has its share.
            f"hami_container_share_limit_ratio{{{POD.format('busy')}}}": "0.3x40",
            f"hami_container_engine_seconds_total{{{POD.format('busy')}}}": "0+18x40",
            f"hami_container_throttled_seconds_total{{{POD.format('busy')}}}": "0+42x40",
        },
        *(15, 17),
        [(OF_TRAIN, "ml/train waits for the card and gets less than its share.")],
    ),
    Case(
        "HamiQuotaNearlyUsed",
        {
            ALLOCATED.format("s1", "cards"): "19x90",
            ALLOCATED.format("s2", "cards"): "19x90",
            QUOTA.format("q", "cards"): "20x90",
            QUOTA.format("r", "cards"): "40x90",
            # Nothing of a quota of 0 is used.
            ALLOCATED.format("s1", "cores"): "0x90",
            QUOTA.format("q", "cores"): "0x90",
        },
        *(59, 61),
        [
            (
                {"namespace": "ml", "quota": "q", "resource": "cards"},
                "ml has used 95% of its cards.",
            )
        ],
    ),
    Case(
        "HamiMemoryWasted",
        {
            f"hami_container_memory_limit_bytes{{{TRAIN}}}": f"{1000 * MIB}x1500",
            f"hami_container_memory_peak_bytes{{{TRAIN}}}": f"{100 * MIB}x1500",
            # One container with more than its limit does not hide the waste of another.
            f"hami_container_memory_limit_bytes{{{IDLE}}}": f"{200 * MIB}x1500",
            f"hami_container_memory_peak_bytes{{{IDLE}}}": f"{900 * MIB}x1500",
        },
        *(24 * 60 - 1, 24 * 60 + 1),
        [({"namespace": "ml"}, "ml has never used 75% of its memory.")],
    ),
]


def test_promtool_finds_nothing_wrong() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)


def test_every_alert_has_a_case() -> None:
    assert [case.alert for case in CASES] == [alert["alert"] for alert in alerts()]


def written(case: Case) -> dict[str, Any]:
    """The case as promtool reads it."""
    (rule,) = [each for each in alerts() if each["alert"] == case.alert]
    about = {"description": rule["annotations"]["description"]}
    fires = [
        {
            "exp_labels": {**labels, **rule["labels"]},
            "exp_annotations": {**about, "summary": summary},
        }
        for labels, summary in case.fires
    ]
    return {
        "name": case.alert,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in case.series.items()
        ],
        "alert_rule_test": [
            {"alertname": case.alert, "eval_time": f"{minute}m", "exp_alerts": expected}
            for minute, expected in ((case.before, []), (case.at, fires))
        ],
    }


def test_each_alert_fires_when_it_has_to(tmp_path: Path) -> None:
    tests = {"rule_files": [str(RULES)], "tests": list(map(written, CASES))}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", file)


def of_container(metric: str, pod: str, card: str, *, instance: str = "a") -> str:
    names = f'Hostname="n1",UUID="{card}",modelName="T4",namespace="ml",pod="{pod}",container="c"'
    return f'{metric}{{{names},instance="{instance}"}}'


def check(folder: Path, series: dict[str, str], queries: dict[str, dict[str, float]]) -> None:
    """After 20 minutes, each query has these values, by the labels."""
    expected = [
        {
            "expr": query,
            "eval_time": "20m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in found.items()],
        }
        for query, found in queries.items()
    ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": expected}
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
    promtool("test", "rules", file)


def test_a_pod_costs_its_parts_of_cards(tmp_path: Path) -> None:
    """Also while an agent is replaced, when the old and the new one have series of a container."""
    part, engine = "hami_container_card_allocated_ratio", "hami_container_engine_seconds_total"
    series = {
        'node_gpu_hourly_cost{node="n1",instance="opencost",provider_id="a"}': "3x20",
        of_container(part, "one", "GPU-0"): "0.5x20",
        of_container(part, "two", "GPU-0"): "0.25x20",
        of_container(part, "two", "GPU-0", instance="b"): "0.25x20",
        of_container(part, "two", "GPU-1"): "1x20",
        # It has ended two minutes ago.
        of_container(part, "ended", "GPU-0"): "0.5x17 stale",
        of_container(engine, "two", "GPU-0"): "0+30x10 stale",
        of_container(engine, "two", "GPU-0", instance="b"): "_x11 330+30x10",
    }
    of_pod = 'modelName="T4",namespace="ml",pod="{}"}}'
    one, two = (f'Hostname="n1",{of_pod.format(pod)}' for pod in ("one", "two"))
    check(
        tmp_path,
        series,
        {
            "hami:pod_gpu_cost:hourly": {
                f"hami:pod_gpu_cost:hourly{{{one}": 1.5,
                f"hami:pod_gpu_cost:hourly{{{two}": 3.75,
            },
            "hami:pod_cards_used:sum": {f"hami:pod_cards_used:sum{{{two}": 0.5},
        },
    )


@pytest.mark.parametrize("labels", [{}, {"one": 'label_team="blue"', "two": 'label_other="x"'}])
def test_pods_without_a_team_are_in_the_bill_too(tmp_path: Path, labels: dict[str, str]) -> None:
    """Without kube-state-metrics, all are. Labels that change leave two series for a moment."""
    part = "hami_container_card_allocated_ratio"
    series = {
        of_container(part, "one", "GPU-0"): "0.5x20",
        of_container(part, "two", "GPU-0"): "0.25x20",
        **{
            f'kube_pod_labels{{namespace="ml",pod="{pod}",uid="{uid}",{label}}}': "1x20"
            for pod, label in labels.items()
            for uid in ("u1", "u2")
        },
    }
    name = 'hami:team_cards:sum{{{}modelName="T4",namespace="ml"}}'
    teams = {name.format('label_team="blue",'): 0.5, name.format(""): 0.25}
    check(tmp_path, series, {"hami:team_cards:sum": teams if labels else {name.format(""): 0.75}})
