"""From a pod's annotations to which cards it wants."""

import pytest

from hami_py.model import Level, pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.model.pods.wire import CardRequest, Weights
from unit.pods.build import container, pod, refused

GPUS = container(limits={"gpu": 1})


def card_request(**annotations: str) -> CardRequest:
    request = pods.read_request(pod(GPUS, annotations=annotations))
    assert request is not None
    return request.card_request


GOOD: list[tuple[str, str, CardRequest]] = [
    ("nvidia.com/use-gpuuuid", "GPU-a", CardRequest(use=("GPU-a",))),
    ("nvidia.com/use-gpuuuid", " GPU-a, MIG-b ,GPU-a", CardRequest(use=("GPU-a", "MIG-b"))),
    ("nvidia.com/nouse-gpuuuid", "GPU-a,GPU-b", CardRequest(avoid=("GPU-a", "GPU-b"))),
    (
        "nvidia.com/use-gputype",
        "Tesla V100-PCIE-32GB, NVIDIA A10",
        CardRequest(types=("Tesla V100-PCIE-32GB", "NVIDIA A10")),
    ),
    ("nvidia.com/nouse-gputype", "a100", CardRequest(avoid_types=("a100",))),
    ("nvidia.com/numa-bind", "true", CardRequest(numa=True)),
    ("nvidia.com/numa-bind", "T", CardRequest(numa=True)),
    ("nvidia.com/numa-bind", "0", CardRequest()),
    ("nvidia.com/vgpu-mode", "hami-core", CardRequest(mode="hami-core")),
    ("nvidia.com/vgpu-mode", "mig", CardRequest(mode="mig")),
    ("nvidia.com/vgpu-mode", "mps", CardRequest(mode="mps")),
    ("hami.io/isolation", "any", CardRequest()),
    ("hami.io/isolation", "preload", CardRequest(isolation="preload")),
    ("hami.io/isolation", " kernel ", CardRequest(isolation="kernel")),
    ("hami.io/isolation", "mig", CardRequest(isolation="mig")),
    ("hami.io/node-scheduler-policy", "binpack", CardRequest(node_order="binpack")),
    ("hami.io/node-scheduler-policy", "spread", CardRequest(node_order="spread")),
    ("hami.io/gpu-scheduler-policy", "binpack", CardRequest(order=("binpack",))),
    ("hami.io/gpu-scheduler-policy", "numa, spread", CardRequest(order=("numa", "spread"))),
    (
        "hami.io/gpu-scheduler-policy",
        "mutex,binpack",
        CardRequest(order=("mutex", "binpack"), mutex=True),
    ),
    (
        "hami.io/gpu-scheduler-policy",
        "topology-aware",
        CardRequest(order=("topology",), topology="best-effort"),
    ),
    (
        "hami.io/gpu-scheduler-policy",
        "topology-strict,binpack,binpack",
        CardRequest(order=("topology", "binpack"), topology="strict"),
    ),
    (
        "hami.io/device-scoring-weights",
        "slot=1,core=1,memory=3",
        CardRequest(weights=Weights(slot=1, core=1, memory=3)),
    ),
    (
        "hami.io/device-scoring-weights",
        " memory = 1000 , slot=0,core=0",
        CardRequest(weights=Weights(slot=0, core=0, memory=1000)),
    ),
]


@pytest.mark.parametrize(("name", "text", "meant"), GOOD)
def test_an_annotation_is_parsed(name: str, text: str, meant: CardRequest) -> None:
    assert card_request(**{name: text}) == meant


@pytest.mark.parametrize("name", sorted({name for name, _, _ in GOOD}))
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_annotation_requests_nothing(name: str, text: str) -> None:
    assert card_request(**{name: text}) == CardRequest()


