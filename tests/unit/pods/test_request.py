"""From the resources of a pod to its request."""

from typing import Any

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.model.pods.wire import ContainerRequest, Size
from unit.pods.build import UID, Manifest, asking, container, pod, refused, says

WHOLE = "whole"


def asks(written: pods.Pod, settings: PodSettings | None = None) -> list[ContainerRequest]:
    request = pods.read_request(written, settings or PodSettings())
    assert request is not None
    return list(request.containers)


# limits of one container; cards, memory, cores
GOOD: list[tuple[Manifest, int, Any, int]] = [
    ({"gpu": 1}, 1, WHOLE, 100),
    ({"gpu": "1"}, 1, WHOLE, 100),
    ({"gpu": 16}, 16, WHOLE, 100),
    ({"gpu": 1, "gpumem": 3000}, 1, Size(mib=3000), 0),
    ({"gpu": 1, "gpumem": "3k"}, 1, Size(mib=3000), 0),
    ({"gpu": 2, "gpumem": "4Ki", "gpucores": 30}, 2, Size(mib=4096), 30),
    ({"gpumem": 3000}, 1, Size(mib=3000), 0),
    ({"gpucores": 30}, 1, WHOLE, 30),
    ({"gpumem-percentage": 50}, 1, Size(percent=50), 0),
    ({"gpu": 2, "gpumem-percentage": 50}, 2, Size(percent=50), 0),
    ({"gpumem-percentage": 100}, 1, WHOLE, 100),
    ({"gpu": 1, "gpumem-percentage": 0}, 1, WHOLE, 100),
    ({"gpumem": 3000, "gpumem-percentage": 0}, 1, Size(mib=3000), 0),
    ({"gpu": 1, "gpucores": 0}, 1, WHOLE, 0),
    ({"gpu": 1, "gpucores": 100}, 1, WHOLE, 100),
    ({"gpu": 1, "gpumem": 3000, "gpucores": 100}, 1, Size(mib=3000), 100),
    ({"gpu": 1, "gpumem": 1048575}, 1, Size(mib=1048575), 0),
]


@pytest.mark.parametrize(("limits", "cards", "memory", "cores"), GOOD)
def test_the_request_of_a_container(limits: Manifest, cards: int, memory: Any, cores: int) -> None:
    meant = [ContainerRequest("train", "app", cards, memory, cores)]
    assert asks(pod(container(limits=limits))) == meant
    assert asks(pod(container(requests=limits))) == meant
    assert asks(pod(container(limits=limits, requests=limits))) == meant


@pytest.mark.parametrize(
    "resources",
    [
        None,
        {},
        {"limits": None},
        {"limits": {"cpu": "500m", "memory": "4Gi"}, "requests": {"cpu": 0.5}},
        {"limits": {"nvidia.com/gpu": 0}},
        {"limits": {"nvidia.com/gpu": "0", "nvidia.com/gpucores": "0"}},
        {"limits": {"nvidia.com/gpumem-percentage": 0}},
        {"limits": {"nvidia.com/mig-1g.5gb": 1}},
        {"limits": {"amd.com/gpu": 1}},
    ],
)
def test_a_pod_without_a_gpu_request(resources: Manifest | None) -> None:
    assert pods.read_request(pod(container(resources=resources))) is None


# limits of one container; the name that is to blame, the value, a part of the fix
BAD: list[tuple[Manifest, str, str, str]] = [
    ({"gpu": 17}, "gpu", "17", "from 0 to 16"),
    ({"gpu": -1}, "gpu", "-1", "from 0 to 16"),
    ({"gpu": "500m"}, "gpu", "500m", "nvidia.com/gpumem and nvidia.com/gpucores"),
    ({"gpu": 1.5}, "gpu", "1.5", "nvidia.com/gpumem and nvidia.com/gpucores"),
    ({"gpu": "one"}, "gpu", "one", "write a whole number, like 1"),
    ({"gpu": 0, "gpumem": 3000}, "gpu", "0", "write 1, or remove those"),
    ({"gpu": 0, "gpucores": 30}, "gpu", "0", "write 1, or remove those"),
    ({"gpumem": 0}, "gpumem", "0", "leave it out for the whole card"),
    ({"gpu": 1, "gpumem": 0}, "gpumem", "0", "leave it out for the whole card"),
    ({"gpumem": "4Gi"}, "gpumem", "4Gi", "for 4GiB write 4096"),
    ({"gpumem": "4GiB"}, "gpumem", "4GiB", "write 4096"),
    ({"gpumem": "4096m"}, "gpumem", "4096m", "write 4096"),
    ({"gpumem": -3000}, "gpumem", "-3000", "from 1 to 1048575"),
    ({"gpumem": 4294967297}, "gpumem", "4294967297", "from 1 to 1048575"),
    ({"gpumem": "3000.5"}, "gpumem", "3000.5", "write a whole number"),
    ({"gpumem-percentage": 101}, "gpumem-percentage", "101", "from 1 to 100, like 50"),
    ({"gpumem-percentage": -1}, "gpumem-percentage", "-1", "from 1 to 100"),
    ({"gpumem-percentage": "50%"}, "gpumem-percentage", "50%", "from 1 to 100, like 50"),
    ({"gpumem-percentage": "0.5"}, "gpumem-percentage", "0.5", "from 1 to 100"),
    (
        {"gpumem": 3000, "gpumem-percentage": 50},
        "gpumem-percentage",
        "50",
        "nvidia.com/gpumem sets the memory already: keep one of them",
    ),
    ({"gpucores": 101}, "gpucores", "101", "from 1 to 100, like 30; 0 means no limit"),
    ({"gpucores": -1}, "gpucores", "-1", "from 1 to 100"),
    ({"gpucores": "30%"}, "gpucores", "30%", "like 30"),
    ({"gpucores": "300m"}, "gpucores", "300m", "like 30"),
    ({"gpu": 1, "priority": 2}, "priority", "2", "write 0 for high or 1 for low"),
    ({"gpu": 1, "priority": "high"}, "priority", "high", "write 0 for high or 1 for low"),
    ({"priority": 0}, "priority", "0", "add nvidia.com/gpu, or remove this"),
    ({"gpu": 0, "priority": 1}, "priority", "1", "add nvidia.com/gpu, or remove this"),
]


