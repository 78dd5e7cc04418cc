"""`make gpu-kit`: everything that a machine with a card needs to test us, in one folder.

Such a machine may have no network, no compiler, no pytest and no pip. So the folder holds our
wheel, the wheels it needs for every Python from 3.10, the programs compiled against an old glibc,
the stub and the tests; `run.py` in it needs a Python and nothing else.

    python -m gpu.kit --uv UV --pip PIP --cache DIR --output DIR
"""

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from support import artifacts
from support.artifacts import ROOT
from support.programs import SHARED

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TEST_TOOLS = ("pytest", "pytest-timeout")

#: The largest size of the folder in bytes; it may have to travel by any means.
LARGEST = 40 * 10**6

#: Compiled programs and their sources; `-lcuda` is the stub's, found as libcuda.so.1 anywhere.
PROGRAMS = {
    "console": (Path("tests/support/programs/console.c"), ["-ldl", "-pthread"]),
    "addresses": (Path("tests/gpu/programs/addresses.c"), ["-ldl"]),
    "load": (Path("tests/gpu/programs/load.c"), ["-ldl", "-lm"]),
    "calls": (Path("tests/bench/calls.c"), ["-lcuda"]),
}

#: Folders and files that the tests read, at the same places as in the repository.
SOURCES = (
    "tests/gpu",
    "tests/support",
    "tests/bench",
    # The part `pods` needs these.
    "tests/cluster",
    "deploy",
    "interposer/table/src/lib.rs",
    "interposer/sys/src/versions.rs",
    "LICENSE",
)

_DEADLINE = 600.0


def main() -> int:
    """Builds the folder again and prints its size."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args()
    fetched = fetch(options.uv, options.pip, options.cache, [*_dependencies(), *TEST_TOOLS])
    kit: Path = options.output
    shutil.rmtree(kit, ignore_errors=True)
    (kit / "wheels").mkdir(parents=True)
    ours = _our_wheel()
    shutil.copy(ours, kit / "wheels")
    wheels = {}
    for python, paths in fetched.items():
        for path in paths:
            shutil.copy(path, kit / "wheels")
        wheels[python] = sorted([ours.name, *(path.name for path in paths)])
    _compile(kit / "programs")
    # Without links, because some ways to copy a folder lose them.
    older_drivers = shutil.ignore_patterns("[0-9]*")
    shutil.copytree(artifacts.find().stub_dir, kit / "stub", ignore=older_drivers)
    # Four fifths of the stub are line tables, which the kit does not need.
    stub = sorted(map(str, (kit / "stub").iterdir()))
    subprocess.run(["strip", "--strip-debug", *stub], check=True)
    for source in SOURCES:
        _copy(source, kit)
    shutil.move(kit / "tests" / "gpu" / "run.py", kit / "run.py")
    about = {"commit": _commit(), "machine": platform.machine(), "wheels": wheels}
    (kit / "kit.json").write_text(json.dumps(about, indent=2) + "\n")
    return _weigh(kit)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The tools that fetch wheels, and the folders."""
    parser.add_argument("--uv", required=True, help="uv's command, which reads uv.lock")
    parser.add_argument("--pip", required=True, help="pip's command, which can fetch for others")
    parser.add_argument("--cache", type=Path, required=True, help="wheels that were fetched before")
    parser.add_argument("--output", type=Path, required=True)


def fetch(uv: str, pip: str, cache: Path, packages: Sequence[str]) -> dict[str, list[Path]]:
    """The wheels of these packages for each Python, with the versions and hashes of uv.lock."""
    # What determines the wheels: the lock, the packages, and this file.
    inputs = [ROOT / "uv.lock", Path(__file__)]
    named = f"{packages} {platform.machine()}".encode()
    decisive = b"".join(path.read_bytes() for path in inputs) + named
    folder = cache / hashlib.sha256(decisive).hexdigest()[:16]
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        locked = _output([uv, *_EXPORT])
        hashed = dict(_blocks(locked))
        for python in PYTHONS:
            _fetch_for(python, [uv, pip], hashed, packages, folder / python)
        complete.touch()
    return {python: sorted((folder / python).glob("*.whl")) for python in PYTHONS}


_EXPORT = (
    "export",
    "--quiet",
    "--frozen",
    "--no-emit-project",
    "--no-header",
    "--no-annotate",
    # What a cluster's code needs is in this extra.
    *("--extra", "kubernetes"),
)


def _blocks(exported: str) -> Iterator[tuple[str, str]]:
    """`name==version` and the lines with its hashes, without the marker that pip would evaluate."""
    for block in re.split(r"\n(?=\S)", exported.strip()):
        first, _, hashes = block.partition("\n")
        pin = first.split(";")[0].rstrip("\\ ")
        yield pin, f"{pin} \\\n{hashes}\n"


def _fetch_for(
    python: str,
    tools: Sequence[str],
    hashed: dict[str, str],
    packages: Sequence[str],
    folder: Path,
) -> None:
    uv, pip = tools
    folder.mkdir()
    pins = folder / "pins.txt"
    pins.write_text(_output([uv, *_EXPORT, "--no-hashes"]))
    machine = platform.machine()
    needed = _output(
        [
            *(uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"),
            *("--constraint", str(pins), "--only-binary", ":all:", "--python-version", python),
            *("--python-platform", f"{machine}-manylinux2014"),
        ],
        "\n".join(packages),
    ).split()
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(hashed[pin] for pin in needed))
    tag = "cp" + python.replace(".", "")
    _output(
        [
            *(pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--requirement", str(requirements), "--dest", str(folder)),
            *("--only-binary", ":all:", "--python-version", python, "--implementation", "cp"),
            *("--abi", tag, "--abi", "abi3", "--abi", "none"),
            *("--platform", f"manylinux2014_{machine}"),
            *("--platform", f"manylinux_2_17_{machine}"),
        ]
    )


def _dependencies() -> list[str]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def _our_wheel() -> Path:
    wheels = (ROOT / "dist").glob(f"hami_py-*{platform.machine()}*.whl")
    newest = sorted(wheels, key=lambda path: path.stat().st_mtime)
    if not newest:
        raise FileNotFoundError("dist/hami_py-*.whl: not built; run `make wheel`")
    return newest[-1]


def _compile(folder: Path) -> None:
    """Compile for glibc 2.17 with zig, so that the programs run wherever the library does."""
    folder.mkdir()
    stub = artifacts.find().stub_dir
    for name, (source, flags) in PROGRAMS.items():
        _output(
            [
                *(sys.executable, "-m", "ziglang", "cc"),
                *("-target", f"{platform.machine()}-linux-gnu.2.17"),
                *("-std=gnu11", "-D_GNU_SOURCE", "-O2"),
                *("-o", str(folder / name), str(ROOT / source), f"-I{SHARED}", f"-L{stub}", *flags),
            ]
        )


def _copy(source: str, kit: Path) -> None:
    target = kit / source
    target.parent.mkdir(parents=True, exist_ok=True)
    if (ROOT / source).is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / source, target, ignore=ignored)
    else:
        shutil.copy(ROOT / source, target)


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _weigh(kit: Path) -> int:
    size = sum(path.lstat().st_size for path in kit.rglob("*") if path.is_file())
    print(f"{kit}: {size / 1e6:.1f} MB, of at most {LARGEST / 1e6:.0f} MB")
    if size >= LARGEST:
        print("the kit is too large to travel", file=sys.stderr)
        return 1
    return 0


def _output(command: Sequence[str], given: str = "") -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
