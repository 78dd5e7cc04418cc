"""A test that takes more than five seconds says in its docstring why it is worth them."""

import ast
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The last results of `make check-times`.
RECORD = ROOT / "docs" / "results" / "check.json"

LONG_S = 5.0


def functions(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a file of tests that is still there, by name."""
    path = ROOT / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_long_test_has_a_docstring() -> None:
    rows = json.loads(RECORD.read_text())["rows"] if RECORD.is_file() else []
    long = {row["name"].split("[")[0] for row in rows if row["value"] > LONG_S}
    silent = []
    for name in sorted(each for each in long if "::" in each and not each.endswith("(fixtures)")):
        file, function = name.split("::")
        found = functions(file).get(function)
        if found is not None and ast.get_docstring(found) is None:
            silent.append(name)
    assert silent == []
