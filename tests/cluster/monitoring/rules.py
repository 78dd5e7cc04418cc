"""The rules for Prometheus, which the chart installs as a PrometheusRule."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries
from cluster.charts import CHART

RULES = CHART / "files" / "rules.yaml"


def rules() -> list[dict[str, Any]]:
    """All rules, in their order."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """The rules that are alerts."""
    return [rule for rule in rules() if "alert" in rule]


def promtool(*arguments: str | Path) -> str:
    """What Prometheus' own tool says; it has to succeed."""
    command = [str(binaries.folder("prometheus") / "promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
