"""docs/metrics.md: all metrics from the code, and all rules from their file."""

from collections.abc import Iterator
from typing import Any

from cluster.monitoring.pages import Page, pages
from cluster.monitoring.rules import rules

_HEAD = """# Metrics and rules

Made from the code and from `deploy/chart/files/rules.yaml` by `make manifests`.
[Operate](operate.md#metrics) says how to scrape the metrics and how to use the rules.

Memory is in bytes, times are in seconds, and a `_ratio` is a part of 1. Under HAMi's names
most of them are 0 to 100, as in HAMi.
"""

_ALERTS = """
## Alerts

An alert fires when its query has returned a result for the time in the column *after*.

| alert | severity | after | query | meaning |
|---|---|---|---|---|
"""

_RECORDED = """
## Recorded queries

| name | query |
|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *map(_metrics, pages()), _ALERTS, *_alerts(), _RECORDED, *_recorded()]
    return "".join(parts)


def _metrics(page: Page) -> str:
    lines = [
        f"\n## {page.part}\n\nPort {page.port}, `{page.path}`.\n",
        "| name | type | labels | meaning |\n|---|---|---|---|",
    ]
    for family in page.families():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {_cell(family.text)} |")
    return "\n".join(lines) + "\n"


def _alerts() -> Iterator[str]:
    for rule in rules():
        if "alert" in rule:
            severity, about = rule["labels"]["severity"], rule["annotations"]["description"]
            when = f"{severity} | {rule.get('for', 'at once')}"
            yield f"| `{rule['alert']}` | {when} | `{_query(rule)}` | {_cell(about)} |\n"


def _recorded() -> Iterator[str]:
    for rule in rules():
        if "record" in rule:
            yield f"| `{rule['record']}` | `{_query(rule)}` |\n"


def _query(rule: dict[str, Any]) -> str:
    return _cell(" ".join(rule["expr"].split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