BAD: list[tuple[str, str, str, str]] = [
    ("nvidia.com/use-gpuuuid", "0", "0", "UUID"),
    ("nvidia.com/use-gpuuuid", "GPU-a;GPU-b", "GPU-a;GPU-b", "UUID"),
    ("nvidia.com/use-gpuuuid", "GPU-a,,GPU-b", "GPU-a,,GPU-b", "empty"),
    ("nvidia.com/use-gpuuuid", ",", ",", "empty"),
    ("nvidia.com/nouse-gpuuuid", "GPU-", "GPU-", "UUID"),
    ("nvidia.com/nouse-gpuuuid", "gpu-a", "gpu-a", "UUID"),
    ("nvidia.com/use-gputype", "A100,", "A100,", "empty"),
    ("nvidia.com/use-gputype", "A\n100", "A\n100", "A100"),
    ("nvidia.com/nouse-gputype", "x" * 65, "x" * 65, "A100"),
    ("nvidia.com/numa-bind", "yes", "yes", '"true"'),
    ("nvidia.com/vgpu-mode", "hami", "hami", "hami-core, mig or mps"),
    ("nvidia.com/vgpu-mode", "mig,mps", "mig,mps", "hami-core, mig or mps"),
    ("hami.io/isolation", "none", "none", "any, or the least level that the pod accepts: preload"),
    ("hami.io/isolation", "Kernel", "Kernel", "preload, kernel, mig"),
    ("hami.io/node-scheduler-policy", "binpak", "binpak", "binpack for full nodes"),
    ("hami.io/node-scheduler-policy", "binpack,spread", "binpack,spread", "binpack for"),
    ("hami.io/gpu-scheduler-policy", "bin", "bin", "binpack, spread, numa, mutex"),
    ("hami.io/gpu-scheduler-policy", "mutex,,numa", "mutex,,numa", "empty"),
    ("hami.io/gpu-scheduler-policy", "binpack,spread", "binpack,spread", "contradict"),
    (
        "hami.io/gpu-scheduler-policy",
        "topology-aware,topology-strict",
        "topology-aware,topology-strict",
        "contradict",
    ),
    ("hami.io/device-scoring-weights", "slot=1", "slot=1", "core, memory is missing"),
    ("hami.io/device-scoring-weights", "slot=1,core=1,memory=-3", "memory=-3", "0 to 1000"),
    ("hami.io/device-scoring-weights", "slot=1,core=1,memory=1.5", "memory=1.5", "0 to 1000"),
    ("hami.io/device-scoring-weights", "slot=1,core=1,memory=1001", "memory=1001", "1000"),
    ("hami.io/device-scoring-weights", "slot=0,core=0,memory=0", "slot=0,core=0,memory=0", "above"),
    ("hami.io/device-scoring-weights", "slot=1,slot=1", "slot=1,slot=1", "once"),
    ("hami.io/device-scoring-weights", "slot=1,cpu=1", "slot=1,cpu=1", "once"),
    ("hami.io/device-scoring-weights", "3", "3", "slot=1,core=1,memory=3"),
]


@pytest.mark.parametrize(("name", "text", "value", "fix"), BAD)
def test_an_invalid_annotation_is_reported(name: str, text: str, value: str, fix: str) -> None:
    written = pod(GPUS, annotations={name: text})
    refused(written, f"metadata.annotations[{name}]", value, fix)


@pytest.mark.parametrize(
    ("written", "settings", "least"),
    [
        (None, PodSettings(isolations={"ml": "kernel"}), "kernel"),
        ("any", PodSettings(isolations={"ml": "kernel"}), "kernel"),
        ("preload", PodSettings(isolations={"ml": "kernel"}), "kernel"),
        ("mig", PodSettings(isolations={"ml": "kernel"}), "mig"),
        ("preload", PodSettings(isolations={"other": "kernel"}), "preload"),
        (None, PodSettings(profiles=(ALIYUN, HAMI), isolations={"ml": "kernel"}), "kernel"),
    ],
)
def test_a_namespace_raises_the_least_level(
    written: str | None, settings: PodSettings, least: Level
) -> None:
    annotations = {} if written is None else {"hami.io/isolation": written}
    request = pods.read_request(pod(GPUS, annotations=annotations), settings)
    assert request is not None
    assert request.card_request == CardRequest(isolation=least)


@pytest.mark.parametrize(
    ("kind", "use", "avoid", "possible"),
    [
        ("uuid", "GPU-a", "GPU-a", False),
        ("uuid", "GPU-a,GPU-b", "GPU-b,GPU-a", False),
        ("uuid", "GPU-a,GPU-b", "GPU-b", True),
        ("uuid", "GPU-a", "GPU-b", True),
        ("type", "A100", "A100", False),
        ("type", "A100-SXM4", "a100", False),
        ("type", "A100", "A100-SXM4", True),
        ("type", "A100,H100", "A100", True),
    ],
)
def test_annotations_that_contradict(kind: str, use: str, avoid: str, possible: bool) -> None:
    names = f"nvidia.com/use-gpu{kind}", f"nvidia.com/nouse-gpu{kind}"
    annotations = dict(zip(names, (use, avoid), strict=True))
    if possible:
        found = card_request(**annotations)
        assert {found.use, found.types} == {tuple(use.split(",")), ()}
        assert {found.avoid, found.avoid_types} == {tuple(avoid.split(",")), ()}
        return
    fix = f"{names[1]} excludes all"
    refused(pod(GPUS, annotations=annotations), f"metadata.annotations[{names[0]}]", use, fix)


def test_annotations_of_a_pod_without_a_gpu_are_not_checked() -> None:
    written = pod(container(), annotations={"hami.io/gpu-scheduler-policy": "bin"})
    assert pods.read_request(written) is None


def test_a_profile_without_card_request_annotations_reads_none() -> None:
    written = pod(GPUS, annotations={"nvidia.com/use-gpuuuid": "GPU-a"})
    request = pods.read_request(written, PodSettings(profiles=(ALIYUN,)))
    assert request is not None
    assert request.card_request == CardRequest()