@pytest.mark.parametrize(("limits", "name", "value", "fix"), BAD)
def test_an_invalid_request_is_not_an_empty_one(
    limits: Manifest, name: str, value: str, fix: str
) -> None:
    for where in ("limits", "requests"):
        field = f"spec.containers[1].resources.{where}[nvidia.com/{name}]"
        written = pod(container("sidecar"), container(**{where: limits}))
        refused(written, field, value, fix)


def test_equal_limits_and_requests() -> None:
    written = pod(container(limits={"gpumem": "1Ki"}, requests={"gpumem": "1024"}))
    assert asks(written)[0].memory == Size(mib=1024)


@pytest.mark.parametrize(
    ("limit", "request_", "value", "fix"),
    [
        (3000, 2000, "2000", "the limit is 3000: write the same number, or remove the request"),
        (3000, "4Gi", "4Gi", "for 4GiB write 4096"),
        ("3k", 0, "0", "leave it out for the whole card"),
    ],
)
def test_limits_and_requests_that_contradict(
    limit: Any, request_: Any, value: str, fix: str
) -> None:
    field = "spec.containers[0].resources.requests[nvidia.com/gpumem]"
    written = pod(container(limits={"gpumem": limit}, requests={"gpumem": request_}))
    refused(written, field, value, fix)


def test_limits_come_first_and_requests_fill_in() -> None:
    written = pod(container(limits={"gpu": 2}, requests={"gpumem": 3000}))
    assert asks(written) == [ContainerRequest("train", "app", 2, Size(mib=3000), 0)]


def test_init_containers_and_sidecars_come_first_in_the_order_of_the_pod() -> None:
    written = pod(
        container("web", limits={"gpumem": 1000}),
        container("proxy", limits={"cpu": 1}),
        container("train", limits={"gpu": 2}),
        init=(
            container("warm", limits={"gpumem": 2000}),
            container("copy"),
            container("cache", limits={"gpumem": 500}, restartPolicy="Always"),
        ),
    )
    assert [(a.container, a.kind) for a in asks(written)] == [
        ("warm", "init"),
        ("cache", "sidecar"),
        ("web", "app"),
        ("train", "app"),
    ]


def test_an_init_container_is_named_as_such() -> None:
    written = pod(container(), init=(container("warm", limits={"gpu": 17}),))
    refused(
        written, "spec.initContainers[0].resources.limits[nvidia.com/gpu]", "17", "from 0 to 16"
    )


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a" * 64, "a\n", "ä"])
def test_an_invalid_container_name(name: str) -> None:
    written = pod(container(name, limits={"gpu": 1}))
    refused(written, "spec.containers[0].name", name, "write a container's name")


def test_a_name_that_two_containers_have() -> None:
    both = pod(container(limits={"gpu": 1}), init=(container(limits={"gpu": 1}),))
    refused(both, "spec.containers[0].name", "train", "another container has this name")


def test_the_request_has_the_known_names_of_the_pod() -> None:
    request = pods.read_request(asking(gpu=1))
    assert request is not None
    assert request.pod == pods.wire.PodName(UID, "ml", "p")
    assert request.priority == 0
    written = {"metadata": {"generateName": "p-"}, "spec": {"containers": [], "priority": -5}}
    written["spec"]["containers"] = [container(limits={"gpu": 1})]
    request = pods.read_request(pods.decode_pod.convert(written))
    assert request is not None
    assert request.pod == pods.wire.PodName("", "", "")
    assert request.priority == -5


