"""The images of a test cluster, and how a container runtime reads them.

There is no registry to pull from. A Docker archive (the format of `docker save`) is a tar with a
manifest, and for each image a configuration and its layers; `ctr images import` reads it. Images
share layers, and the archive has each layer once.
"""

import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from cluster import binaries, image_layers
from cluster.binaries import CannotBuild
from cluster.image_layers import Layer
from hami_py._native import VERSION
from support import artifacts
from support.artifacts import ROOT
from support.programs import SHARED, Programs

#: The image that most pods of tests name: a static busybox. Sandboxes of pods run it, too.
BUSYBOX = "docker.io/hami-py/busybox:test"

#: Python with cuda-bindings, and nothing of ours. /programs has the programs of tests/clients, and
#: those of tests/cluster, compiled.
CLIENT = "docker.io/hami-py/cuda-python:test"

#: Images as CLIENT, each with a variable by which NVIDIA's runtime adds all cards: as NVIDIA's CUDA
#: images, and as older ones, which name no device.
VISIBLE, LEGACY = "docker.io/hami-py/visible:test", "docker.io/hami-py/legacy:test"
_VARIABLES = {VISIBLE: "NVIDIA_VISIBLE_DEVICES=all", LEGACY: "CUDA_VERSION=9.0"}

#: The programs that CLIENT needs from the lock's group ``clients``.
_CLIENT_PACKAGES = ("cuda-bindings", "cuda-pathfinder")

_DOCKERFILE = ROOT / "deploy" / "image" / "Dockerfile"


@dataclass(frozen=True)
class Image:
    """An image by its full name; ``config`` is as in an OCI image's configuration."""

    name: str
    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)


def busybox() -> Image:
    """Debian's busybox-static, or another static busybox."""
    found = shutil.which("busybox")
    if found is None:
        raise CannotBuild("missing: busybox; install it with: apt-get install busybox-static")
    program = Path(found)

    def fill(layer: Path) -> None:
        # All else is mounted by the runtime.
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "var", "root"):
            (layer / folder).mkdir()
        (layer / "tmp").chmod(0o1777)
        shutil.copyfile(program, layer / "bin" / "busybox")
        (layer / "bin" / "busybox").chmod(0o755)
        for applet in sorted({*image_layers.run(program, "--list").split()} - {"busybox"}):
            (layer / "bin" / applet).symlink_to("busybox")

    layer = image_layers.files("busybox", [_digest(program)], fill)
    return Image(BUSYBOX, [layer], {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "infinity"]})


def whole() -> list[Image]:
    """The images that deploy/ names, built as deploy/image says, CLIENT, VISIBLE and LEGACY."""
    base = image_layers.debian()
    client = _client(base)
    return [
        hami(base, wheel()),
        kube_scheduler(),
        client,
        *(_with(client, name) for name in _VARIABLES),
    ]


def write(images: Sequence[Image], stream: IO[bytes]) -> None:
    """Write the archive of these images."""
    manifest = []
    layers = {layer.digest: layer for image in images for layer in image.layers}
    with tarfile.open(fileobj=stream, mode="w|") as tar:
        for digest, layer in layers.items():
            tar.add(layer.tar, f"{digest}.tar")
        for image in images:
            config = json.dumps(configuration(image)).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, name, config)
            of = [f"{layer.digest}.tar" for layer in image.layers]
            manifest.append({"Config": name, "RepoTags": [image.name], "Layers": of})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def configuration(image: Image) -> dict[str, Any]:
    """What determines all of an image but its name."""
    digests = [f"sha256:{layer.digest}" for layer in image.layers]
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": digests},
    }


def wheel() -> Path:
    """The wheel of `make wheel`."""
    wheels = sorted((ROOT / "dist").glob(f"hami_py-{VERSION}-*.whl"), key=_changed)
    if not wheels:
        raise CannotBuild(f"missing: dist/hami_py-{VERSION}-*.whl; build it with: make wheel")
    _compare(wheels[-1])
    return wheels[-1]


def hami(base: Layer, wheel: Path, tag: str = VERSION) -> Image:
    """As deploy/image/Dockerfile makes it, from a wheel; the locked packages are those of now."""
    place = f"opt/hami/lib/{image_layers.python(base)}/site-packages"
    wanted = locked("--no-default-groups", "--extra", "kubernetes")
    hashed = ("--require-hashes", "--requirement", "-")
    exact = ("--no-deps", "--no-index", wheel)
    return Image(
        f"docker.io/library/hami-py:{tag}",
        [
            base,
            image_layers.files("hami-environment", [_instruction("USER")], _environment),
            image_layers.packages("hami-packages", base, place, *hashed, requirements=wanted),
            image_layers.packages("hami", base, place, *exact, recipe=[_digest(wheel)]),
        ],
        {
            "Env": ["PATH=/opt/hami/bin:/usr/local/bin:/usr/bin:/bin"],
            "User": _instruction("USER"),
            "Entrypoint": json.loads(_instruction("ENTRYPOINT")),
        },
    )


