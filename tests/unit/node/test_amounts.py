"""The amounts of containers, from objects in the shape of those of NVIDIA, KAI and Volcano."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hami_py.errors import InvalidValue
from hami_py.model.pods.claims import Part, ResourceClaim, ResourceSlice
from hami_py.model.pods.objects import Pod, PodStatus
from hami_py.node.amounts import KAI_NAMESPACE, Known, amounts_of

A, B, MIG = "GPU-aaaa", "GPU-bbbb", "MIG-cccc"
CARDS = {A: 40960, B: 81559, MIG: 9728}
GPU = "nvidia.com/gpu"

Manifest = dict[str, Any]


def pod(*containers: Manifest, init: Sequence[Manifest] = (), **metadata: Any) -> Pod:
    spec = {"containers": list(containers) or [{"name": "main"}], "initContainers": list(init)}
    return msgspec.convert({"metadata": {"uid": "u", **metadata}, "spec": spec}, Pod)


def known(of: Pod | None = None, container: str = "main", **fields: Any) -> Known:
    of = of or pod()
    each = (*(of.spec.init_containers or ()), *(of.spec.containers or ()))
    its = next(one for one in each if one.name == container)
    return replace(Known(of, its, CARDS, {}, {}, (), {}, ()), **fields)


def parts(of: Known) -> tuple[Part, ...]:
    found = amounts_of(of)
    assert found is not None
    return found.parts


def replicas(card: str, count: int) -> list[str]:
    return [f"{card}::{number}" for number in range(count)]


def shared(*ids: str, resource: str = GPU, registered: Sequence[str] | None = None) -> Known:
    """A container with these devices; by default each card has 4 replicas."""
    all_ids = [*replicas(A, 4), *replicas(B, 4), *replicas(MIG, 4)]
    registered = all_ids if registered is None else registered
    return known(devices={resource: ids}, registered={resource: registered})


def test_a_container_without_any_has_no_card() -> None:
    assert amounts_of(known()) is None
    assert amounts_of(known(devices={"hami.io/limits": ["limits::0"]})) is None
    assert amounts_of(known(devices={"nvidia.com/rdma": ["0000:3b:00.2"]})) is None


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ((f"{A}::0",), (Part(A, 10240),)),
        ((f"{A}::2", f"{A}::0"), (Part(A, 20480),)),
        ((f"{B}::1", f"{A}::3"), (Part(A, 10240), Part(B, 20389))),
        (replicas(A, 4), (Part(A, None),)),
        ((f"{MIG}::0",), (Part(MIG, 2432),)),
        ((A,), (Part(A, None),)),
    ],
)
@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared", "nvidia.com/renamed"])
def test_replicas(devices: Sequence[str], found: tuple[Part, ...], resource: str) -> None:
    assert parts(shared(*devices, resource=resource)) == found


def test_a_mig_device_of_a_resource_of_its_own_is_whole() -> None:
    assert parts(known(devices={"nvidia.com/mig-1g.10gb": [MIG]})) == (Part(MIG, None),)


def test_an_unhealthy_replica_does_not_make_the_others_larger() -> None:
    healthy = [f"{A}::0", f"{A}::1", f"{A}::3"]
    assert parts(shared(f"{A}::0", registered=healthy)) == (Part(A, 10240),)
    unhealthy_itself = shared(f"{A}::3", registered=replicas(A, 3))
    assert parts(unhealthy_itself) == (Part(A, 10240),)


def test_an_app_container_has_the_owner_of_its_init_container() -> None:
    of = pod(init=[{"name": "init"}])
    devices = {GPU: [f"{A}::0"]}
    fields: Mapping[str, Any] = {"devices": devices, "registered": {GPU: replicas(A, 2)}}
    init, main = (amounts_of(known(of, name, **fields)) for name in ("init", "main"))
    assert init is not None and init == main
    assert init.owner == {("u", "", f"{A}::0")}


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (shared("GPU-d::0", registered=["GPU-d::0"]), "no card of this node has this UUID"),
        (shared("GPU-d"), "no card of this node has this UUID"),
        (shared("nvidia0"), "no card of this node has this UUID"),
        (shared(f"{A}::0", registered=()), "wait for NVIDIA's plugin"),
        (shared(f"{A}::0", registered=[A, *replicas(B, 2)]), "wait for NVIDIA's plugin"),
        (shared(f"{A}::1000000"), "must be 1 to 40960 MiB"),
    ],
)
def test_replicas_that_are_not_known_wait(of: Known, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        amounts_of(of)


def test_replicas_never_add_up_to_more_than_the_card() -> None:
    choose = random.Random(1)  # noqa: S311
    for _ in range(500):
        mib, count = choose.randint(1000, 1 << 18), choose.randint(1, 100)
        left, sum_mib = replicas(A, count), 0
        choose.shuffle(left)
        while left:
            mine = [left.pop() for _ in range(choose.randint(1, len(left)))]
            (part,) = parts(replace(shared(*mine, registered=replicas(A, count)), cards={A: mib}))
            sum_mib += mib if part.memory_mib is None else part.memory_mib
        assert mib - count < sum_mib <= mib


def reservation(group: str, card: str | None, **more: Any) -> Pod:
    """KAI's reservation pod; it writes its annotation itself, when it runs."""
    annotations = {"run.ai/reserve_for_gpu_index": card} if card else {}
    metadata = {
        "name": f"gpu-reservation-{group}",
        "namespace": KAI_NAMESPACE,
        "labels": {"app": "kai-resource-reservation", "runai-gpu-group": group},
        "annotations": annotations,
    }
    container = {"name": "resource-reservation", "resources": {"limits": {GPU: "1"}}}
    return pod(container, **{**metadata, **more})