def test_a_request_is_what_the_allocator_reads() -> None:
    request = pods.read_request(asking(gpu=2, gpumem_percentage=50, gpucores=30))
    assert request is not None
    assert pods.wire.encode(request) == (
        b'{"pod":{"uid":"7a0c5d2e-9b1f-4d3a-8c6e-1f2a3b4c5d6e","namespace":"ml","name":"p"},'
        b'"priority":0,"containers":[{"container":"train","kind":"app","cards":2,'
        b'"memory":{"percent":50},"cores":30}],"card_request":{}}'
    )


# Settings.


def test_defaults_can_be_changed() -> None:
    others = PodSettings(default_cards=2, default_memory_mib=1000, default_cores=10)
    assert asks(asking(gpumem=3000), others) == [
        ContainerRequest("train", "app", 2, Size(mib=3000), 10)
    ]
    assert asks(asking(gpu=1), others) == [ContainerRequest("train", "app", 1, Size(mib=1000), 10)]
    assert asks(asking(gpumem_percentage=100), others) == [
        ContainerRequest("train", "app", 2, WHOLE, 100)
    ]


def test_no_default_for_cards_refuses_a_pod_that_names_none() -> None:
    field = "spec.containers[0].resources.limits[nvidia.com/gpu]"
    refused(asking(gpumem=3000), field, "", "it is required", default_cards=0)


def test_other_prefixes() -> None:
    settings = PodSettings(profiles=(pods.hami("example.com", "gpu.example.com"),))
    written = pod(container(limits={"example.com/gpumem": 3000, "nvidia.com/gpu": 4}))
    assert asks(written, settings) == [ContainerRequest("train", "app", 1, Size(mib=3000), 0)]
    assert pods.read_request(asking(gpu=1), settings) is None
    refused(
        pod(container(limits={"example.com/gpu": 17})),
        "spec.containers[0].resources.limits[example.com/gpu]",
        "17",
        "from 0 to 16",
        profiles=settings.profiles,
    )


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"default_cards": 17}, "default_cards", "17"),
        ({"default_cores": 101}, "default_cores", "101"),
        ({"default_cores": -1}, "default_cores", "-1"),
        ({"core_policy": "hard"}, "core_policy", "hard"),
        ({"profiles": ()}, "profiles", ""),
    ],
)
def test_invalid_settings(settings: Manifest, field: str, value: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        PodSettings(**settings)
    says(caught.value, field, value, "")


# The names of Alibaba Cloud.

ACK = PodSettings(profiles=(HAMI, ALIYUN))
MEM, CORE, COUNT = (f"aliyun.com/gpu-{name}" for name in ("mem", "core.percentage", "count"))


@pytest.mark.parametrize(
    ("limits", "labels", "meant"),
    [
        ({MEM: 3}, {}, (1, Size(mib=3072), 0)),
        ({MEM: 8}, {COUNT: "2"}, (2, Size(mib=4096), 0)),
        ({MEM: 8, "gpu": 2}, {}, (2, Size(mib=4096), 0)),
        ({MEM: 3, CORE: 30}, {}, (1, Size(mib=3072), 30)),
        ({"gpu": 2}, {COUNT: "4"}, (2, WHOLE, 100)),
        ({"gpumem": 3000}, {COUNT: "4"}, (1, Size(mib=3000), 0)),
    ],
)
def test_aliyun(limits: Manifest, labels: dict[str, str], meant: tuple[int, Any, int]) -> None:
    written = pod(container(limits=limits), labels=labels)
    assert asks(written, ACK) == [ContainerRequest("train", "app", *meant)]


@pytest.mark.parametrize(
    ("limits", "labels", "name", "value", "fix"),
    [
        ({MEM: 7}, {COUNT: "2"}, MEM, "7", "write a multiple of 2"),
        ({MEM: 8, "gpu": 4}, {COUNT: "2"}, "nvidia.com/gpu", "4", f"the label {COUNT} is 2"),
        ({MEM: "3Gi"}, {}, MEM, "3Gi", "it counts GiB in all, from 1 to 16368; for 3GiB write 3"),
        ({MEM: 2000}, {}, MEM, "2000", "write at most 1023"),
        ({MEM: 3, "gpumem": 3000}, {}, MEM, "3", "has nvidia.com/gpumem: keep the names of one"),
    ],
)
def test_aliyun_contradictions(
    limits: Manifest, labels: dict[str, str], name: str, value: str, fix: str
) -> None:
    written = pod(container(limits=limits), labels=labels)
    field = f"spec.containers[0].resources.limits[{name}]"
    refused(written, field, value, fix, profiles=ACK.profiles)


def test_a_label_that_is_no_number() -> None:
    written = pod(container(limits={MEM: 8}), labels={COUNT: "two"})
    fix = "write a whole number, like 2"
    refused(written, f"metadata.labels[{COUNT}]", "two", fix, profiles=ACK.profiles)


def test_disabled_names_request_nothing() -> None:
    assert pods.read_request(pod(container(limits={"aliyun.com/gpu-mem": 3}))) is None
