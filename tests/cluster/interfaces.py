"""Generates Python modules from the kubelet's interfaces, in the version that the tests lock.

hami_py/plugin/api has the interfaces that hami-py serves, tests/cluster/claims_api those of the
tests' DRA driver (`claims_driver`).

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.binaries import PROTOS, TOOLS

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Package:
    """Generated modules: ``path`` below ``root``, as they are imported; their .proto files."""

    root: Path
    path: Path
    protos: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where the modules are committed."""
        return self.root / self.path


PACKAGES = (
    Package(ROOT, Path("hami_py/plugin/api"), PROTOS),
    Package(
        ROOT / "tests",
        Path("cluster/claims_api"),
        {"dra": "dra/v1/api.proto", "pluginregistration": "pluginregistration/v1/api.proto"},
    ),
)

_NOTE = "# Generated from the kubelet's interface by `make gen` (tests/cluster/interfaces.py).\n"


def generated() -> dict[Path, str]:
    """The modules by path, as they have to be."""
    return {path: text for package in PACKAGES for path, text in _modules(package).items()}


def _modules(package: Package) -> dict[Path, str]:
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with _sources(package) as sources, tempfile.TemporaryDirectory() as out:
        outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        for name in package.protos:
            file = str(sources / package.path / f"{name}.proto")
            if protoc.main(["protoc", f"-I{sources}", *outputs, file]) != 0:
                raise RuntimeError(f"protoc cannot compile {name}.proto")
        found = sorted((Path(out) / package.path).iterdir())
        return {package.folder / path.name: _NOTE + path.read_text() for path in found}


@contextmanager
def _sources(package: Package) -> Iterator[Path]:
    """A folder with the .proto files at the path of their package."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / package.path
        target.mkdir(parents=True)
        apis = _module() / "pkg" / "apis"
        for name, source in package.protos.items():
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
        differ = [path for path, text in wanted.items() if _present(path) != text]
        for path in differ:
            print(f"{path.relative_to(ROOT)} differs from the kubelet's interface: run `make gen`")
        return 1 if differ else 0
    for path, text in wanted.items():
        path.write_text(text)
    return 0


def _present(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
