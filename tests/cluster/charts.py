"""Helm, and what it makes of deploy/chart."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries
from cluster.api import Object
from cluster.control_plane import ControlPlane
from support.artifacts import ROOT

CHART = ROOT / "deploy" / "chart"

#: The release and the namespace of deploy/, which is rendered from the chart.
RELEASE, NAMESPACE = "hami", "hami-system"

#: Seconds for one command: it may wait for pods.
_DEADLINE = 300.0


def helm(
    *arguments: str | Path, kubeconfig: Path | None = None, group: str = "helm"
) -> subprocess.CompletedProcess[str]:
    """Runs Helm 4, or another group's; it keeps nothing in the user's home."""
    command = [str(binaries.folder(group) / "helm"), *map(str, arguments)]
    config = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
    homes = {f"HELM_{name}_HOME": "/nonexistent" for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        command,
        env={**os.environ, **homes, **config},
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )


def template(*arguments: str | Path, group: str = "helm", release: str = RELEASE) -> str:
    """What would be installed, as text; for the locked version of Kubernetes."""
    of = ("--namespace", NAMESPACE, "--kube-version", binaries.kubernetes_version())
    done = helm("template", release, CHART, *of, *arguments, group=group)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*arguments: str | Path) -> list[Object]:
    """The objects that would be installed."""
    return [each for each in yaml.safe_load_all(template(*arguments)) if each is not None]


def one(made: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of this kind whose name ends so."""
    (found,) = [
        each for each in made if each["kind"] == kind and each["metadata"]["name"].endswith(name)
    ]
    return found


def template_of(made: Iterable[Object], kind: str, name: str = "") -> Object:
    """The pod's spec of a Deployment or a DaemonSet."""
    spec: Object = one(made, kind, name)["spec"]["template"]["spec"]
    return spec


def run(cluster: ControlPlane, *arguments: str | Path, group: str = "helm") -> str:
    """The output of a command that has to succeed, as cluster-admin."""
    done = helm(*arguments, kubeconfig=cluster.kubeconfig, group=group)
    assert done.returncode == 0, f"helm {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def values() -> dict[str, Any]:
    """The default values."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))
