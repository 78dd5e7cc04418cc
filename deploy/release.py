"""Puts a release together in dist/, from the wheel and the image's archive that are there.

hami_py-VERSION-….whl                    of `make wheel`
hami-py-VERSION-image.tar                of `make image-archive`
hami-py-VERSION.tgz                      the chart
kubectl-hami-VERSION-linux-amd64.tar.gz  the plugin of kubectl: any CPython from 3.10 runs it
hami.yaml                                its manifest for krew
hami-py-VERSION-python.cdx.json          the bill of materials: the locked Python packages
hami-py-VERSION-rust.cdx.json            the same of the wheel's two libraries: their crates
hami-py-VERSION-notes.md                 the release's part of CHANGELOG.md
SHA256SUMS
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]

#: A native module has the version in its name, so those of several are in one folder.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

#: Only the parts that run in a cluster need them.
_SERVERS = ("cryptography", "grpcio", "httptools", "protobuf", "uvicorn", "uvloop")

_LAUNCHER = """#!/usr/bin/env python3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from hami_py.cli import kubectl

kubectl()
"""


def plugin(uv: Path, wheel: Path, archive: Path) -> None:
    """The archive of `kubectl hami`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "kubectl-hami"
        requirements = Path(name) / "requirements.txt"
        pruned = [f"--prune={each}" for each in _SERVERS]
        shape = ("--no-emit-project", "--no-header", "--no-annotate", "--no-default-groups")
        more = (*shape, *pruned, f"--output-file={requirements}")
        _run(uv, "export", "--quiet", "--frozen", "--extra=kubernetes", *more)
        for python in _PYTHONS:
            target = Path(name) / python
            of = (f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28")
            into = ("--quiet", "--only-binary=:all:", *of, f"--target={target}")
            _run(uv, "pip", "install", *into, "--require-hashes", "--requirement", requirements)
            _run(uv, "pip", "install", *into, "--no-deps", wheel)
            shutil.copytree(target, folder / "lib", dirs_exist_ok=True)
        shutil.rmtree(folder / "lib" / "bin", ignore_errors=True)
        (folder / "kubectl-hami").write_text(_LAUNCHER)
        (folder / "kubectl-hami").chmod(0o755)
        shutil.copy(ROOT / "LICENSE", folder)
        with tarfile.open(archive, "w:gz") as tar:
            for each in sorted(folder.iterdir()):
                tar.add(each, each.name, filter=_of_root)


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def krew(version: str, archive: Path, url: str) -> str:
    """The manifest with which krew installs the plugin: krew.sigs.k8s.io, the plugin manifest."""
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "hami"},
            "spec": {
                "version": f"v{version}",
                "shortDescription": "Show and change who uses the cards of a cluster",
                "caveats": "It needs Python 3.10 or newer, as python3.",
                "platforms": [
                    {
                        "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
                        "uri": f"{url}/{archive.name}",
                        "sha256": _sum(archive),
                        "bin": "kubectl-hami",
                    }
                ],
            },
        },
        sort_keys=False,
    )


def notes(version: str) -> str:
    """The release's part of the changelog.

    Raises:
        SystemExit: it has none.
    """
    _, heading, rest = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {version}")
    if not heading:
        raise SystemExit(f"CHANGELOG.md has no part {version}")
    part = rest.partition("\n## ")[0]
    return f"# hami-py {version}{part.rstrip()}\n"


def bills(version: str, uv: Path, wheel: Path, python: Path, rust: Path) -> None:
    """The bills of materials, by the tools that lock and build."""
    form = ("--format=cyclonedx1.5", "--preview-features=sbom-export", f"--output-file={python}")
    all_ = ("--no-default-groups", "--extra=kubernetes")
    _run(uv, "export", "--quiet", "--frozen", *all_, *form)
    bill = json.loads(python.read_text())
    # The lock names no version of ours.
    bill["metadata"]["component"]["version"] = version
    python.write_text(json.dumps(bill, indent=2))
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".cyclonedx.json"))
        bill = json.loads(packed.read(name))
    named = {each["name"] for each in bill["components"]}
    bill["components"] += [each for each in _preload_crates() if each["name"] not in named]
    rust.write_text(json.dumps(bill, indent=2))


def _preload_crates() -> list[dict[str, Any]]:
    """The crates of the preload library: maturin knows only those of the extension module."""
    tree = ("cargo", "tree", "--package=vgpu", "--edges=normal", "--prefix=none")
    done = subprocess.run(
        [*tree, "--no-dedupe", "--format={p}\t{l}"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    crates = []
    for line in sorted({*done.stdout.splitlines()}):
        package, license_ = line.split("\t")
        name, version = package.split()[:2]
        purl = f"pkg:cargo/{name}@{version.removeprefix('v')}"
        crates.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version.removeprefix("v"),
                "licenses": [{"expression": license_}],
                "purl": purl,
            }
        )
    return crates


def main() -> None:
    """Make the files that are missing, and print all with their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dist", "uv", "helm"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--version", required=True, help="of Cargo.toml")
    parser.add_argument("--url", required=True, help="where the files will be, for krew")
    given = parser.parse_args()
    dist, now = given.dist, given.version
    wheels = sorted(dist.glob(f"hami_py-{now}-*.whl"))
    (wheel,) = (each for each in wheels if each.stem.endswith("x86_64"))
    image = dist / f"hami-py-{now}-image.tar"
    chart = dist / f"hami-py-{now}.tgz"
    versions = (f"--version={now}", f"--app-version={now}")
    _run(given.helm, "package", ROOT / "deploy" / "chart", *versions, "--destination", dist)
    archive = dist / f"kubectl-hami-{now}-linux-amd64.tar.gz"
    plugin(given.uv, wheel, archive)
    (dist / "hami.yaml").write_text(krew(now, archive, given.url))
    both = [dist / f"hami-py-{now}-{name}.cdx.json" for name in ("python", "rust")]
    bills(now, given.uv, wheel, *both)
    (dist / f"hami-py-{now}-notes.md").write_text(notes(now))
    files = [*wheels, image, chart, archive, dist / "hami.yaml", *both]
    files.append(dist / f"hami-py-{now}-notes.md")
    sums = "".join(f"{_sum(each)}  {each.name}\n" for each in files)
    (dist / "SHA256SUMS").write_text(sums)
    for each in files:
        print(f"{each.stat().st_size / 1e6:8.1f} MB  {each}")


def _run(*command: str | Path) -> None:
    subprocess.run([str(each) for each in command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _sum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


if __name__ == "__main__":
    main()
