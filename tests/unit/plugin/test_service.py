"""The calls of a kubelet about one container, and what reaches the kubelet of an error."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.registration import Registration
from hami_py.plugin.service import NotYet
from unit.plugin.conftest import Decisions
from unit.plugin.fake_kubelet import DEADLINE, FakeKubelet


@pytest.fixture
def stub(kubelet: FakeKubelet, register: Callable[[], Registration]) -> Iterator[Any]:
    """The registered plugin, as the kubelet calls it."""
    register()
    kubelet.wait(lambda kubelet: kubelet.devices, "the devices are watched")
    channel, stub = kubelet.plugin()
    with channel:
        yield stub


def test_the_preference_gets_what_the_kubelet_offers(stub: Any, decisions: Decisions) -> None:
    request = api.PreferredAllocationRequest(
        container_requests=[
            api.ContainerPreferredAllocationRequest(
                available_deviceIDs=["B::1", "A::0", "B::0"],
                must_include_deviceIDs=["B::1"],
                allocation_size=2,
            ),
            api.ContainerPreferredAllocationRequest(
                available_deviceIDs=["C::0"], allocation_size=1
            ),
        ]
    )
    answer = stub.GetPreferredAllocation(request, timeout=DEADLINE)
    found = [list(each.deviceIDs) for each in answer.container_responses]
    assert found == [["A::0", "B::0"], ["C::0"]]
    assert decisions.asked == [(["B::1", "A::0", "B::0"], ["B::1"], 2), (["C::0"], [], 1)]


def test_an_error_of_the_preference_is_no_error_for_the_kubelet(
    stub: Any, decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet would fail the pod for good. Without a preference it picks devices itself."""

    def fail(*arguments: object) -> None:
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "invalid start byte")

    monkeypatch.setattr(decisions, "prefer", fail)
    request = api.PreferredAllocationRequest(
        container_requests=[
            api.ContainerPreferredAllocationRequest(available_deviceIDs=["A::0"], allocation_size=1)
        ]
    )
    answer = stub.GetPreferredAllocation(request, timeout=DEADLINE)
    assert [list(each.deviceIDs) for each in answer.container_responses] == [[]]


def test_allocate_answers_each_container(stub: Any) -> None:
    request = api.AllocateRequest(
        container_requests=[
            api.ContainerAllocateRequest(devices_ids=["A::1", "B::0"]),
            api.ContainerAllocateRequest(devices_ids=["A::0"]),
        ]
    )
    answer = stub.Allocate(request, timeout=DEADLINE)
    found = [each.envs["IDS"] for each in answer.container_responses]
    assert found == ["A::1,B::0", "A::0"]


@pytest.mark.parametrize(
    ("error", "code", "details"),
    [
        (
            NotYet("pod ä/b", "card A has 0 MiB free", "do nothing: the kubelet tries again"),
            grpc.StatusCode.FAILED_PRECONDITION,
            "pod ä/b: card A has 0 MiB free; do nothing: the kubelet tries again",
        ),
        (
            OSError(28, "No space left on device", "/run/hami"),
            grpc.StatusCode.INTERNAL,
            "hami-py's agent: [Errno 28] No space left on device: '/run/hami'",
        ),
        (KeyError("x"), grpc.StatusCode.INTERNAL, "hami-py's agent: 'x'"),
    ],
)
def test_the_reason_of_a_delay_reaches_the_kubelet(
    stub: Any, decisions: Decisions, error: Exception, code: grpc.StatusCode, details: str
) -> None:
    """The kubelet shows it as the reason why the container waits."""
    decisions.error = error
    request = api.PreStartContainerRequest(devices_ids=["A::0"])
    with pytest.raises(grpc.RpcError) as raised:
        stub.PreStartContainer(request, timeout=DEADLINE)
    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() == code
    assert raised.value.details() == details
    # The kubelet asks again.
    decisions.error = None
    stub.PreStartContainer(request, timeout=DEADLINE)
    assert len(decisions.asked) == 2
