"""Health in a program: `health.py QUIET REOPEN` prints `unhealthy()` as JSON whenever it changes.

A line of standard input stops it; then it prints "stopped", and waits for the end of its input.
Only so can a test run it on a stub of its own, and let NVML hang in it.
"""

import json
import sys

from hami_py.gpu import health


def main() -> None:
    health.INTERVAL, health.TICK = 0.05, 0.05
    health.REOPEN = float(sys.argv[2])
    watched = health.Health(
        lambda: print(json.dumps(watched.unhealthy(), sort_keys=True), flush=True),
        quiet=float(sys.argv[1]),
    )
    print("ready", flush=True)
    watched.start()
    sys.stdin.readline()
    watched.stop()
    print("stopped", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