RESERVED = (reservation("g-a", A), reservation("g-b", B))


def kai(
    groups: Sequence[str] = ("g-a",), pods: Sequence[Pod] = RESERVED, **annotations: str
) -> Known:
    """A pod of KAI; the names of its annotations have ``_`` for ``-``."""
    labels = {"kai.scheduler/queue": "q"}
    if len(groups) == 1:
        labels["runai-gpu-group"] = groups[0]
    else:
        labels |= {f"runai-gpu-group/{group}": group for group in groups}
        annotations["gpu_fraction_num_devices"] = annotations.get(
            "gpu_fraction_num_devices", str(len(groups))
        )
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    of = pod({"name": "main"}, {"name": "other"}, labels=labels, annotations=named)
    return known(of, pods=(of, *pods))


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (kai(gpu_memory="2000"), (Part(A, 2000),)),
        (kai(gpu_memory="40960"), (Part(A, None),)),
        (kai(gpu_fraction="0.5"), (Part(A, 20480),)),
        (kai(gpu_fraction="0.333"), (Part(A, 13639),)),
        (kai(["g-b"], gpu_fraction=".1"), (Part(B, 8155),)),
        (kai(["g-b", "g-a"], gpu_fraction="0.25"), (Part(A, 10240), Part(B, 20389))),
    ],
)
def test_kai(of: Known, found: tuple[Part, ...]) -> None:
    assert parts(of) == found


def test_kai_gives_one_container_cards() -> None:
    of = kai(gpu_memory="2000")
    other = (of.pod.spec.containers or ())[1]
    assert amounts_of(replace(of, container=other)) is None
    named = kai(gpu_memory="2000", gpu_fraction_container_name="other")
    assert amounts_of(named) is None
    assert parts(replace(named, container=other)) == (Part(A, 2000),)


def test_a_reservation_pod_has_its_whole_card() -> None:
    of = known(reservation("g-a", None), "resource-reservation", devices={GPU: [A]}, pods=RESERVED)
    assert parts(of) == (Part(A, None),)


