"""The one table of what the dashboards show, in panels.yaml, which says what its fields mean."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import yaml

Kind = Literal["timeseries", "stat", "bargauge"]
"""Lines over time; the values now as numbers; the values now as bars."""


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One picture."""

    title: str
    unit: str
    lines: dict[str, str]
    about: str = ""
    kind: Kind = "timeseries"
    width: int = 12


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page of rows of panels.

    ``variables`` are queries for the values of a choice, and ``inputs`` texts to type, with their
    defaults. ``since`` is the beginning of the time that it shows at first.
    """

    uid: str
    title: str
    about: str
    rows: dict[str, list[Panel]]
    variables: dict[str, str] = {}
    inputs: dict[str, str] = {}
    since: str = "now-1h"

    def panels(self) -> Iterator[Panel]:
        """All panels, in their order."""
        for row in self.rows.values():
            yield from row


def dashboards() -> list[Dashboard]:
    """All of them."""
    table = yaml.safe_load(Path(__file__).with_name("panels.yaml").read_text())
    return msgspec.convert(table, list[Dashboard])
