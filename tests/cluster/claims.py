"""ResourceClaims of a driver that is not ours, their pods, and the driver's process on a node."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from cluster import gpu_pods, waiting
from cluster.api import Api, Object
from cluster.claims_driver import NAME, RESOURCES, Configuration
from cluster.control_plane import ControlPlane
from cluster.device_plugin import Interfaces
from cluster.node import Node
from cluster.node_gpu import NodeGpu
from cluster.objects import PODS
from cluster.servers import Server, accepts_unix
from cluster.whole import WholeCluster

CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
CLASSES = f"{RESOURCES}/deviceclasses"
SLICES = f"{RESOURCES}/resourceslices"

#: A resource that no device plugin of the node has, and its class.
EXTENDED = "example.com/gpu"

#: The memory of a card of the profile a100.
WHOLE = "40Gi"

#: Seconds. A kubelet that cannot prepare a claim tries again after 60 to 90 s, also where the API
#: server did not know yet that the claim is of its node.
DEADLINE = 240.0

_TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Call:
    """A call of the kubelet to the driver; ``at`` in seconds since the epoch."""

    at: float
    method: str
    claim: str


class ClaimsDriver:
    """The driver of one node, as a process there. ``server`` is stopped and started by tests."""

    def __init__(self, node: Node, gpu: NodeGpu, folder: Path, name: str = NAME) -> None:
        cluster = node.cluster
        self._api, self._slice = cluster.api, f"{SLICES}/{node.name}-{name}"
        self._folder, self._socket = folder, node.state / "plugins" / name / "dra.sock"
        configuration = Configuration(
            driver=name,
            url=cluster.url,
            authority=str(cluster.authority.certificate),
            certificate=str(cluster.admin.certificate),
            key=str(cluster.admin.key),
            node=node.name,
            state=str(node.state),
            cdi=str(node.cdi),
            folder=str(folder),
            cards=[
                {
                    "name": f"gpu-{minor}",
                    "uuid": uuid,
                    "model": "NVIDIA A100-SXM4-40GB",
                    "memory": WHOLE,
                    "nodes": [
                        (f"/dev/{name}", str(gpu.driver / "dev" / name))
                        for name in ("nvidiactl", f"nvidia{minor}")
                    ],
                }
                for minor, uuid in enumerate(gpu.uuids())
            ],
        )
        file = folder / "configuration.json"
        file.write_text(json.dumps(asdict(configuration)))
        self.server = Server(
            [sys.executable, "-m", "cluster.claims_driver", file],
            folder / "driver.log",
            lambda: accepts_unix(self._socket),
            env={"PYTHONPATH": str(_TESTS)},
            within=node.init_pid,
        )

    def start(self) -> None:
        """Start it, and wait until the kubelet has registered it and its slice is published."""
        before = len(self.calls("NotifyRegistrationStatus"))
        self.server.start()
        self.registered(before)

    def registered(self, before: int) -> None:
        """Wait until it is registered once more than so often, and its slice is there."""
        waiting.until(
            lambda: len(self.calls("NotifyRegistrationStatus")) > before, "it is registered"
        )
        waiting.until(
            lambda: self._api.request("GET", self._slice)[0] == 200, "its slice is published"
        )

    def forget(self) -> None:
        """Forget all calls, and prepare claims again."""
        self.recover()
        (self._folder / "calls.jsonl").unlink(missing_ok=True)

    def calls(self, method: str | None = None, claim: str | None = None) -> list[Call]:
        """The calls so far, in order."""
        log = self._folder / "calls.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        calls = [Call(**json.loads(line)) for line in lines]
        return [
            call for call in calls if method in (None, call.method) and claim in (None, call.claim)
        ]

    def fail(self, text: str) -> None:
        """Answer each claim with this error from now on."""
        (self._folder / "error").write_text(text)

    def hold(self) -> None:
        """Answer no call from now on."""
        (self._folder / "hold").touch()

    def recover(self) -> None:
        """Prepare claims again."""
        for name in ("error", "hold"):
            (self._folder / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class ClaimsCluster:
    """A cluster without hami, with the driver on its node."""

    whole: WholeCluster
    driver: ClaimsDriver

    @property
    def api(self) -> Api:
        return self.whole.api

    @property
    def control_plane(self) -> ControlPlane:
        return self.whole.control_plane

    @property
    def node(self) -> Node:
        return self.whole.node

    @property
    def gpu(self) -> NodeGpu:
        return self.whole.gpu

    def phase(self, name: str, wanted: str) -> Object:
        """The pod, once it is in this phase."""
        return gpu_pods.phase(self.control_plane, name, wanted, deadline=DEADLINE)

    def clear(self) -> None:
        """Delete all pods and claims, and forget the driver's calls."""
        for path in (PODS, CLAIMS):
            self.api.delete_all(path)
            waiting.until(partial(self._is_empty, path), f"no object is left at {path}")
        # It refuses another claim of the same name before that.
        waiting.until(
            lambda: not self._prepared(), "the kubelet has unprepared all claims", DEADLINE
        )
        self.driver.forget()

    def _prepared(self) -> list[Object]:
        """The claims in the kubelet's record."""
        content = json.loads((self.node.state / "dra_manager_state").read_text())
        claims: list[Object] = json.loads(content["Data"])["ClaimInfoStateList"]
        return claims

    def _is_empty(self, path: str) -> bool:
        return not self.api.list(path)