@pytest.mark.parametrize(
    "of",
    [
        kai((), gpu_memory="2000", gpu_fraction_num_devices="1"),
        kai((), gpu_memory="2000", gpu_fraction_num_devices="0"),
        kai(["g-a", "g-b"], gpu_memory="2000", gpu_fraction_num_devices="3"),
        kai(gpu_memory="2000", gpu_fraction_num_devices="1.5"),
        kai(["g-c"], gpu_memory="2000"),
        kai(pods=[reservation("g-a", None)], gpu_memory="2000"),
        kai(pods=[reservation("g-a", A), reservation("g-a", B)], gpu_memory="2000"),
        kai(pods=[reservation("g-a", B, namespace="tenant")], gpu_memory="2000"),
    ],
)
def test_a_container_waits_for_the_reservation_pods_of_kai(of: Known) -> None:
    with pytest.raises(InvalidValue, match="wait for KAI"):
        amounts_of(of)


def test_reservation_pods_that_ended_or_of_another_namespace_do_not_count() -> None:
    forged = reservation("g-a", B, namespace="tenant")
    ended = msgspec.structs.replace(reservation("g-a", B), status=PodStatus(phase="Failed"))
    assert parts(kai(pods=[forged, ended, *RESERVED], gpu_memory="2000")) == (Part(A, 2000),)


@pytest.mark.parametrize("text", ["1.5", "1", "0", "-0.5", "nan", "inf", "half", "", "1e-9"])
def test_a_wrong_fraction_of_kai_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"annotations\[gpu-fraction\]"):
        amounts_of(kai(gpu_fraction=text))


@pytest.mark.parametrize("text", ["0", "-1", "40961", "9" * 5000, "1.5", "nan", "much", ""])
def test_a_wrong_memory_of_kai_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"annotations\[gpu-memory\].*1 to 40960 MiB"):
        amounts_of(kai(gpu_memory=text))


def test_a_card_of_kai_that_the_node_does_not_have() -> None:
    with pytest.raises(InvalidValue, match="no card of this node"):
        amounts_of(kai(["g"], pods=[reservation("g", "-1")], gpu_memory="2000"))


