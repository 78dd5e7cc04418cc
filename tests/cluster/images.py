"""One container image, made by hand: a static busybox, for pods and for their sandboxes.

There is no registry to pull from. A Docker archive (the format of `docker save`) is a tar with a
manifest, a configuration and one tar per layer; `ctr images import` reads it.
"""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

#: The image that pods name, with imagePullPolicy Never.
BUSYBOX = "docker.io/hami-py/busybox:test"

#: The directories of the image; all else is mounted by the runtime.
_FOLDERS = ("bin", "etc", "tmp", "proc", "sys", "dev", "var", "root")


def busybox(archive: Path) -> None:
    """Write the image; needs Debian's busybox-static, or another static busybox."""
    program = shutil.which("busybox")
    assert program, "missing: busybox; install it with: apt-get install busybox-static"
    layer = _layer(Path(program))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "infinity"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    content = json.dumps(config).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [BUSYBOX], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, name, content)
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _layer(program: Path) -> bytes:
    applets = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", program.read_bytes(), 0o755)
        for applet in sorted({*applets.stdout.split()} - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return stream.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
