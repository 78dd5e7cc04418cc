"""Renders what is derived: the chart's version, from the chart the manifests for kustomize,
the page of metrics and rules, and the dashboards.

    PYTHONPATH=tests python -m cluster.manifests            # writes them (`make manifests`)
    PYTHONPATH=tests python -m cluster.manifests --check    # fails if they differ (`make lint`)

A template becomes the manifest with the same path. kustomize makes the two ConfigMaps itself, so
that an edited file gets another name and replaces the pods: their contents become files.
"""

import re
import sys
from pathlib import Path

import yaml

from cluster import binaries
from cluster.binaries import CannotBuild
from cluster.charts import CHART, template
from cluster.deployed import DEPLOY
from cluster.monitoring import grafana, reference
from hami_py._native import VERSION
from support.artifacts import ROOT

#: Helm installs from a checkout, too, so that the version stands there.
_CHART = CHART / "Chart.yaml"

_NOTE = "# Made from deploy/chart by `make manifests`.\n"

#: The ConfigMaps of these templates, and the folder of their contents.
_CONFIGURATIONS = {"settings.yaml": "", "scheduler/configuration.yaml": "scheduler/"}

#: As templates/_helpers.tpl writes it: a chart has no other way to replace the pods.
_CHECKSUM = re.compile(r"^ +annotations:\n +checksum/settings: .*\n", re.MULTILINE)

_METRICS = ROOT / "docs" / "metrics.md"


def wanted() -> dict[Path, str]:
    """The files as they have to be."""
    made = {DEPLOY / path: text for path, text in _manifests().items()}
    made |= {_CHART: _chart()}
    return made | grafana.files() | {_METRICS: reference.page()}


def _chart() -> str:
    """It, with the version of Cargo.toml."""
    lines = re.compile(r"^((?:appVersion|version): ).*$", re.MULTILINE)
    return lines.sub(rf"\g<1>{VERSION}", _CHART.read_text())


def _manifests() -> dict[str, str]:
    """The manifests by their paths below deploy/."""
    files: dict[str, str] = {}
    for path, document in _documents():
        if path in _CONFIGURATIONS:
            for name, content in yaml.safe_load(document)["data"].items():
                files[_CONFIGURATIONS[path] + name] = _NOTE + content
        else:
            before = f"{files[path]}---\n" if path in files else _NOTE
            files[path] = before + _CHECKSUM.sub("", document)
    for path, document in _documents("--set", "cleanup=true"):
        if path == "node/cleanup.yaml":
            files["cleanup/daemonset.yaml"] = _NOTE + document
    return files


def _documents(*arguments: str) -> list[tuple[str, str]]:
    """Each document with the path of its template."""
    text = template("--no-hooks", *arguments)
    parts = re.split(r"^---\n# Source: [^/\n]+/templates/(\S+)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], (f"{each.strip()}\n" for each in parts[2::2]), strict=True))


def _found() -> dict[Path, str]:
    """The files that are there, also those whose template is no more."""
    texts = {path: path.read_text() for path in DEPLOY.rglob("*.yaml")}
    made = {path: text for path, text in texts.items() if text.startswith(_NOTE)}
    others = [_CHART, _METRICS, *grafana.FOLDER.glob("*.json")]
    return made | {path: path.read_text() for path in others if path.exists()}


def main(arguments: list[str]) -> int:
    """Write the manifests or, with --check, name those that differ."""
    try:
        binaries.ensure("helm")
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    if arguments != ["--check"]:
        # The templates read it.
        _CHART.write_text(_chart())
    files, found = wanted(), _found()
    differing = sorted(path for path in {*files, *found} if files.get(path) != found.get(path))
    if arguments == ["--check"]:
        for path in differing:
            name = path.relative_to(ROOT)
            print(f"{name} differs from what it is made of; run: make manifests", file=sys.stderr)
        return 1 if differing else 0
    for path in differing:
        if path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(files[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
