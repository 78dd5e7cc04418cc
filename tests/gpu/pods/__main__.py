"""A real cluster on this machine, and three pods on its card.

    python -m gpu.pods --parts DIR --card stub|gpu --built DIR --out DIR --head FILE

Needs root, and the parts that `pack` made. If something is missing, one line says what.
"""

import argparse
import json
import os
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from gpu.pods import machine
from gpu.pods.machine import Unfit


def main() -> int:
    """Runs the part in a mount namespace of its own; 1 if something failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--card", choices=["stub", "gpu"], required=True)
    for name in ("parts", "built", "out", "head"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--python-path", default="", help="PYTHONPATH of the machine's Python")
    parser.add_argument("--inside", action="store_true", help="the mount namespace is ours")
    options = parser.parse_args()
    try:
        missing = machine.missing_parts(options.parts)
        if missing:
            raise Unfit(f"{options.parts} lacks {', '.join(missing)}; `make gpu-pods` makes them")
        if not options.inside:
            machine.check_user()
            _enter()
        return _run(options)
    except Unfit as error:
        print(f"pods: this machine cannot run a node: {error}", file=sys.stderr)
        return 1


def _enter() -> None:
    """Start again in another mount namespace, whose mounts end with this process."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    python = [sys.executable, "-S", "-m", "gpu.pods"]
    os.execvp("unshare", [*unshare, *python, *sys.argv[1:], "--inside"])  # noqa: S606


def _run(options: argparse.Namespace) -> int:
    begin = time.monotonic()
    place = machine.scratch()
    programs = machine.unpack(options.parts, place)
    machine.check(place)
    about = json.loads((programs / "pods.json").read_text())
    sys.path.append(str(_unpack_wheels(programs / "wheels", about["wheels"], place / "site")))
    from cluster import binaries
    from gpu.pods import scene

    binaries.use(programs)
    return scene.run(options, place, about, begin)


def _unpack_wheels(wheels: Path, named: dict[str, Sequence[str]], site: Path) -> Path:
    for name in named[f"{sys.version_info[0]}.{sys.version_info[1]}"]:
        with zipfile.ZipFile(wheels / name) as archive:
            archive.extractall(site)
    return site


if __name__ == "__main__":
    sys.exit(main())
