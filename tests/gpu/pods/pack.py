"""`make gpu-pods`: what a cluster on a machine with a card consists of, in a form that travels.

    python -m gpu.pods.pack --uv UV --pip PIP --cache DIR --output DIR [--archives]

The folders below OUTPUT link to the cache of the user. With --archives they are also archives, each
small enough to travel: the folders can then stay behind.

    programs/   the programs of the control plane and the kubelet; in the archive they are one file
    node/       containerd, runc, CNI's plugins, busybox, NVIDIA's toolkit; wheels/ for this part
    image/      layers/ of our image; pods.json says which, and which wheels
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import binaries, image_layers, images
from cluster.node import runc
from gpu import kit
from gpu.pods.machine import PARTS

#: The largest size of an archive in bytes.
LARGEST = 60 << 20

#: Of Debian's CNI plugins, those that a node's network has.
_CNI = ("ptp", "host-local", "loopback")

#: Packages that the cluster's Python code needs besides the kit's.
_PACKAGES = ("cryptography", "pyyaml", "urllib3")


def main() -> int:
    """Builds the folders again; with --archives, prints the sizes of the archives."""
    parser = argparse.ArgumentParser()
    kit.add_options(parser)
    parser.add_argument("--archives", action="store_true")
    options = parser.parse_args()
    wheels = kit.fetch(options.uv, options.pip, options.cache, _PACKAGES)
    output: Path = options.output
    folders = [output / name for name in PARTS]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    programs, node, image = folders
    _link(_programs(options.archives), programs)
    _link(_of_node(), node)
    (node / "wheels").mkdir()
    _link([path for paths in wheels.values() for path in paths], node / "wheels")
    _fill(image, wheels)
    if not options.archives:
        return 0
    sizes = [_archive(folder, options.cache) for folder in folders]
    return 0 if max(sizes) <= LARGEST else 1


def _programs(together: bool) -> list[Path]:
    """In one file they are two fifths as large, but that takes minutes to build."""
    if together:
        return [binaries.ensure("together") / "kubernetes"]
    groups = ("control-plane", "controllers", "kubectl")
    found = [path for group in groups for path in binaries.ensure(group).iterdir()]
    return [*found, binaries.ensure("node") / "kubelet"]


def _of_node() -> list[Path]:
    containerd, toolkit = binaries.ensure("node"), binaries.ensure("toolkit")
    busybox = shutil.which("busybox")
    assert busybox, "missing: busybox; install it with: apt-get install busybox-static"
    plugins = [Path("/usr/lib/cni") / name for name in _CNI]
    programs = [path for path in (*containerd.iterdir(), *toolkit.iterdir()) if path.is_file()]
    programs.remove(containerd / "kubelet")
    return [*programs, Path(runc()), Path(busybox), *plugins]


def _fill(folder: Path, wheels: dict[str, list[Path]]) -> None:
    image = images.hami(image_layers.debian(), images.wheel())
    (folder / "layers").mkdir()
    for layer in image.layers:
        (folder / "layers" / layer.digest).symlink_to(layer.tar.resolve())
    about = {
        "image": image.name,
        "config": image.config,
        "layers": [layer.digest for layer in image.layers],
        "kubernetes": binaries.kubernetes_version(),
        "wheels": {python: [path.name for path in paths] for python, paths in wheels.items()},
    }
    (folder / "pods.json").write_text(json.dumps(about, indent=2) + "\n")


def _link(files: Sequence[Path], folder: Path) -> None:
    for file in {file.name: file for file in files}.values():
        (folder / file.name).symlink_to(file.resolve())


def _archive(folder: Path, cache: Path) -> int:
    """The size of the archive of this folder; one with the same files is taken from the cache."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    kept = cache / f"{folder.name}-{digest.hexdigest()[:16]}.tar.xz"
    if not kept.exists():
        for older in cache.glob(f"{folder.name}-*.tar.xz"):
            older.unlink()
        tar = ["tar", "--create", "--dereference", "--sort=name", "--owner=0", "--group=0"]
        tar += ["--mode=u+rw,a+rX", "--mtime=@0", "--use-compress-program=xz -6 --threads=2"]
        building = kept.with_suffix(".building")
        subprocess.run([*tar, f"--file={building}", f"--directory={folder}", "."], check=True)
        building.rename(kept)
    target = folder.with_suffix(".tar.xz")
    shutil.copyfile(kept, target)
    size = target.stat().st_size
    print(f"{target}: {size / (1 << 20):.1f} MiB, of at most {LARGEST >> 20} MiB")
    return size


if __name__ == "__main__":
    sys.exit(main())
