"""Several copies of one client at once, as a job that runs a worker per process.

    python together.py COUNT PROGRAM ARGS...

With *hold* it prints "holding" when all copies do, and ends them when its own input ends. It prints
one JSON list on standard output: the result of each copy, with the seconds of engine time that
their slice was billed until all had ended.
"""

import json
import subprocess
import sys

import hami_py


def main() -> int:
    """0 if all of them ended well."""
    count, command = int(sys.argv[1]), [sys.executable, *sys.argv[2:]]
    copies = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    outputs = [copy.stdout for copy in copies if copy.stdout]
    if "hold" in command:
        first_lines = {output.readline() for output in outputs}
        print(*first_lines, end="", flush=True)
        sys.stdin.read()
    reports = [json.loads(copy.communicate()[0]) for copy in copies]
    billed = sum(card.engine_time for card in hami_py.usage().cards)
    print(json.dumps([{**report, "billed": billed} for report in reports]))
    return max(copy.returncode for copy in copies)


if __name__ == "__main__":
    sys.exit(main())
