"""The dashboards of `panels` as Grafana reads them.

https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

import json
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from cluster.charts import CHART
from cluster.monitoring.panels import Dashboard, Panel, dashboards

FOLDER = CHART / "files" / "dashboards"

_NOTE = "Made from tests/cluster/monitoring/panels.yaml by `make manifests`."
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_PAGE = 24
_HEIGHT = 8


def files() -> dict[Path, str]:
    """Each dashboard as a file."""
    return {FOLDER / f"{each.uid}.json": _json(each) for each in dashboards()}


def _json(dashboard: Dashboard) -> str:
    return json.dumps(_written(dashboard), indent=1) + "\n"


def _written(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": f"{dashboard.about} {_NOTE}",
        "tags": ["gpu", "hami-py"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": dashboard.since, "to": "now"},
        "templating": {
            "list": [
                _DATASOURCE,
                *(_variable(*each) for each in dashboard.variables.items()),
                *(_input(*each) for each in dashboard.inputs.items()),
            ]
        },
        "panels": _panels(dashboard),
    }


_DATASOURCE = {
    "name": "datasource",
    "label": "data source",
    "type": "datasource",
    "query": "prometheus",
}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _input(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "textbox",
        "query": text,
        "current": {"text": text, "value": text},
    }


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The panels from left to right and from top to bottom, each row below its title."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, panels in dashboard.rows.items():
        x, row = 0, {"type": "row", "title": title, "collapsed": False, "panels": []}
        made.append({**row, "id": len(made) + 1, "gridPos": _position(0, y, _PAGE, 1)})
        y += 1
        for panel in panels:
            if x + panel.width > _PAGE:
                x, y = 0, y + _HEIGHT
            at = _position(x, y, panel.width, _HEIGHT)
            made.append({**_panel(panel), "id": len(made) + 1, "gridPos": at})
            x += panel.width
        y += _HEIGHT
    return made


def _position(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    is_now = panel.kind != "timeseries"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            _target(ref, name, query, is_now=is_now)
            for ref, (name, query) in zip(ascii_uppercase, panel.lines.items(), strict=False)
        ],
    }


_LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"reduceOptions": _LAST, "textMode": "value_and_name", "graphMode": "none"},
    "bargauge": {"reduceOptions": _LAST, "orientation": "horizontal", "displayMode": "basic"},
}


def _target(ref: str, name: str, query: str, *, is_now: bool) -> dict[str, Any]:
    return {
        "refId": ref,
        "datasource": _SOURCE,
        "expr": query,
        "legendFormat": name,
        "instant": is_now,
        "range": not is_now,
    }
