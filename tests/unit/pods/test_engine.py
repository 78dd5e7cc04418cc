"""The allocator reads and writes the same JSON as Python: both sides have one schema."""

import re
from typing import Any, get_args

import msgspec
import pytest

from hami_py._native import Allocator
from hami_py.errors import InvalidValue
from hami_py.model.pods import wire

PROFILE = wire.MigProfile("1g.10gb", memory_mib=9_856, slices=1, placements=(0, 1, 2), size=1)
NODES = [
    wire.Node("empty", cards=()),
    wire.Node(
        "full",
        mode="memory",
        placement="spread",
        cards=(
            wire.Card(
                "GPU-0",
                0,
                "NVIDIA A100-SXM4-80GB",
                81_920,
                cores=200,
                slots=64,
                numa=1,
                healthy=False,
                cordoned=True,
                foreign_mib=7,
                links={"GPU-1": 3},
                level="preload",
            ),
            wire.Card("GPU-1", 1, "NVIDIA T4", 16_384, level="none"),
        ),
    ),
    wire.Node(
        "mig",
        mode="mig",
        cards=(
            wire.Card("GPU-2", 0, "A", 81_920, mig=wire.Mig((PROFILE,), taken=(4, 5)), level="mig"),
        ),
    ),
]
QUOTAS = [
    wire.Quota("a", "all", gpu=1, memory_mib=2, cores=3),
    wire.Quota("a", "none"),
]
REQUEST = wire.PodRequest(
    wire.PodName("uid-1", "a", "pod"),
    -5,
    (
        wire.ContainerRequest("first", "init", 2, wire.Size(mib=3_000), 30),
        wire.ContainerRequest("beside", "sidecar", 1, wire.Size(percent=50), 0),
        wire.ContainerRequest("main", "app", 1, "whole", 100),
    ),
    wire.CardRequest(
        use=("GPU-0", "GPU-1"),
        avoid=("GPU-9",),
        types=("a100",),
        avoid_types=("t4",),
        numa=True,
        order=("numa", "binpack", "spread", "topology", "mutex"),
        topology="strict",
        mutex=True,
        weights=wire.Weights(1, 2, 3),
        node_order="binpack",
        mode="hami-core",
        isolation="preload",
    ),
)
ASSIGNMENT = wire.Assignment(
    1,
    "uid-1",
    "full",
    {
        "first": (wire.CardAllocation("GPU-0", 3_000, 30), wire.CardAllocation("GPU-1", 3_000, 30)),
        "beside": (wire.CardAllocation("GPU-2", 9_856, 14, wire.Instance("1g.10gb", 2, 1)),),
        "main": (wire.CardAllocation("GPU-0", 81_000, 100),),
    },
)


def test_each_type_survives_a_round_trip() -> None:
    engine = Allocator()
    for node in NODES:
        engine.set_node(wire.encode(node))
    for quota in QUOTAS:
        engine.set_quota(wire.encode(quota))
    engine.place(wire.encode(REQUEST), wire.encode(ASSIGNMENT), True)
    said = msgspec.json.decode(engine.snapshot())
    assert msgspec.convert(said["nodes"], list[wire.Node]) == NODES
    assert msgspec.convert(said["quotas"], list[wire.Quota]) == QUOTAS
    (pod,) = said["pods"]
    assert msgspec.convert(pod["assignment"], wire.Assignment) == ASSIGNMENT
    assert (
        msgspec.convert(pod["containers"], tuple[wire.ContainerRequest, ...]) == REQUEST.containers
    )
    assert msgspec.convert(pod["pod"], wire.PodName) == REQUEST.pod
    # A card_request decides once and is not kept: that it is understood is all that can be seen.
    engine.filter(wire.encode(REQUEST), None, 0)
    assert Allocator.restore(engine.snapshot()).digest() == engine.digest()


def test_both_sides_have_the_same_field_names() -> None:
    """Of a word that it does not know the engine says which ones it does."""
    node, request = (msgspec.to_builtins(each) for each in (wire.Node("n", ()), REQUEST))
    engine = Allocator()

    def tell(**changes: str) -> None:
        engine.set_node(msgspec.json.encode({**node, **changes}))

    def card_request(**changes: Any) -> None:
        asked = {**request, "card_request": {**request["card_request"], **changes}}
        engine.filter(msgspec.json.encode(asked), None, 0)

    def ask(**changes: str) -> None:
        asked = {**request, "containers": [{**request["containers"][0], **changes}]}
        engine.filter(msgspec.json.encode(asked), None, 0)

    for say, literal in (
        (lambda: tell(mode="?"), wire.NodeMode),
        (lambda: tell(placement="?"), wire.Placement),
        (lambda: card_request(mode="?"), wire.Sharing),
        (lambda: card_request(topology="?"), wire.Topology),
        (lambda: card_request(order=["?"]), wire.Order),
        (lambda: ask(kind="?"), wire.Kind),
    ):
        with pytest.raises(InvalidValue) as caught:
            say()
        assert caught.value.value == "?"
        assert re.findall("`([^`]+)`", caught.value.fix) == ["?", *get_args(literal)]
