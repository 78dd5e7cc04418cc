"""Compiles the small C programs of the tests.

A program is one file; its first line has the build flags: `// build: -lcuda`. `-lcuda` is the
stub's, and NVIDIA's headers are not used. `programs/` here has the files that several folders use:
the driver's declarations, and the console.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.artifacts import Artifacts

_COMPILE_DEADLINE = 60.0

SHARED = Path(__file__).parent / "programs"


class Programs:
    """The programs of one folder and the shared ones.

    Each is compiled once, also where several processes test.
    """

    def __init__(self, sources: Path, output: Path, artifacts: Artifacts) -> None:
        self._sources = sources
        self._output = output
        self._artifacts = artifacts
        self._built: dict[tuple[str, ...], Path] = {}

    def __call__(self, name: str, *more_flags: str, compiler: str = "gcc") -> Path:
        """The program, or library, of this name, built."""
        key = (name, compiler, *more_flags)
        if key not in self._built:
            self._built[key] = self._build(name, more_flags, compiler)
        return self._built[key]

    def _build(self, name: str, more_flags: Sequence[str], compiler: str) -> Path:
        own, shared = (folder / f"{name}.c" for folder in (self._sources, SHARED))
        source = own if own.exists() else shared
        first_line, _ = source.read_text().split("\n", 1)
        prefix, flags = first_line[:9], first_line[9:].split()
        assert prefix == "// build:", f"{source}: the first line must have the build flags"
        key = repr((source, compiler, *more_flags)).encode()
        target = self._output / hashlib.sha256(key).hexdigest()[:16] / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                self._compile(source, target, [*flags, *more_flags], compiler)
        return target

    def _compile(self, source: Path, target: Path, flags: Sequence[str], compiler: str) -> None:
        unfinished = target.with_suffix(".unfinished")
        command = [
            compiler,
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-o{unfinished}",
            str(source),
            f"-I{SHARED}",
            f"-L{self._artifacts.stub_dir}",
            *flags,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_DEADLINE, check=False
        )
        assert done.returncode == 0, f"{source.stem} does not compile:\n{done.stderr}"
        unfinished.rename(target)