def volcano(written: str | None, container: str = "main", **more: Any) -> Known:
    """A pod with 1 card for ``first``, none for ``idle``, 2 cards for ``main``."""
    containers = [
        {"name": name, "resources": {"limits": limits}}
        for name, limits in (
            ("first", {"volcano.sh/vgpu-number": "1"}),
            ("idle", {"cpu": "1"}),
            ("memory", {"volcano.sh/vgpu-memory": "10"}),
            ("main", {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-cores": "30"}),
            ("none", {"volcano.sh/vgpu-number": "0"}),
        )
    ]
    annotations = {} if written is None else {"volcano.sh/vgpu-ids-new": written}
    return known(pod(*containers, annotations=annotations, **more), container)


WRITTEN = f"{A},NVIDIA,1000,0:;{A},NVIDIA,10,0:;{B},NVIDIA,2000,30:{A},NVIDIA,40960,100:;"


@pytest.mark.parametrize(
    ("container", "found"),
    [
        ("first", (Part(A, 1000),)),
        ("main", (Part(B, 2000, 30), Part(A, None))),
    ],
)
def test_volcano(container: str, found: tuple[Part, ...]) -> None:
    assert parts(volcano(WRITTEN, container)) == found


@pytest.mark.parametrize("container", ["idle", "memory", "none"])
@pytest.mark.parametrize("written", [None, WRITTEN])
def test_containers_without_cards_of_volcano(container: str, written: str | None) -> None:
    assert amounts_of(volcano(written, container)) is None


@pytest.mark.parametrize("part", ["", "x", f"{A},NVIDIA,1000", f"{A},NVIDIA,1000,0,0"])
@pytest.mark.parametrize("before", [None, f"{A},NVIDIA,1000,0:;;"])
def test_a_container_waits_for_volcano(part: str, before: str | None) -> None:
    written = None if before is None else f"{before}{part}:{part}:"
    with pytest.raises(InvalidValue, match="wait for uuid,type,MiB,cores of 2 cards"):
        amounts_of(volcano(written))


def test_a_damaged_part_of_volcano_is_not_left_out() -> None:
    two = f"{A},NVIDIA,1000,0:{B},NVIDIA,1000,0"
    assert len(parts(volcano(f";;{two}"))) == 2
    with pytest.raises(InvalidValue, match="wait for uuid"):
        amounts_of(volcano(f";;{two}:damaged"))


@pytest.mark.parametrize(
    "amount",
    ["0,0", "40961,0", "-1,0", "nan,0", "1e3,0", "9999999999,0", "1000,101", "1000,-1", "1000,x"],
)
def test_a_wrong_amount_of_volcano_is_refused(amount: str) -> None:
    with pytest.raises(InvalidValue, match=r"annotations\[volcano\.sh/vgpu-ids-new\]"):
        amounts_of(volcano(f"{A},NVIDIA,{amount}:", "first"))


@pytest.mark.parametrize("card", ["GPU-dddd", f"{A}[group2-3]", ""])
def test_a_card_of_volcano_that_the_node_does_not_have(card: str) -> None:
    with pytest.raises(InvalidValue):
        amounts_of(volcano(f"{card},NVIDIA,1000,0:", "first"))


def test_volcano_leaves_out_init_containers() -> None:
    init = {"name": "init", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}
    assert parts(volcano(WRITTEN, init=[init])) == parts(volcano(WRITTEN))
    with pytest.raises(InvalidValue, match="wait for uuid"):
        amounts_of(volcano(WRITTEN, "init", init=[init]))


def test_a_container_has_a_card_once() -> None:
    with pytest.raises(InvalidValue, match="each card once"):
        amounts_of(volcano(f";;{A},NVIDIA,1000,0:{A},NVIDIA,1000,0:"))
    two = {GPU: [f"{A}::0"], "nvidia.com/gpu.shared": [f"{A}::0"]}
    with pytest.raises(InvalidValue, match="each card once"):
        amounts_of(known(devices=two, registered={each: replicas(A, 2) for each in two}))


def claimed() -> Known:
    """A container with 4 GiB of a card by a claim of NVIDIA's driver."""
    result = {
        "request": "gpu",
        "driver": "gpu.nvidia.com",
        "pool": "n1",
        "device": "gpu-0",
        "consumedCapacity": {"memory": "4Gi"},
    }
    claim = {
        "metadata": {"uid": "c"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    device = {
        "name": "gpu-0",
        "attributes": {"uuid": {"string": A}},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "n1"}, "devices": [device]}
    written = {
        "metadata": {"uid": "u"},
        "spec": {
            "resourceClaims": [{"name": "mine", "resourceClaimName": "claim"}],
            "containers": [{"name": "main", "resources": {"claims": [{"name": "mine"}]}}],
        },
    }
    return known(
        msgspec.convert(written, Pod),
        claims={"claim": msgspec.convert(claim, ResourceClaim)},
        slices=[msgspec.convert({"spec": spec}, ResourceSlice)],
    )


def test_claims() -> None:
    found = amounts_of(claimed())
    assert found is not None
    assert found.parts == (Part(A, 4096),)
    assert found.owner == {("c", "gpu", "n1/gpu-0/")}
    with pytest.raises(InvalidValue, match="not allocated"):
        amounts_of(replace(claimed(), claims={}))


def test_a_container_has_one_allocator() -> None:
    both = replace(claimed(), devices={GPU: [B]})
    with pytest.raises(InvalidValue, match="of one allocator") as refused:
        amounts_of(both)
    assert "DRA" in str(refused.value) and "NVIDIA" in str(refused.value)
