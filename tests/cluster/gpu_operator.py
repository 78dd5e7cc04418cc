"""What NVIDIA's GPU Operator leaves in a cluster: labels, files of a node, and a DaemonSet.

As of v26.7: https://github.com/NVIDIA/gpu-operator, below `assets/`, and of the toolkit's
`nvidia-ctk-installer`. The driver container's file system is the stub's driver root.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from cluster import images, toolkit
from cluster.api import Api, Object
from cluster.node_gpu import NodeGpu
from cluster.objects import NODES
from cluster.whole import WholeCluster

#: The Operator's namespace, by its documentation.
NAMESPACE = "gpu-operator"

DEPLOY = "nvidia.com/gpu.deploy.device-plugin"

#: Of the Operator, and of the GPU feature discovery that it installs.
LABELS = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.deploy.container-toolkit": "true",
    "nvidia.com/gpu.deploy.driver": "true",
    DEPLOY: "true",
}

#: On the node.
DRIVER, VALIDATIONS = Path("run/nvidia/driver"), Path("run/nvidia/validations")
TOOLKIT = Path("usr/local/nvidia/toolkit")
READY = VALIDATIONS / "toolkit-ready"

#: Stands in for NVIDIA's device plugin: it listens on the same socket.
_PLUGIN = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
listener = socket.socket(socket.AF_UNIX)
listener.bind("/var/lib/kubelet/device-plugins/nvidia-gpu.sock")
listener.listen()
while True:
    listener.accept()[0].close()
"""


def install(cluster: WholeCluster, driver: Path) -> None:
    """All that is there before a validation has passed; ``driver`` is the driver's root."""
    root = cluster.node.root
    for place in (DRIVER, VALIDATIONS, TOOLKIT):
        (root / place).mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", f"{driver}/.", root / DRIVER], check=True)
    shutil.copy(toolkit.program("nvidia-cdi-hook"), root / TOOLKIT)
    shutil.copy(toolkit.program("nvidia-ctk"), root / TOOLKIT / "nvidia-ctk.real")
    wrapper = root / TOOLKIT / "nvidia-ctk"
    # As NVIDIA's installer writes it, and with the variable that reaches the stub.
    devices = f"STUB_GPU_DEVICES=/{DRIVER}/dev"
    reaches = f"STUB_GPU_SOCKET={cluster.gpu.client_socket} \\\n{devices}"
    calls = f'PATH=/{TOOLKIT}:$PATH \\\n{reaches} \\\n\t/{TOOLKIT}/nvidia-ctk.real \\\n\t\t"$@"'
    wrapper.write_text(f"#! /bin/sh\n{calls}\n")
    wrapper.chmod(0o755)
    api = cluster.api
    api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": LABELS}})
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    runtime_class = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)


def ready(cluster: WholeCluster) -> None:
    """The validator has found driver and toolkit working."""
    for file in (VALIDATIONS / "driver-ready", READY):
        (cluster.node.root / file).touch()


def add_stub(gpu: NodeGpu, pod: Object) -> None:
    """Let the programs of a pod reach the stub, which the toolkit's own specification cannot."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    socket = {"name": "STUB_GPU_SOCKET", "value": f"/stub/{gpu.client_socket.name}"}
    container["env"] += [socket, {"name": "STUB_GPU_DEVICES", "value": "/dev"}]
    container["volumeMounts"] = [{"name": "stub", "mountPath": "/stub"}]
    spec["volumes"] = [{"name": "stub", "hostPath": {"path": str(gpu.client_socket.parent)}}]


def check_specification(file: Path, cards: Sequence[str]) -> None:
    """That a specification has these cards, and the driver's files at their usual places."""
    made = yaml.safe_load(file.read_text())
    assert {each["name"] for each in made["devices"]} >= {*cards}
    edits = [made["containerEdits"], *(each["containerEdits"] for each in made["devices"])]
    files = [
        each for edit in edits for each in (*edit.get("mounts", ()), *edit.get("deviceNodes", ()))
    ]
    on_node = {each.get("containerPath", each.get("path")): each["hostPath"] for each in files}
    assert {f"/dev/nvidia{number}" for number in range(len(cards))} <= on_node.keys()
    assert any(Path(inside).name.startswith("libcuda.so.") for inside in on_node)
    for inside, path in on_node.items():
        # A mark in the container for NVIDIA's runtime.
        assert path in (f"/{DRIVER}{inside}", "/dev/null"), inside
    hooks = {hook["path"] for edit in edits for hook in edit.get("hooks", ())}
    assert hooks == {f"/{TOOLKIT}/nvidia-cdi-hook"}


def start_plugin(api: Api) -> None:
    """The DaemonSet of NVIDIA's device plugin, with what matters to us of it."""
    labels = {"app": "nvidia-device-plugin-daemonset"}
    container: Object = {
        "name": "nvidia-device-plugin",
        "image": images.CLIENT,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _PLUGIN],
        "securityContext": {"privileged": True},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "volumeMounts": [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    path = {"path": "/var/lib/kubelet/device-plugins"}
    spec = {
        "nodeSelector": {DEPLOY: "true"},
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "device-plugin", "hostPath": path}],
    }
    daemonset = {
        "metadata": {"name": labels["app"], "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", daemonset)


def remove(cluster: WholeCluster) -> None:
    """Take all of it away."""
    api = cluster.api
    gone = dict.fromkeys(LABELS)
    api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": gone}})
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    api.delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia")
    for place in ("run/nvidia", "usr/local/nvidia"):
        shutil.rmtree(cluster.node.root / place)
