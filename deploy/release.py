"""Puts a release together in dist/, from the wheel and the image's archive that are there.

hami_py-VERSION-….whl                    of `make wheel`
hami-py-VERSION-image.tar                of `make image-archive`
hami-py-VERSION.tgz                      the chart
kubectl-hami-VERSION-linux-amd64.tar.gz  the plugin of kubectl: any CPython from 3.10 runs it
hami.yaml                                its manifest for krew
hami-py-VERSION-python.cdx.json          the bill of materials: the locked Python packages
hami-py-VERSION-rust.cdx.json            the same of the wheel's programs: their crates
hami-py-VERSION-notes.md                 the release's part of CHANGELOG.md
SHA256SUMS

With a key also, in the form of SLSA's provenance 1.0, and with signatures of `ssh-keygen`:

hami-py-VERSION-provenance.json          from what, by what and with what the files were made
hami-py-VERSION-provenance.json.sig, SHA256SUMS.sig

Two runs for one commit make the same bytes, whatever the folder: no file has the time of the run.
"""

import argparse
import gzip
import hashlib
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bills
import yaml
from bills import ROOT, output

#: A native module has the version in its name, so those of several are in one folder.
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

#: Only the parts that run in a cluster need them.
_SERVERS = ("cryptography", "grpcio", "httptools", "protobuf", "uvicorn", "uvloop")

_LOCKS = ("Cargo.lock", "uv.lock")

_LAUNCHER = """#!/usr/bin/env python3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from hami_py.cli import kubectl

kubectl()
"""


#: What an installer notes about its run: paths, times, and sums of scripts that name them.
_OF_THE_RUN = ("RECORD", "direct_url.json", "uv_cache.json")


def plugin(uv: Path, wheel: Path, archive: Path, epoch: int) -> None:
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
        pack([*folder.iterdir()], archive, epoch)


def chart(helm: Path, version: str, archive: Path, epoch: int) -> None:
    """The archive of the chart, packed again: helm gives every file the time of the run."""
    with tempfile.TemporaryDirectory() as name:
        versions = (f"--version={version}", f"--app-version={version}")
        _run(helm, "package", ROOT / "deploy" / "chart", *versions, "--destination", name)
        with tarfile.open(Path(name) / archive.name) as tar:
            tar.extractall(name, filter="data")
        pack([Path(name) / "hami-py"], archive, epoch)


def pack(parts: Sequence[Path], archive: Path, epoch: int) -> None:
    """A .tar.gz that is the same for the same files."""

    def same(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        if name == "__pycache__" or name in _OF_THE_RUN:
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with (
        archive.open("wb") as stream,
        gzip.GzipFile("", "wb", fileobj=stream, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for each in sorted(parts):
            tar.add(each, each.name, filter=same)


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


def provenance(files: Sequence[Path], given: argparse.Namespace) -> dict[str, Any]:
    """An in-toto statement with SLSA's provenance: slsa.dev/spec/v1.0/provenance."""
    commit = {"gitCommit": output("git", "rev-parse", "HEAD").strip()}
    locks = [{"name": each, "digest": {"sha256": _sum(ROOT / each)}} for each in _LOCKS]
    tools = {"python": platform.python_version(), "rustc": output("rustc", "--version").strip()}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": each.name, "digest": {"sha256": _sum(each)}} for each in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:hami-py:make-release",
                "externalParameters": {"command": f"make release {given.variables}"},
                "internalParameters": {**tools, "imageBuilder": given.builder},
                "resolvedDependencies": [{"name": "source", "digest": commit}, *locks],
            },
            "runDetails": {"builder": {"id": "urn:hami-py:machine-of-a-maintainer"}},
        },
    }


def main() -> None:
    """Make the files that are missing, and print all with their sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dist", "uv", "helm"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--version", required=True, help="of Cargo.toml")
    parser.add_argument("--url", required=True, help="where the files will be, for krew")
    parser.add_argument(
        "--epoch", type=int, required=True, help="the time of all files, Unix seconds"
    )
    parser.add_argument("--sign", help="an SSH key, or the public one of a key in an agent")
    parser.add_argument("--variables", default="", help="those that make was given")
    parser.add_argument("--builder", default="", help="the version of what built the image")
    given = parser.parse_args()
    dist, now, epoch = given.dist, given.version, given.epoch
    named = f"hami-py-{now}"
    wheels = sorted(dist.glob(f"hami_py-{now}-*.whl"))
    (wheel,) = (each for each in wheels if each.stem.endswith("x86_64"))
    archives = [dist / f"{named}.tgz", dist / f"kubectl-hami-{now}-linux-amd64.tar.gz"]
    chart(given.helm, now, archives[0], epoch)
    plugin(given.uv, wheel, archives[1], epoch)
    python, rust = (dist / f"{named}-{name}.cdx.json" for name in ("python", "rust"))
    python.write_text(json.dumps(bills.python(now, epoch, given.uv), indent=2))
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".cdx.json"))
        rust.write_bytes(packed.read(name))
    (dist / "hami.yaml").write_text(krew(now, archives[1], given.url))
    (dist / f"{named}-notes.md").write_text(notes(now))
    texts = [dist / "hami.yaml", python, rust, dist / f"{named}-notes.md"]
    files = [*wheels, dist / f"{named}-image.tar", *archives, *texts]
    origin, sums = dist / f"{named}-provenance.json", dist / "SHA256SUMS"
    signatures = [each.with_name(f"{each.name}.sig") for each in (origin, sums)]
    # Those of the last run would be of other files.
    for each in (origin, *signatures):
        each.unlink(missing_ok=True)
    if given.sign:
        origin.write_text(json.dumps(provenance(files, given), indent=2))
        files.append(origin)
    sums.write_text("".join(f"{_sum(each)}  {each.name}\n" for each in files))
    if given.sign:
        _run("ssh-keygen", "-Y", "sign", "-f", given.sign, "-n", "hami-py-release", sums, origin)
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
