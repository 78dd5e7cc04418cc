"""Every query of the dashboards and the rules, asked of a Prometheus that scrapes a cluster."""

from collections.abc import Iterator

from cluster.monitoring.panels import dashboards
from cluster.monitoring.prometheus import Prometheus
from cluster.monitoring.rules import alerts, rules

#: What Grafana replaces, with all values of each choice, as by default.
_CHOICES = {
    "$__rate_interval": "1m",
    # Grafana has minutes here, which are long for a test.
    "$__range:1m": "1m:2s",
    **dict.fromkeys(("$node", "$namespace", "$pod", "$model"), ".*"),
    "$price": "2",
}

#: Selectors that have a series only during a fault.
_OF_FAULTS = {
    '{__name__="hami_pod_excess_memory_bytes"}',
    '{state="missing", __name__="hami_scheduler_node_cards"}',
}


def panel_queries() -> dict[str, str]:
    """The queries of all panels, by the titles of dashboard and panel and the name of the line."""
    return {
        f"{dashboard.title}, {panel.title}: {name}": chosen(query)
        for dashboard in dashboards()
        for panel in dashboard.panels()
        for name, query in panel.lines.items()
    }


def chosen(query: str) -> str:
    """The query as Grafana sends it."""
    for name, value in _CHOICES.items():
        query = query.replace(name, value)
    return query


def problems(prometheus: Prometheus) -> list[str]:
    """The problems now: queries with an unknown metric or without an answer, and failed rules."""
    found = [*_of_panels(prometheus), *_of_records(prometheus), *_of_alerts(prometheus)]
    for name, rule in prometheus.alerts().items():
        if rule["health"] != "ok":
            found.append(f"{name}: {rule['health']} {rule.get('lastError')}")
    return found


def _of_panels(prometheus: Prometheus) -> Iterator[str]:
    for name, query in panel_queries().items():
        for metric in prometheus.unknown(query):
            yield f"{name}: nothing has {metric}"
        if not prometheus.ask(query):
            yield f"{name} is empty: {query}"


def _of_records(prometheus: Prometheus) -> Iterator[str]:
    for rule in rules():
        # OpenCost is not there; test_rules.py evaluates what needs its price.
        is_ours = "record" in rule and "node_gpu_hourly_cost" not in rule["expr"]
        if is_ours and not prometheus.ask(rule["record"]):
            yield f"{rule['record']} is empty"


def _of_alerts(prometheus: Prometheus) -> Iterator[str]:
    """An alert has no result while nothing is wrong, so check that each metric it reads exists."""
    for rule in alerts():
        for metric in prometheus.unknown(rule["expr"]):
            yield f"{rule['alert']}: nothing has {metric}"
        for _, selector in prometheus.selectors(rule["expr"]):
            if selector not in _OF_FAULTS and not prometheus.ask(selector):
                yield f"{rule['alert']} looks at nothing: {selector}"
