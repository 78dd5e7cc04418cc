"""Generates hami_py/plugin/api from the kubelet's interfaces, in the version that the tests lock.

    PYTHONPATH=tests python -m cluster.interfaces            # writes the modules (`make gen`)
    PYTHONPATH=tests python -m cluster.interfaces --check    # fails if they differ

The .proto files are inputs, from the Go module k8s.io/kubelet; they are not kept here. The modules
have the names that they are imported by, so that each imports its neighbour by its full name.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.binaries import PROTOS, TOOLS

PACKAGE = Path("hami_py/plugin/api")
ROOT = Path(__file__).parents[2]

_NOTE = "# Generated from the kubelet's interface by `make gen` (tests/cluster/interfaces.py).\n"


def generated() -> dict[str, str]:
    """The modules by file name, as they have to be."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with _sources() as sources, tempfile.TemporaryDirectory() as out:
        outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        for name in PROTOS:
            file = str(sources / PACKAGE / f"{name}.proto")
            if protoc.main(["protoc", f"-I{sources}", *outputs, file]) != 0:
                raise RuntimeError(f"protoc cannot compile {name}.proto")
        found = sorted((Path(out) / PACKAGE).iterdir())
        return {path.name: _NOTE + path.read_text() for path in found}


@contextmanager
def _sources() -> Iterator[Path]:
    """A folder with the .proto files at the path of their package."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / PACKAGE
        target.mkdir(parents=True)
        apis = _module() / "pkg" / "apis"
        for name, source in PROTOS.items():
            (target / f"{name}.proto").write_bytes((apis / source).read_bytes())
        yield Path(folder)


def _module() -> Path:
    """Where Go has the locked version of k8s.io/kubelet; it downloads it if it is not there."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", "k8s.io/kubelet"],
        cwd=TOOLS / "kubernetes",
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
        check=True,
        capture_output=True,
        text=True,
        timeout=300.0,
    )
    return Path(json.loads(done.stdout)["Dir"])


def main(arguments: list[str]) -> int:
    """Write or compare; 1 if they differ."""
    wanted = generated()
    if arguments == ["--check"]:
        differ = [name for name, text in wanted.items() if _present(name) != text]
        for name in differ:
            print(f"{PACKAGE / name} differs from the kubelet's interface: run `make gen`")
        return 1 if differ else 0
    for name, text in wanted.items():
        (ROOT / PACKAGE / name).write_text(text)
    return 0


def _present(name: str) -> str | None:
    path = ROOT / PACKAGE / name
    return path.read_text() if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
