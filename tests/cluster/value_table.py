"""The page with the chart's values: docs/chart-values.md, from values.yaml and its schema."""

import json
import re
from collections.abc import Iterator
from typing import Any

from cluster.charts import CHART, values

_HEAD = """# Values of the chart

Made from `deploy/chart/values.yaml` by `make manifests`. Set a value with `--set PATH=VALUE`, or in
a file with `--values FILE`. Helm refuses an unknown value, and a value of a wrong type, before it
changes anything. A value can be `null`: then it is not set, and what needs one has its default.

| value | default | meaning |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    comments = dict(_comments((CHART / "values.yaml").read_text()))
    rows = [
        f"| `{path}` | {_default(default)} | {comments.get(path, '')} |"
        for path, default in leaves(schema, values())
    ]
    return _HEAD + "\n".join(rows) + "\n"


def leaves(schema: dict[str, Any], given: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths of the values that have no values of ours below them, and their defaults."""
    if given and isinstance(given, dict) and "properties" in schema:
        for name, each in given.items():
            yield from leaves(schema["properties"][name], each, f"{path}.{name}".lstrip("."))
    else:
        yield path, given


def _comments(text: str) -> Iterator[tuple[str, str]]:
    """The comments right above each key, by its path."""
    path: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        comment = re.match(r" *# (.*)", line)
        key = re.match(r"( *)(\w+):", line)
        if comment:
            said.append(comment[1])
            continue
        if key:
            path = [*path[: len(key[1]) // 2], key[2]]
            yield ".".join(path), " ".join(said)
        said = []


def _default(value: Any) -> str:
    if value in ("", {}, []):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
