"""Messages of a real Kubernetes, kept in `recordings/` for the tests that run without one.

`pytest tests/cluster --record` records them again. Otherwise a new message is compared with the
recording by shape: the fields that exist, and their types. So a new version that differs fails here
first.
"""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"


class Recordings:
    """Written where ``record`` is true, else compared."""

    def __init__(self, record: bool) -> None:
        self._record = record

    def keep(self, name: str, content: Any) -> None:
        """``recordings/NAME.json`` is this, or at least looks like this."""
        path, content = _FOLDER / f"{name}.json", _lasting(content)
        if self._record:
            _FOLDER.mkdir(exist_ok=True)
            path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
            return
        recorded = shape(json.loads(path.read_text()))
        now = shape(content)
        assert now == recorded, (
            f"{name}: new {sorted(now - recorded)}, gone {sorted(recorded - now)}; "
            "if Kubernetes has changed, run pytest with --record and look at the difference"
        )


def read(name: str) -> Any:
    """A recording."""
    return json.loads((_FOLDER / f"{name}.json").read_text())


def _lasting(content: Any) -> Any:
    """Without the fields that depend on how an object was created: no test reads them."""
    if isinstance(content, dict):
        return {key: _lasting(each) for key, each in content.items() if key != "managedFields"}
    return [_lasting(each) for each in content] if isinstance(content, list) else content


def shape(content: Any, at: str = "") -> set[str]:
    """The paths of all values with their JSON types; the elements of a list share one path.

    >>> sorted(shape({"a": [1, {"b": None}]}))
    ['.a[] int', '.a[].b NoneType']
    """
    if isinstance(content, dict) and content:
        return set().union(*(shape(value, f"{at}.{key}") for key, value in content.items()))
    if isinstance(content, list) and content:
        return set().union(*(shape(value, f"{at}[]") for value in content))
    return {f"{at} {type(content).__name__}"}
