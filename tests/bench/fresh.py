"""`make check-fresh`: what the README's two commands take on a machine that has nothing of ours.

Clones the last commit and runs `make demo` and `make test` with empty caches. As root this happens
in an empty Debian that mmdebstrap makes: with the packages that the README names, and with this
machine's Rust, name servers and certificates. Writes docs/results/fresh.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.results import ROOT, Row, write

COMMAND = "make check-fresh"

DEBIAN = "bookworm"
#: What the README asks for, and what gets its sources.
PACKAGES = ("gcc", "libc6-dev", "make", "python3", "python3-venv", "git", "ca-certificates")

#: Seconds and bytes that they may take on two cores.
DEMO_S, DEMO_BYTES, TEST_S, PYTEST_S = 180, 400_000_000, 900, 480

#: Ends a command after an hour.
LIMIT = ("timeout", "--kill-after=10", "3600")

#: Variables that say how this machine reaches others.
NETWORK = re.compile(r"(?i)(https?|no|all)_proxy|\w+_CERT|SSL_CERT_\w+|GOPROXY")

#: Makes a folder the root of the file system, with the parts of this machine that are no files.
ENTER = """
set -eu
root=$1; shift
mount --rbind "$root" "$root"
for each in /dev /proc /sys /etc/ssl /etc/hosts /etc/resolv.conf {toolchain}; do
    [ -d "$each" ] && mkdir -p "$root$each" || touch "$root$each"
    mount --rbind "$each" "$root$each"
done
cd "$root"
pivot_root . mnt
umount -l /mnt
cd /home/hami-py
exec "$@"
"""


def main() -> int:
    """Run both commands in a place that has nothing, and write what they took."""
    with tempfile.TemporaryDirectory(prefix="hami-fresh-") as folder:
        root = Path(folder) / "root"
        prefix, home = _debian(root) if os.geteuid() == 0 else _caches(root)
        source = root / home.relative_to("/") / "hami-py" if prefix else root / "hami-py"
        subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True)
        at = None if prefix else source
        env = _environment(home)
        demo = _timed([*prefix, "make", "demo"], env, at)
        test = _timed([*prefix, "make", "test"], env, at)
    where = f"in an empty Debian ({DEBIAN})" if prefix else "with empty caches"
    # A line of its own: cargo prints similar ones.
    pytest = re.search(r"(?m)^=*\s*(\d+) passed.* in ([\d.]+)s", test.output)
    passed, seconds = (pytest[1], float(pytest[2])) if pytest else ("no", 0.0)
    rows = [
        _row("make demo", demo.seconds, "s", DEMO_S, where),
        _row("make demo, received", demo.received / 1e6, "MB", DEMO_BYTES / 1e6, "all packages"),
        _row("make test", test.seconds, "s", TEST_S, "after it"),
        _row("make test, received", test.received / 1e6, "MB", None, "all packages"),
        _row("make test, pytest alone", seconds, "s", PYTEST_S, f"{passed} tests in two processes"),
    ]
    if demo.code or test.code:
        print("not written: a command has failed", file=sys.stderr)
        return 1
    write("fresh", "What the first two commands take on a fresh machine", rows)
    return 0


def _debian(root: Path) -> tuple[list[str | Path], Path]:
    """An empty Debian: the command that runs another one in it, and its home.

    Other users may enter this home, as the tests with two users need.
    """
    packages = ",".join(PACKAGES)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", DEBIAN]
    subprocess.run([*command, root], check=True)
    toolchain = " ".join(str(each) for each in _toolchain())
    enter = ENTER.format(toolchain=toolchain)
    unshare = ["unshare", "--mount", "--propagation", "slave"]
    return [*unshare, "bash", "-c", enter, "enter", root], Path("/home")


def _caches(root: Path) -> tuple[list[str | Path], Path]:
    """Nothing but an empty home."""
    root.mkdir()
    return [], root


def _toolchain() -> tuple[Path, ...]:
    """Where Rust is: rustup's toolchains, and the folder of its programs."""
    cargo = shutil.which("cargo")
    assert cargo is not None, "missing: cargo; see https://rustup.rs"
    home = Path(os.environ.get("RUSTUP_HOME") or Path.home() / ".rustup")
    return (home, Path(cargo).parent) if home.is_dir() else (Path(cargo).parent,)


def _environment(home: Path) -> dict[str, str]:
    toolchain = _toolchain()
    network = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    path = f"{toolchain[-1]}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    rustup = {"RUSTUP_HOME": str(toolchain[0])} if len(toolchain) > 1 else {}
    cargo = {"CARGO_HOME": str(home / "cargo")}
    return {**network, **rustup, **cargo, "PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8"}


class _Timed:
    """A command that has run, with what the machine has received meanwhile."""

    def __init__(self, code: int, output: str, seconds: float, received: int) -> None:
        self.code, self.output, self.seconds, self.received = code, output, seconds, received


def _timed(command: list[str | Path], env: Mapping[str, str], at: Path | None) -> _Timed:
    began, had = time.monotonic(), _received()
    lines: list[str] = []
    with subprocess.Popen(
        [*LIMIT, *command],
        cwd=at,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    code = process.returncode
    return _Timed(code, "".join(lines), time.monotonic() - began, _received() - had)


def _received() -> int:
    """Bytes that this machine's network interfaces have received, without loopback."""
    lines = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    return sum(int(values.split()[0]) for name, values in lines if name.strip() != "lo")


def _row(name: str, value: float, unit: str, target: float | None, note: str) -> Row:
    return Row(name, round(value, 1), unit, None, 1, target, "lower", COMMAND, note)


if __name__ == "__main__":
    sys.exit(main())
