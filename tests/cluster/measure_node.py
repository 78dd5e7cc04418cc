"""How a kubelet takes plugins that come and go, in numbers, for findings.md; root.

PYTHONPATH=tests python -m cluster.measure_node
"""

import contextlib
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from cluster import binaries, images, objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane, Programs
from cluster.device_plugin import Interfaces, Plugin, interfaces, listed
from cluster.measure import GPU, resident, timed
from cluster.node import Node
from cluster.objects import NODES, PODS

IDS = [f"GPU-{number}::0" for number in range(100)]


@dataclass
class Stage:
    """One node with one plugin."""

    cluster: ControlPlane
    node: Node
    compiled: Interfaces
    plugin: Plugin
    stack: contextlib.ExitStack

    def allocatable(self) -> int:
        """How many healthy devices the kubelet knows of now."""
        with grpc.insecure_channel(f"unix://{self.node.pod_resources}") as channel:
            stub = self.compiled.resources_services.PodResourcesListerStub(channel)
            request = self.compiled.resources.AllocatableResourcesRequest()
            answer = stub.GetAllocatableResources(request, timeout=10.0)
        return sum(len(devices.device_ids) for devices in answer.devices)

    def shows(self, count: int) -> None:
        """Wait until the node says that it has this many devices."""
        path = f"{NODES}/{self.node.name}"

        def look() -> bool:
            status = self.cluster.api.get(path)["status"]
            return bool(status["allocatable"].get(GPU) == str(count))

        waiting.until(look, f"{count} devices")

    def running(self) -> int:
        pods = self.cluster.api.list(PODS)
        return sum(pod["status"]["phase"] == "Running" for pod in pods)

    def clear(self) -> None:
        """End all pods."""
        self.cluster.api.delete_all(PODS)
        waiting.until(lambda: not self.cluster.api.list(PODS), "the pods are deleted", 300.0)


def container(name: str = "main", **more: object) -> Object:
    image = {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    return objects.container(name, {GPU: 1}, **image, **more)


def admission(stage: Stage) -> None:
    """How long a pod takes, and whether pods are admitted in the order of their bindings."""
    bound: dict[str, float] = {}

    def run(name: str) -> None:
        api = stage.cluster.api
        api.create(PODS, objects.pod(name, containers=[container()], schedulerName="nobody"))
        target = objects.binding({"metadata": {"name": name}}, stage.node.name)
        api.create(f"{PODS}/{name}/binding", target)
        bound[name] = time.monotonic()

    with timed("one pod bound and running"):
        run("first")
        waiting.until(lambda: stage.running() == 1, "it runs")
    names = [f"p{number}" for number in range(60)]
    with timed("60 more"):
        for name in names:
            threading.Thread(target=run, args=(name,)).start()
        waiting.until(lambda: stage.running() == 61, "all run", 300.0)
    given = [call.ids[0] for call in stage.plugin.calls("Allocate")[1:]]
    pods = {
        containers["main"][0]: name
        for name, containers in listed(stage.compiled, stage.node.pod_resources).items()
    }
    admitted = [pods[id] for id in given]
    in_order = sorted(names, key=bound.__getitem__)
    same = sum(a == b for a, b in zip(admitted, in_order, strict=True))
    print(f"admitted at the place at which their bindings returned: {same} of 60")
    servers = [*stage.cluster.servers, *stage.node.servers]
    print("MiB:", {server.name: resident(server.pid) for server in servers})
    stage.clear()


def hand_over(stage: Stage) -> None:
    """A new plugin registers, the old one ends: for how long the kubelet has no device.

    The new one registers again whenever the kubelet does not watch it; that alone may not last.
    """
    gaps, asked = [], []
    for number in range(10):
        new = Plugin(stage.compiled, stage.node.device_plugins, IDS, name=f"hami-{number}.sock")
        stage.stack.enter_context(new)
        waiting.until(partial(new.calls, "ListAndWatch"), "the new one is watched")
        stage.plugin.stop()
        begin, again, last = time.monotonic(), 0, time.monotonic()
        waiting.until(partial(new.calls, "ListAndWatch ended"), "the new one is let go")
        while time.monotonic() < begin + 1.0:
            if len(new.calls("ListAndWatch")) == len(new.calls("ListAndWatch ended")):
                again += 1
                # The kubelet may close this connection, too, while it asks for the options.
                with contextlib.suppress(grpc.RpcError):
                    new.register()
            if stage.allocatable() == 0:
                last = time.monotonic()
            time.sleep(0.02)
        assert stage.allocatable() == len(IDS), "it is back for good"
        gaps.append(round(1000 * (last - begin)))
        asked.append(again)
        stage.plugin = new
    print("ms from the end of a plugin in which the kubelet had no device:", sorted(gaps))
    print("times that the next had to register again:", sorted(asked))


def restarts(stage: Stage) -> None:
    """The kubelet restarts, the plugin comes back at once: which running pods are still there."""
    registry = stage.node.device_plugins / "kubelet.sock"
    for _ in range(10):
        stage.shows(len(IDS))
        init = [container("init", command=["/bin/true"])]
        plain = objects.pod("plain", containers=[container()])
        with_init = objects.pod("with-init", containers=[container()], initContainers=init)
        for pod in (plain, with_init):
            stage.cluster.api.create(PODS, pod)
        waiting.until(lambda: stage.running() == 2, "both run")
        stage.node.kubelet.stop()
        before = registry.stat().st_ctime_ns
        took: list[float] = []

        def again(before: int = before, took: list[float] = took) -> None:
            while True:
                with contextlib.suppress(FileNotFoundError):
                    if registry.stat().st_ctime_ns != before:
                        break
                time.sleep(0.0005)
            begin = time.monotonic()
            stage.plugin.stop()
            stage.plugin.serve()
            stage.plugin.register()
            took.append(round(1000 * (time.monotonic() - begin)))

        thread = threading.Thread(target=again)
        thread.start()
        stage.node.kubelet.start()
        thread.join()
        # The kubelet has admitted the devices again when a new pod gets them.
        stage.shows(len(IDS))
        stage.cluster.api.create(PODS, objects.pod("next", containers=[container()]))

        def decided() -> bool:
            next_pod = stage.cluster.api.get(f"{PODS}/next")["status"]["phase"]
            return bool(next_pod == "Running")

        waiting.until(decided, "a new pod runs")
        phases = {
            name: stage.cluster.api.get(f"{PODS}/{name}")["status"]["phase"]
            for name in ("plain", "with-init")
        }
        print(f"registered {took[0]} ms after kubelet.sock: {phases}", flush=True)
        stage.clear()


def main() -> None:
    tier = binaries.folder("node")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hami-measure-")))
        with timed("control plane and node ready"):
            programs = Programs(binaries.folder("control-plane"))
            cluster = stack.enter_context(ControlPlane(programs, folder / "c"))
            node = stack.enter_context(Node(tier, cluster, folder / "n"))
        compiled = interfaces()
        plugin = stack.enter_context(Plugin(compiled, node.device_plugins, IDS))
        stage = Stage(cluster, node, compiled, plugin, stack)
        stage.shows(len(IDS))
        admission(stage)
        hand_over(stage)
        restarts(stage)


if __name__ == "__main__":
    main()
