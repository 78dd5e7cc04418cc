"""The commands of docs/install.md, and how a test cluster runs each of them.

    page = InstallPage(cluster)
    for command in page.commands("Prepare the nodes"):
        page.type(command)
    page.untyped()

A command runs as it is written, with names of the cluster in place of those of the page. `NOT_HERE`
has the exceptions.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from cluster import charts, images, toolkit
from cluster.deployed import DEPLOY
from cluster.limited_pods import MIB, PROGRAM, run_in
from cluster.whole import WholeCluster
from support.artifacts import ROOT

TEXT = (ROOT / "docs" / "install.md").read_text()

#: Commands that are not run, and why.
NOT_HERE = {
    "systemctl restart containerd": "the node has no systemd, and its containerd has started with "
    "the configuration that `nvidia-ctk runtime configure` makes",
}

#: `make` only says what it would run: an image takes minutes, and test_make_image.py tests these.
_MAKE = ("make", "--dry-run")


def commands(text: str) -> list[str]:
    """The commands in a part of the page: of blocks, of indented lines, and within sentences."""
    blocks = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
    shell = "\n".join(block for kind, block in blocks.findall(text) if kind == "sh")
    rest = blocks.sub("", text)
    indented = re.findall(r"^    (\S.*)$", rest, re.M)
    inline = re.findall(r"`((?:make|(?:helm|kubectl|nvidia-ctk) [^\s`]+) [^`]+)`", rest)
    found = [*shell.splitlines(), *indented, *(" ".join(each.split()) for each in inline)]
    return [re.sub(r" +# .*$", "", each) for each in found]


class InstallPage:
    """The page, as a person follows it on a cluster; ``folder`` is for files."""

    def __init__(self, cluster: WholeCluster, folder: Path) -> None:
        self.cluster, self._folder = cluster, folder
        self._typed: set[str] = set()

    @staticmethod
    def commands(title: str) -> list[str]:
        """Those of a section."""
        return commands(TEXT.split(f"## {title}\n")[1].split("\n## ")[0])

    def untyped(self) -> list[str]:
        """The commands of the whole page that were not typed, and may not be left out."""
        # test_release.py runs those on a release.
        elsewhere = self.commands("Verify a release")
        return [x for x in commands(TEXT) if x not in {*self._typed, *NOT_HERE, *elsewhere}]

    def type(self, command: str, *more: str) -> str:
        """The output of a command with more arguments; the command has to succeed."""
        self._typed.add(command)
        for written, here in (
            ("NODE", self.cluster.node.name),
            ("NAMESPACE", "kube-public"),
            ("registry.example/hami-py", "hami-py"),
            ("deploy/", f"{DEPLOY}/"),
        ):
            command = re.sub(rf"(?<![\w/]){written}", here, command)
        program, *arguments = [*shlex.split(command), *more]
        if program == "helm":
            return charts.run(self.cluster.control_plane, *arguments)
        if program == "kubectl":
            return self._kubectl(arguments)
        if program == "make":
            return _run([*_MAKE, *arguments])
        if program == "ctr":
            return self.cluster.node.ctr(*arguments[2:-1], str(self._archive()))
        if "cdi generate" in command:
            # The node has a specification already, and a device that two have is none.
            aside = "mount --types tmpfs tmpfs /run/cdi"
            show = f"cat {command.rpartition('--output=')[2]}"
            return self.on_node(f"unshare --mount sh -euc '{aside}; {command}; {show}'")
        return self.on_node(command)

    def on_node(self, script: str) -> str:
        """A script in the namespaces of the node, where NVIDIA's toolkit is installed."""
        node, gpu = self.cluster.node, self.cluster.gpu
        within = ["nsenter", "--mount", "--pid", "--target", str(node.init_pid()), "--"]
        path = f"{toolkit.program('nvidia-ctk').parent}:{os.environ['PATH']}"
        return _run([*within, "sh", "-uc", script], PATH=path, **gpu.toolkit_env)

    def _kubectl(self, arguments: list[str]) -> str:
        if "-k" in arguments:
            # A release of the chart is there; test_limited_pods.py applies deploy/ to a cluster.
            folder = self._kustomization() if arguments[-1] == "." else DEPLOY
            return self.cluster.kubectl("apply", "-k", folder, "--dry-run=server")
        if "examples/" in arguments[-1]:
            # The pod with an image that the node has.
            text = Path(arguments[-1]).read_text()
            path = self._folder / "pod.yaml"
            path.write_text(re.sub(r"image: .*", f"image: {images.CLIENT}", text))
            return self.cluster.kubectl("apply", "-f", path)
        if arguments[-1] == "nvidia-smi":
            # The stub's cards have none, and a program sees the same by CUDA.
            report = json.loads(run_in(self.cluster, arguments[1], [*PROGRAM, "fill", "256"]))
            assert report["total"] == 3000 * MIB
            return ""
        return self.cluster.kubectl(*arguments)

    def _kustomization(self) -> Path:
        """The one of the page that names images, beside a copy of deploy/."""
        (text,) = re.findall(r"^```yaml\n([^`]*\bimages:[^`]*)^```$", TEXT, re.M)
        folder = self._folder / "kustomized"
        shutil.copytree(DEPLOY, folder / "hami" / "deploy")
        (folder / "kustomization.yaml").write_text(text)
        return folder

    def _archive(self) -> Path:
        """The image, as `make image-archive` writes it."""
        path = self._folder / "image.tar"
        with path.open("wb") as stream:
            images.write(images.whole()[:1], stream)
        return path


def _run(command: list[str], **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
