"""What a shared library says of itself, read by binutils."""

import re
import subprocess
from pathlib import Path

_DEADLINE = 30.0


def readelf(flag: str, path: Path) -> str:
    """`readelf FLAG PATH`."""
    command = ["readelf", "--wide", flag, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_DEADLINE
    ).stdout


def exported(path: Path) -> set[str]:
    """The names that other objects can bind to."""
    found = set()
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            binding, section, name = fields[4], fields[6], fields[7]
            if binding != "LOCAL" and section != "UND":
                found.add(name.split("@")[0])
    return found


def needed(path: Path) -> set[str]:
    """The libraries that must be there for this one to load."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", path)))
