"""The dashboards for Grafana, without a cluster: their queries and where their panels are."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.monitoring import dcgm, evaluation, grafana, pages
from cluster.monitoring.rules import promtool, rules

pytestmark = [
    pytest.mark.programs("prometheus"),
    pytest.mark.usefixtures("programs"),
]

MADE = {path.stem: json.loads(text) for path, text in grafana.files().items()}


def test_every_query_is_one_of_prometheus(tmp_path: Path) -> None:
    """promtool reads them as the queries of rules."""
    queries = evaluation.panel_queries().values()
    rules = [{"record": f"line:{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", "--lint=none", file)


def test_every_query_uses_metrics_that_the_code_the_rules_or_the_exporter_have() -> None:
    known = pages.names() | set(re.findall(r"^DCGM\w+", dcgm.page(["GPU-0"]), re.M))
    known |= {rule["record"] for rule in rules() if "record" in rule}
    for name, query in evaluation.panel_queries().items():
        asked = set(re.findall(r"\b(?:hami|DCGM)[_:][\w:]+", query))
        assert asked
        assert asked <= known, name


@pytest.mark.parametrize("name", MADE)
def test_no_panel_covers_another(name: str) -> None:
    panels = MADE[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
        # Each line has a letter of its own.
        targets = panel.get("targets", [])
        assert len({target["refId"] for target in targets}) == len(targets)
    for one, other in combinations(panels, 2):
        assert not covers(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def covers(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def test_every_choice_of_a_query_is_at_the_top_of_its_dashboard() -> None:
    for dashboard in MADE.values():
        choices = {each["name"] for each in dashboard["templating"]["list"]}
        asked = set(re.findall(r"\$(\w+)", json.dumps(dashboard["panels"]).replace("${", "$")))
        assert asked - {"__rate_interval", "__range"} <= choices
        assert choices <= asked | {"datasource"}
