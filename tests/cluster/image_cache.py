"""What images are made of, built once and kept per user:
`${XDG_CACHE_HOME:-~/.cache}/hami-py/images/<name>-<key>/`.

The key is a digest of all that determines the content.
"""

import fcntl
import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cluster import binaries


def cache() -> Path:
    """Where entries are kept, for all clones of this user."""
    return binaries.cache().with_name("images")


def place(name: str, *recipe: object) -> Path:
    """Where the entry of this recipe is, or will be."""
    return cache() / f"{name}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def ensure(target: Path, fill: Callable[[Path], None], count: int) -> None:
    """If it is not there, fill a folder that becomes it; the newest ``count`` of its name stay."""
    if target.is_dir():
        return
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        # A second process waits and then finds it built.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return
        # Of builds that were killed.
        _remove(cache().glob(".*"))
        begin = time.monotonic()
        # Beside the target, so that a rename makes it whole or not at all.
        building = Path(tempfile.mkdtemp(prefix=".", dir=cache()))
        try:
            fill(building)
            building.chmod(0o755)
            building.rename(target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        print(f"built {target} in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        entries = [each for each in cache().iterdir() if each.name[:-17] == target.name[:-17]]
        _remove(sorted(entries, key=lambda each: -each.stat().st_mtime)[count:])


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder)
