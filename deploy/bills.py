"""The bills of materials of a release, in CycloneDX, with the licence of each component.

    deploy/bills.py VERSION EPOCH FILE    writes the one of the wheel's three programs: their crates

maturin's own bill lacks two of the programs, and names the folders of the machine.
"""

import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: The oldest and the newest: some packages are locked in one version for each.
_PYTHONS = ("3.10", "3.14")


def rust(version: str, epoch: int) -> dict[str, Any]:
    """The crates of the extension module, the preload library and the hook."""
    programs = ("--package=hami-native", "--package=vgpu", "--package=hami-hook")
    form = ("--edges=normal", "--prefix=none", "--no-dedupe", "--format={p}\t{l}")
    target = f"--target={platform.machine()}-unknown-linux-gnu"
    components = []
    lines = output("cargo", "tree", "--locked", target, *programs, *form).splitlines()
    # A blank line is between two programs.
    for line in sorted({*lines} - {""}):
        package, license_ = line.split("\t")
        name, number = package.replace(" v", " ").split()[:2]
        purl = f"pkg:cargo/{name}@{number}"
        component = {"type": "library", "bom-ref": purl, "name": name, "version": number}
        components.append({**component, "licenses": [{"expression": license_}], "purl": purl})
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    return _ours({**bill, "metadata": {}, "components": components}, version, epoch)


def python(version: str, epoch: int, uv: Path) -> dict[str, Any]:
    """The locked packages of the image and of `kubectl hami`."""
    all_ = ("--quiet", "--frozen", "--no-default-groups", "--extra=kubernetes")
    form = ("--format=cyclonedx1.5", "--preview-features=sbom-export")
    bill = json.loads(output(uv, "export", *all_, *form))
    # Both differ in each run.
    del bill["serialNumber"], bill["metadata"]["timestamp"]
    licenses = _licenses(uv, output(uv, "export", *all_, "--no-emit-project"))
    for each in bill["components"]:
        each["licenses"] = licenses[each["name"], each["version"]]
    return _ours(bill, version, epoch)


def _licenses(uv: Path, requirements: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By name and version, as the packages themselves state them."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "requirements.txt").write_text(requirements)
        for of in _PYTHONS:
            where = (f"--python-version={of}", "--python-platform=x86_64-manylinux_2_28")
            into = (*where, "--no-deps", "--only-binary=:all:", f"--target={name}/{of}")
            output(uv, "pip", "install", "--quiet", *into, f"--requirement={name}/requirements.txt")
            for package in importlib.metadata.distributions(path=[f"{name}/{of}"]):
                key = (package.name.lower().replace("_", "-"), package.version)
                found[key] = _stated(package.metadata)
    return found


def _stated(metadata: importlib.metadata.PackageMetadata) -> list[dict[str, Any]]:
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    approved = "License :: OSI Approved :: "
    classifiers = [each for each in metadata.get_all("Classifier", []) if each.startswith(approved)]
    names = [each.removeprefix(approved) for each in classifiers] or metadata.get_all("License", [])
    return [{"license": {"name": each}} for each in names if each]


def _ours(bill: dict[str, Any], version: str, epoch: int) -> dict[str, Any]:
    """The bill with what it is of, and when."""
    component = bill["metadata"].setdefault("component", {"type": "library", "name": "hami-py"})
    component["version"] = version
    component["purl"] = f"pkg:pypi/hami-py@{version}"
    component["licenses"] = [{"expression": "Apache-2.0"}]
    when = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bill["metadata"]["timestamp"] = when.isoformat()
    return bill


def output(*command: str | Path) -> str:
    """The output of the command."""
    words = [str(each) for each in command]
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(rust(sys.argv[1], int(sys.argv[2])), indent=2))
