"""Draws the pictures of results that were measured on another machine, from their committed rows.

python -m bench.pictures
"""

import json

from bench import plots
from bench.results import RESULTS, Row

INTERACTIVE = "h100/gpu-interactive"


def main() -> None:
    """Draws all of them."""
    rows = json.loads((RESULTS / f"{INTERACTIVE}.json").read_text())["rows"]
    plots.beside_a_trainer([Row(**row) for row in rows], RESULTS / f"{INTERACTIVE}.svg")


if __name__ == "__main__":
    main()
