"""`make bench`: the numbers of docs/results, measured again."""

import sys

from bench import calls


def main() -> int:
    """Every suite, one after the other: they would disturb each other."""
    calls.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