def _instruction(name: str) -> str:
    """The value of this instruction in the last stage of our Dockerfile."""
    text = _DOCKERFILE.read_text()
    stage = text[text.rindex("\nFROM ") :]
    (value,) = re.findall(rf"^{name} (.*)$", stage, re.MULTILINE)
    return str(value)


def _compare(wheel: Path) -> None:
    """Warn if the wheel was built before the sources were changed: the tests then run old code."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    sources = (ROOT / "hami_py").rglob("*.py")
    if packed != {str(path.relative_to(ROOT)): path.read_bytes() for path in sources}:
        line = f"{wheel.relative_to(ROOT)} differs from hami_py/; build it with: make wheel"
        print(line, file=sys.stderr)


def _environment(layer: Path) -> None:
    """A virtual environment without packages, its one command, and its user."""
    home = layer / "opt" / "hami"
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (home / "bin" / "python").symlink_to("/usr/bin/python3")
    command = home / "bin" / "hami"
    command.write_text("#!/opt/hami/bin/python\nimport hami_py.cli\n\nhami_py.cli.main()\n")
    command.chmod(0o755)
    user, group = _instruction("USER").split(":")
    users = {
        "passwd": f"root:x:0:0::/root:/bin/sh\nhami:x:{user}:{group}::/:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nhami:x:{group}:\n",
    }
    (layer / "etc").mkdir()
    for file, text in users.items():
        (layer / "etc" / file).write_text(text)


def kube_scheduler() -> Image:
    """The program that `binaries` built, under the name of its release."""
    program = binaries.folder("control-plane") / "kube-scheduler"

    def fill(layer: Path) -> None:
        place = layer / "usr" / "local" / "bin"
        place.mkdir(parents=True)
        shutil.copyfile(program, place / program.name)
        (place / program.name).chmod(0o755)

    return Image(
        f"registry.k8s.io/kube-scheduler:v{binaries.deployed_version()}",
        [image_layers.files("kube-scheduler", [program.parent.name], fill)],
        {"Env": ["PATH=/usr/local/bin"], "Entrypoint": ["kube-scheduler"]},
    )


def _client(base: Layer) -> Image:
    place = f"usr/local/lib/{image_layers.python(base)}/dist-packages"
    wanted = locked("--only-group", "clients", only=_CLIENT_PACKAGES)
    hashed = ("--require-hashes", "--requirement", "-")
    programs = sorted((ROOT / "tests" / "clients" / "programs").glob("*.py"))
    compiled = sorted((ROOT / "tests" / "cluster" / "programs").glob("*.c"))
    sources = [*programs, *compiled, *sorted(SHARED.glob("*.h"))]

    def fill(layer: Path) -> None:
        (layer / "programs").mkdir()
        for program in programs:
            shutil.copyfile(program, layer / "programs" / program.name)
        with tempfile.TemporaryDirectory() as folder:
            build = Programs(compiled[0].parent, Path(folder), artifacts.find())
            for source in compiled:
                shutil.copy(build(source.stem), layer / "programs" / source.stem)

    return Image(
        CLIENT,
        [
            base,
            image_layers.packages("cuda-bindings", base, place, *hashed, requirements=wanted),
            image_layers.files("programs", [[each.name, _digest(each)] for each in sources], fill),
        ],
        {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sleep", "infinity"]},
    )


def _with(image: Image, name: str) -> Image:
    env = [*image.config["Env"], _VARIABLES[name]]
    return replace(image, name=name, config={**image.config, "Env": env})


def locked(*arguments: str, only: Sequence[str] = ()) -> str:
    """Requirements of uv.lock with their hashes; of some packages, if they are named."""
    shape = ("--no-emit-project", "--no-header", "--no-annotate")
    text = image_layers.run(image_layers.uv(), "export", "--quiet", "--frozen", *arguments, *shape)
    # A requirement is a line that is continued by its hashes.
    each = re.findall(r"^\S.*\\\n(?:^ .*\n)*", text, re.MULTILINE)
    return "".join(row for row in each if not only or re.split(r"[=\[ ]", row)[0] in only)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _changed(file: Path) -> float:
    return file.stat().st_mtime


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))
