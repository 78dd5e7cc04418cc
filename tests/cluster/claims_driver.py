"""A DRA driver that is not ours, in the shape of NVIDIA's: one device a card, shared by memory.

    python -m cluster.claims_driver CONFIGURATION        # `claims.ClaimsDriver` starts it on a node

It publishes one ResourceSlice for its node, prepares claims for the kubelet (dra v1), and describes
what a claim contains in a CDI specification of its own. A parameter ``containerEdits`` of a claim
for this driver is added to the edits of each device. It enforces nothing.

With another ``driver`` it is that of other devices, such as a network's.

CONFIGURATION is a JSON file; `Configuration` has its fields. The driver appends each call of the
kubelet to ``calls.jsonl`` in its folder. While a file ``error`` is there, each claim fails with its
text; while a file ``hold`` is there, no claim is answered.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import urllib3

from cluster.api import Api, Object
from cluster.certificates import Identity
from cluster.claims_api import (
    dra_pb2,
    dra_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

NAME = "gpu.nvidia.com"

RESOURCES = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True)
class Configuration:
    """What the driver is started with.

    ``driver`` is its name. ``cards`` have ``name``, ``uuid``, ``model``, ``memory`` (a quantity),
    and ``nodes``: for each device node its path in the container and on the host. ``state`` is the
    kubelet's folder.
    """

    driver: str
    url: str
    authority: str
    certificate: str
    key: str
    node: str
    state: str
    cdi: str
    folder: str
    cards: list[Object]

    @property
    def api(self) -> Api:
        identity = Identity(Path(self.certificate), Path(self.key))
        return Api(self.url, Path(self.authority), identity)


def resource_slice(configuration: Configuration) -> Object:
    """The cards of the node; the pool is the node."""
    node, driver = configuration.node, configuration.driver
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(card) for card in configuration.cards],
        },
    }


def _device(card: Object) -> Object:
    whole = card["memory"]
    policy = {"default": whole, "validRange": {"min": "1Mi", "step": "1Mi"}}
    return {
        "name": card["name"],
        "attributes": {"uuid": {"string": card["uuid"]}, "productName": {"string": card["model"]}},
        "capacity": {"memory": {"value": whole, "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }


class Driver(dra_pb2_grpc.DRAPluginServicer, pluginregistration_pb2_grpc.RegistrationServicer):
    """Both services of the driver; method names are the interfaces'."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration, self._api = configuration, configuration.api
        self._cards = {card["name"]: card for card in configuration.cards}
        self._folder, self._cdi = Path(configuration.folder), Path(configuration.cdi)
        state = Path(configuration.state)
        self._name = configuration.driver
        self._kind = f"{self._name}/claim"
        self._endpoint = state / "plugins" / self._name / "dra.sock"
        self._registry = state / "plugins_registry" / f"{self._name}-reg.sock"
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve until SIGTERM; the kubelet finds the socket and registers the driver.

        The slice is published again when it is missing: a kubelet that starts deletes all slices
        of its node.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        servers = [
            self._serve(self._endpoint, dra_pb2_grpc.add_DRAPluginServicer_to_server),
            self._serve(
                self._registry, pluginregistration_pb2_grpc.add_RegistrationServicer_to_server
            ),
        ]
        while signal.sigtimedwait([signal.SIGTERM], 1.0) is None:
            self._publish()
        self._registry.unlink(missing_ok=True)
        for server in servers:
            server.stop(grace=None).wait(30.0)

    def _serve(self, socket: Path, add: Callable[[Any, grpc.Server], None]) -> grpc.Server:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(16))
        add(self, server)
        server.add_insecure_port(f"unix://{socket}")
        server.start()
        return server

    def _publish(self) -> None:
        wanted = resource_slice(self._configuration)
        # The API server may be away.
        with suppress(urllib3.exceptions.HTTPError):
            code, answer = self._api.request("POST", f"{RESOURCES}/resourceslices", wanted)
            assert code in (201, 409), answer

    def _note(self, method: str, claim: str = "") -> None:
        line = json.dumps({"at": time.time(), "method": method, "claim": claim})
        with self._lock, (self._folder / "calls.jsonl").open("a") as log:
            log.write(line + "\n")

    def GetInfo(self, request: Any, context: Any) -> Any:
        return pluginregistration_pb2.PluginInfo(
            type="DRAPlugin",
            name=self._name,
            endpoint=str(self._endpoint),
            supported_versions=["v1.DRAPlugin"],
        )

    def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
        self._note("NotifyRegistrationStatus", request.error)
        return pluginregistration_pb2.RegistrationStatusResponse()

    def NodePrepareResources(self, request: Any, context: Any) -> Any:
        answer = dra_pb2.NodePrepareResourcesResponse()
        for claim in request.claims:
            self._note("NodePrepareResources", claim.name)
            while (self._folder / "hold").exists() and context.is_active():
                time.sleep(0.05)
            answer.claims[claim.uid].CopyFrom(self._prepare(claim))
            self._note("NodePrepareResources answered", claim.name)
        return answer

    def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
        answer = dra_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            self._note("NodeUnprepareResources", claim.name)
            self._specification(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].CopyFrom(dra_pb2.NodeUnprepareResourceResponse())
        return answer

    def _prepare(self, claim: Any) -> Any:
        error = self._folder / "error"
        if error.exists():
            return dra_pb2.NodePrepareResourceResponse(error=error.read_text())
        path = f"{RESOURCES}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        allocated = self._api.get(path)["status"]["allocation"]["devices"]
        results = [each for each in allocated["results"] if each["driver"] == self._name]
        devices = {f"{claim.uid}-{index}": each for index, each in enumerate(results)}
        self._write(claim.uid, devices, allocated.get("config", []))
        return dra_pb2.NodePrepareResourceResponse(
            devices=[
                dra_pb2.Device(
                    request_names=[result["request"]],
                    pool_name=result["pool"],
                    device_name=result["device"],
                    cdi_device_ids=[f"{self._kind}={name}"],
                    share_id=result.get("shareID"),
                )
                for name, result in devices.items()
            ]
        )

    def _write(self, uid: str, devices: Object, config: list[Object]) -> None:
        described = [
            {"name": name, "containerEdits": self._edits(result, config)}
            for name, result in devices.items()
        ]
        file = self._specification(uid)
        unfinished = file.with_suffix(".tmp")
        content = {"cdiVersion": "0.6.0", "kind": self._kind, "devices": described}
        unfinished.write_text(json.dumps(content))
        unfinished.rename(file)

    def _edits(self, result: Object, config: list[Object]) -> Object:
        """The card's device nodes, a variable for the request, and what the claim adds."""
        nodes = self._cards[result["device"]]["nodes"]
        amount = result.get("consumedCapacity", {}).get("memory", "")
        name = result["request"].upper().replace("-", "_")
        added: Object = {}
        for each in config:
            requests, opaque = each.get("requests"), each["opaque"]
            if opaque["driver"] == self._name and (not requests or result["request"] in requests):
                added = opaque["parameters"].get("containerEdits", {})
        return {
            **added,
            "deviceNodes": [{"path": path, "hostPath": host} for path, host in nodes],
            "env": [f"CLAIM_{name}={result['device']}:{amount}", *added.get("env", [])],
        }

    def _specification(self, uid: str) -> Path:
        return self._cdi / f"{self._name}-claim_{uid}.json"


if __name__ == "__main__":
    Driver(Configuration(**json.loads(Path(sys.argv[1]).read_text()))).run()
