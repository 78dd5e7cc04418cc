"""A sweeper: `sweeper.py RUNTIME` sweeps until its standard input is closed.

It uses NVML with its environment, so it sees the stub's cards if that says so.
"""

import sys
import threading
from pathlib import Path

from hami_py.gpu import sweep


def main() -> None:
    sweep.RETRY = 0.05
    stop = threading.Event()
    publish = sweep.writer(Path(sys.argv[1]))
    sweeper = threading.Thread(target=sweep.Sweeper(publish).run, args=[stop])
    sweeper.start()
    print("ready", flush=True)
    sys.stdin.read()
    stop.set()
    sweeper.join()


if __name__ == "__main__":
    main()
