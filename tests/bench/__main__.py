"""`make bench` and `make bench-*`: the numbers of docs/results, measured again.

python -m bench [SUITE...]    all, or these

The suites: calls, share, start, overview, scheduler, node, hook, machine.
"""

import argparse
import sys

from bench import calls, hook, machine, node, overview, scheduler, share, start

SUITES = {
    "calls": calls.main,
    "share": share.main,
    "start": start.main,
    "overview": overview.main,
    "scheduler": scheduler.main,
    "node": node.main,
    "hook": hook.main,
    "machine": machine.main,
}


def main() -> int:
    """The suites, one after the other: they would disturb each other."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of: {', '.join(SUITES)}")
    chosen = parser.parse_args().suites
    for name in chosen:
        if name not in SUITES:
            parser.error(f"{name}: there is no such suite; choose {', '.join(SUITES)}")
    for name in chosen or SUITES:
        SUITES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
