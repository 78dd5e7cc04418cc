"""Checks of the dynamic loader: the C library, and other libraries that are preloaded."""

import sys
from pathlib import Path

from hami_py import slices
from hami_py.cli.doctor.trial import Found
from hami_py.config import LD_PRELOAD, Settings
from hami_py.errors import UnsupportedPlatform
from hami_py.slices import elf

OLDEST_GLIBC = (2, 17)
"""The version that the preload library is linked against."""

SYSTEM_PRELOAD = Path("/etc/ld.so.preload")
"""Libraries that the loader loads into every program, after those of LD_PRELOAD."""


def c_library(_settings: Settings) -> str:
    """Check the C library of this Python, which should be the machine's.

    Raises:
        UnsupportedPlatform: it is not glibc, or too old.
    """
    program = elf.read(Path(sys.executable))
    if program and program.interpreter and is_musl(program.interpreter):
        fix = "use a glibc system or image, e.g. Debian or Ubuntu instead of Alpine"
        raise UnsupportedPlatform("C library", f"it is musl ({program.interpreter})", fix)
    return judge_glibc(slices.require_glibc())


def is_musl(interpreter: str) -> bool:
    """Whether a loader is musl, which is called ``/lib/ld-musl-<machine>.so.1``."""
    return Path(interpreter).name.startswith("ld-musl-")


def judge_glibc(version: str) -> str:
    """Check that a version of glibc, e.g. ``2.36``, is new enough.

    Raises:
        UnsupportedPlatform: it is too old.
    """
    oldest = ".".join(map(str, OLDEST_GLIBC))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_GLIBC:
        fix = f"use a system or image with glibc {oldest} or newer"
        raise UnsupportedPlatform("C library", f"glibc {version} is older than {oldest}", fix)
    return f"glibc {version} ({oldest} or newer is required)"


def surroundings(settings: Settings) -> Found:
    """List other libraries that are loaded into programs, before or after ours.

    They may hook the same symbols. The tests of symbol lookups show whether a limit holds with
    them; this check names them, so that the cause of a failed test is known.
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
        found.append(f"missing: {', '.join(missing)}")
        fixes.append(
            f"remove the missing files from {LD_PRELOAD}: the loader warns in every program"
        )
    try:
        everywhere = SYSTEM_PRELOAD.read_text().split()
    except OSError:
        everywhere = []
    if everywhere:
        found.append(f"{SYSTEM_PRELOAD}: {', '.join(everywhere)}, after ours")
    audit = settings.environment.get("LD_AUDIT")
    if audit:
        found.append(f"LD_AUDIT: {audit}")
        fixes.append("unset LD_AUDIT if a lookup fails: an audit library may bypass ours")
    if not found:
        return f"only {settings.library.name} is preloaded"
    detail = "; ".join(found)
    return (detail, "; ".join(fixes)) if fixes else detail
