"""The kubelet's list of pods, from a server that answers, is slow, refuses, or is not there."""

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from hami_py.errors import StateError
from hami_py.plugin.api import podresources_pb2 as api
from hami_py.plugin.api import podresources_pb2_grpc as services
from hami_py.plugin.pod_resources import PodResources
from unit.plugin.conftest import RESOURCE
from unit.plugin.fake_kubelet import DEADLINE


class Lister(services.PodResourcesListerServicer):
    """The kubelet's service; ``hangs`` and ``code`` are how it fails."""

    def __init__(self) -> None:
        self.answer = api.ListPodResourcesResponse()
        self.code: grpc.StatusCode | None = None
        self.hangs = False
        self.end = threading.Event()

    def List(
        self, request: api.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> api.ListPodResourcesResponse:
        if self.hangs:
            self.end.wait(DEADLINE)
        if self.code is not None:
            context.abort(self.code, "rejected by rate limit")
        return self.answer


def serve(lister: Lister, socket: Path) -> grpc.Server:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    services.add_PodResourcesListerServicer_to_server(lister, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def end(server: grpc.Server, lister: Lister) -> None:
    lister.end.set()
    server.stop(grace=None).wait(DEADLINE)


@pytest.fixture
def socket(folder: Path) -> Path:
    return folder / "kubelet.sock"


@pytest.fixture
def lister(socket: Path) -> Iterator[Lister]:
    lister = Lister()
    server = serve(lister, socket)
    yield lister
    end(server, lister)


@pytest.fixture
def pods(socket: Path) -> PodResources:
    return PodResources(socket)


def test_the_pods_by_namespace_and_name(lister: Lister, pods: PodResources) -> None:
    for namespace in ("ml", "web"):
        lister.answer.pod_resources.add(name="train", namespace=namespace)
    assert pods.list(DEADLINE) == [("ml", "train"), ("web", "train")]


def test_a_list_that_is_longer_than_a_message_of_grpc_may_be(
    lister: Lister, pods: PodResources
) -> None:
    """gRPC's default is 4 MiB; 500 pods with many CPUs and devices need more."""
    ids = [f"GPU-6f1c2f0d-2f3a-4b1b-8f52-3c2ad3f9c1a7::{number}" for number in range(100_000)]
    lister.answer.pod_resources.add(name="big", namespace="ml").containers.add(
        name="main"
    ).devices.add(resource_name=RESOURCE, device_ids=ids)
    assert lister.answer.ByteSize() > 4 << 20
    assert pods.list(DEADLINE) == [("ml", "big")]


def test_a_kubelet_that_hangs(lister: Lister, pods: PodResources) -> None:
    lister.hangs = True
    with pytest.raises(StateError, match="pod-resources: Deadline Exceeded"):
        pods.list(0.05)
    lister.end.set()
    lister.hangs = False
    assert pods.list(DEADLINE) == []


def test_a_kubelet_that_limits_the_rate(lister: Lister, pods: PodResources) -> None:
    lister.code = grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(StateError, match="rejected by rate limit; try again later"):
        pods.list(DEADLINE)
    lister.code = None
    assert pods.list(DEADLINE) == []


def test_no_kubelet(pods: PodResources) -> None:
    with pytest.raises(StateError, match="pod-resources"):
        pods.list(DEADLINE)


def test_after_a_restart_of_the_kubelet(socket: Path, pods: PodResources) -> None:
    for name in ("before", "after"):
        lister = Lister()
        lister.answer.pod_resources.add(name=name, namespace="ml")
        server = serve(lister, socket)
        try:
            assert pods.list(DEADLINE) == [("ml", name)]
        finally:
            end(server, lister)