def device_class(name: str = NAME, driver: str = NAME, **more: Any) -> Object:
    """All devices of the driver; ``more`` are other fields of its spec."""
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return {"metadata": {"name": name}, "spec": {"selectors": [selector], **more}}


def spec(
    requests: Mapping[str, str | None], config: Sequence[Object] = (), of: str = NAME
) -> Object:
    """The spec of a claim: by name of a request its memory, such as ``4Gi``; None: no amount.

    ``of`` is the class of all requests.
    """
    return {
        "devices": {
            "requests": [
                {"name": name, "exactly": {"deviceClassName": of, **_capacity(memory)}}
                for name, memory in requests.items()
            ],
            "config": [*config],
        }
    }


def _capacity(memory: str | None) -> Object:
    return {} if memory is None else {"capacity": {"requests": {"memory": memory}}}


def opaque(driver: str, parameters: Object) -> Object:
    """A configuration of a claim, for this driver."""
    return {"opaque": {"driver": driver, "parameters": parameters}}


def create(
    api: Api,
    name: str,
    requests: Mapping[str, str | None],
    config: Sequence[Object] = (),
    of: str = NAME,
) -> Object:
    """Create a claim."""
    return api.create(CLAIMS, {"metadata": {"name": name}, "spec": spec(requests, config, of)})


def uses(name: str, script: str, *claims: tuple[str, str | None], **more: Any) -> Object:
    """A container that uses these claims of its pod: (claim, request), or all its requests."""
    used = [
        {"name": claim, **({} if request is None else {"request": request})}
        for claim, request in claims
    ]
    container = gpu_pods.runs(name, script, **{"count": 0, **more})
    container["resources"]["claims"] = used
    return container


def pod(name: str, containers: Sequence[Object], claims: Sequence[str], **more: Any) -> Object:
    """A pod that uses these claims, by their own names."""
    used = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return gpu_pods.pod(name, *containers, resourceClaims=used, **more)


def allocation(api: Api, name: str) -> Object:
    """The allocated devices of a claim, with their configurations."""
    devices: Object = api.get(f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]
    return devices


def results(api: Api, name: str) -> dict[str, Object]:
    """The allocated device of each request of a claim."""
    return {each["request"]: each for each in allocation(api, name)["results"]}


def shown(interfaces: Interfaces, socket: Path) -> dict[str, dict[str, list[tuple[str, ...]]]]:
    """The claimed devices of each pod and container as pod-resources shows them.

    A device is (claim, driver, device, share ID).
    """
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        stub = interfaces.resources_services.PodResourcesListerStub(channel)
        answer = stub.List(interfaces.resources.ListPodResourcesRequest(), timeout=10.0)
    return {
        pod.name: {
            container.name: sorted(
                (claim.claim_name, each.driver_name, each.device_name, each.share_id)
                for claim in container.dynamic_resources
                for each in claim.claim_resources
            )
            for container in pod.containers
        }
        for pod in answer.pod_resources
    }


_LINE = re.compile(
    r'time="(?P<time>\S+)" level=info msg="(?P<call>RunPodSandbox|CreateContainer) '
    r'(?:for|within sandbox \\"(?P<sandbox>\w+)\\" for container) name:\\"(?P<name>[^"]+)\\"'
    r'(?P<rest>.*)"'
)
_SANDBOX = "returns sandbox id "


def runtime_calls(log: Path, uid: str) -> list[tuple[str, float]]:
    """The kubelet's calls to containerd for a pod, with seconds since the epoch.

    ``log`` is containerd's. They are ``RunPodSandbox`` and ``CreateContainer NAME``.
    """
    found: list[tuple[str, float]] = []
    sandboxes = set()
    for line in map(_LINE.match, log.read_text().splitlines()):
        if line is None:
            continue
        at = datetime.fromisoformat(_micro(line["time"])).timestamp()
        if line["sandbox"] in sandboxes:
            found.append((f"CreateContainer {line['name']}", at))
        elif line["call"] == "RunPodSandbox" and f'uid:\\"{uid}\\"' in line["rest"]:
            _, answered, sandbox = line["rest"].partition(_SANDBOX)
            if answered:
                sandboxes.add(sandbox.strip('\\"'))
            else:
                found.append(("RunPodSandbox", at))
    return found


def _micro(time: str) -> str:
    """RFC 3339 with nanoseconds, as Python 3.10 reads it."""
    return re.sub(r"(\.\d{6})\d*", r"\1", time).replace("Z", "+00:00")
