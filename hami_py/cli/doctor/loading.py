"""What loads programs here: the C library, and what else is loaded into all of them."""

import sys
from pathlib import Path

from hami_py import slices
from hami_py.cli.doctor import elf
from hami_py.cli.doctor.trial import Found
from hami_py.config import LD_PRELOAD, Settings
from hami_py.errors import UnsupportedPlatform

OLDEST_GLIBC = (2, 17)
"""What the preload library is linked against."""

SYSTEM_PRELOAD = Path("/etc/ld.so.preload")
"""Libraries that the loader puts into every program of the machine, after those of LD_PRELOAD."""


def c_library(_settings: Settings) -> str:
    """The C library of this Python, which should be the machine's.

    Raises:
        UnsupportedPlatform: it is not glibc, or too old.
    """
    program = elf.read(Path(sys.executable))
    if program and program.interpreter and is_musl(program.interpreter):
        fix = "use a glibc system or image, e.g. Debian or Ubuntu instead of Alpine"
        raise UnsupportedPlatform("C library", f"it is musl ({program.interpreter})", fix)
    return judge_glibc(slices.require_glibc())


def is_musl(interpreter: str) -> bool:
    """The loader ``/lib/ld-musl-<machine>.so.1`` is musl itself."""
    return Path(interpreter).name.startswith("ld-musl-")


def judge_glibc(version: str) -> str:
    """Whether this glibc, e.g. ``2.36``, is new enough.

    Raises:
        UnsupportedPlatform: it is too old.
    """
    oldest = ".".join(map(str, OLDEST_GLIBC))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_GLIBC:
        fix = f"use a system or image with glibc {oldest} or newer"
        raise UnsupportedPlatform("C library", f"glibc {version} is older than {oldest}", fix)
    return f"glibc {version}; {oldest} or newer is needed"


def surroundings(settings: Settings) -> Found:
    """What else is loaded into programs here, before or after our library.

    Others may hook what we hook. Whether a limit holds with them is tried on every road; here they
    are named, so that whoever sees a road fail knows where to look.
    """
    entries = settings.environment.get(LD_PRELOAD, "").replace(":", " ").split()
    ours = [entry for entry in entries if Path(entry).name == settings.library.name]
    others = [entry for entry in entries if entry not in ours]
    found: list[str] = []
    fixes: list[str] = []
    if others:
        found.append(f"{LD_PRELOAD}: {settings.library.name}, then {', '.join(others)}")
    missing = [entry for entry in entries if "/" in entry and not Path(entry).exists()]
    if missing:
        found.append(f"not there: {', '.join(missing)}")
        fixes.append(f"take what is not there out of {LD_PRELOAD}: every program complains")
    try:
        everywhere = SYSTEM_PRELOAD.read_text().split()
    except OSError:
        everywhere = []
    if everywhere:
        found.append(f"{SYSTEM_PRELOAD}: {', '.join(everywhere)}, after ours")
    audit = settings.environment.get("LD_AUDIT")
    if audit:
        found.append(f"LD_AUDIT: {audit}")
        fixes.append("unset LD_AUDIT if a road fails: what it names may bind programs past us")
    if not found:
        return f"only {settings.library.name} is preloaded"
    detail = "; ".join(found)
    return (detail, "; ".join(fixes)) if fixes else detail
