"""Nodes and quotas, as annotations and labels say them."""

import json
import random
from typing import Any

import pytest

from cluster.deployed import documents
from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.model.pods.nodes import FIELD, MAX_BYTES
from hami_py.model.pods.wire import Card, Mig, MigProfile, Node, Quota, encode
from unit.pods.build import FIRST, SECOND, says

CARDS = (
    Card(FIRST, 0, "NVIDIA A100-SXM4-80GB", 81920, numa=0, links={SECOND: 100}),
    Card(SECOND, 1, "NVIDIA A100-SXM4-80GB", 81920, numa=1, links={FIRST: 100}),
)
TEXT = (
    '{"version":1,"cards":[{"uuid":"GPU-aaaaaaaa","index":0,"model":"NVIDIA A100-SXM4-80GB",'
    '"memory_mib":81920,"numa":0,"links":{"GPU-bbbbbbbb":100}},{"uuid":"GPU-bbbbbbbb","index":1,'
    '"model":"NVIDIA A100-SXM4-80GB","memory_mib":81920,"numa":1,"links":{"GPU-aaaaaaaa":100}}]}'
)
BOTH = PodSettings(profiles=(HAMI, ALIYUN))
SCHEDULE = "ack.node.gpu.schedule"


def node(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None
) -> pods.objects.Node:
    metadata = {"name": "n1", "labels": labels or {}, "annotations": annotations or {}}
    return pods.decode_node.convert({"metadata": metadata})


def described(labels: dict[str, str] | None = None, **annotations: str) -> pods.objects.Node:
    return node({"hami.io/cards": TEXT, **annotations}, labels)


def test_cards_are_these_bytes_whatever_their_order() -> None:
    assert pods.encode_cards(CARDS) == TEXT
    assert pods.encode_cards(CARDS[::-1]) == TEXT
    assert pods.decode_cards(TEXT) == CARDS


def test_random_cards_survive_a_round_trip() -> None:
    chosen = random.Random(3)  # noqa: S311
    for _ in range(300):
        cards = tuple(
            Card(
                f"GPU-{i}",
                i,
                chosen.choice(["NVIDIA L4", "Tesla T4"]),
                chosen.randrange(1 << 40),
                cores=chosen.choice([100, 200]),
                slots=chosen.choice([32, 10]),
                numa=chosen.choice([None, 0, 1]),
                healthy=chosen.random() < 0.5,
                foreign_mib=chosen.choice([0, 500]),
                links={f"GPU-{chosen.randrange(9)}": chosen.randrange(500)},
                level=chosen.choice([None, "none", "preload", "mig"]),
                mig=chosen.choice([None, Mig((MigProfile("1g.10gb", 9728, 1, (0, 1), 1),))]),
            )
            for i in range(chosen.randrange(9))
        )
        text = pods.encode_cards(cards)
        assert pods.decode_cards(text) == cards
        assert pods.encode_cards(pods.decode_cards(text)) == text


def test_a_node_for_the_allocator() -> None:
    assert pods.read_node(described()) == Node("n1", CARDS)
    assert pods.read_node(node()) is None
    read = pods.read_node(described({"hami.io/mode": "memory", "hami.io/placement": "spread"}))
    assert read is not None
    assert json.loads(encode(read)) == {
        "name": "n1",
        "mode": "memory",
        "placement": "spread",
        "cards": json.loads(TEXT)["cards"],
    }


@pytest.mark.parametrize("mode", pods.wire.NODE_MODES)
def test_every_mode_is_a_label(mode: str) -> None:
    read = pods.read_node(described({"hami.io/mode": mode}))
    assert read is not None
    assert read.mode == mode


@pytest.mark.parametrize(
    ("labels", "mode", "placement"),
    [
        ({}, "exclusive", "binpack"),
        ({SCHEDULE: "default"}, "exclusive", "binpack"),
        ({SCHEDULE: "cgpu"}, "memory", "binpack"),
        ({SCHEDULE: "core_mem"}, "full", "binpack"),
        ({SCHEDULE: "share"}, "share", "binpack"),
        ({SCHEDULE: "topology"}, "topology", "binpack"),
        ({SCHEDULE: "mps"}, "mps", "binpack"),
        ({SCHEDULE: "mig"}, "mig", "binpack"),
        ({SCHEDULE: "cgpu", "ack.node.gpu.placement": "spread"}, "memory", "spread"),
    ],
)
def test_aliyuns_labels(labels: dict[str, str], mode: str, placement: str) -> None:
    read = pods.read_node(described(labels), PodSettings(profiles=(ALIYUN,)))
    assert read is not None
    assert (read.mode, read.placement) == (mode, placement)


@pytest.mark.parametrize(
    ("labels", "name", "value", "fix"),
    [
        ({"hami.io/mode": "shared"}, "hami.io/mode", "shared", "full, memory"),
        ({"hami.io/mode": ""}, "hami.io/mode", "", "full, memory"),
        ({"hami.io/placement": "pack"}, "hami.io/placement", "pack", "binpack"),
        ({SCHEDULE: "cGPU"}, SCHEDULE, "cGPU", "cgpu, core_mem"),
        ({SCHEDULE: "cgpu", "hami.io/placement": "spread"}, SCHEDULE, "cgpu", "keep one kind"),
    ],
)
def test_invalid_labels(labels: dict[str, str], name: str, value: str, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.read_node(described(labels), BOTH)
    says(caught.value, f"metadata.labels[{name}]", value, fix)


# Cordons.


def cordoned(**annotations: str) -> list[str]:
    read = pods.read_node(described(**annotations))
    assert read is not None
    return [card.uuid for card in read.cards if card.cordoned]


@pytest.mark.parametrize("name", ["hami.io/cordon", "hami.io/device-cordon"])
def test_cordoned_cards(name: str) -> None:
    assert cordoned() == []
    assert cordoned(**{name: ""}) == []
    assert cordoned(**{name: f" {SECOND} ,"}) == [SECOND]
    assert cordoned(**{name: f"{FIRST},{SECOND}"}) == [FIRST, SECOND]
    assert cordoned(**{name: "all"}) == [FIRST, SECOND]


def test_cordons_of_both_names_add_up() -> None:
    both = {"hami.io/cordon": FIRST, "hami.io/device-cordon": SECOND}
    assert cordoned(**both) == [FIRST, SECOND]


def test_a_cordon_of_a_missing_card_is_reported() -> None:
    there = described(**{"hami.io/cordon": f"{FIRST},GPU-gone,all"})
    assert pods.unknown_cordons(there) == ("GPU-gone",)
    assert pods.unknown_cordons(described()) == ()


def test_a_cordon_that_names_no_card_is_refused() -> None:
    with pytest.raises(InvalidValue) as caught:
        cordoned(**{"hami.io/cordon": "0"})
    says(caught.value, "metadata.annotations[hami.io/cordon]", "0", "UUIDs of cards")


def test_a_cordon_is_not_part_of_the_plugins_annotation() -> None:
    text = pods.encode_cards(
        tuple(Card(c.uuid, c.index, c.model, c.memory_mib, cordoned=True) for c in CARDS)
    )
    assert "cordon" not in text


# Bad annotations.

GOOD_CARD = {"uuid": FIRST, "index": 0, "model": "m", "memory_mib": 1}


def cards(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "cards": [{**GOOD_CARD, **change} for change in changes]}


@pytest.mark.parametrize(
    ("written", "place", "value", "fix"),
    [
        ([], "", "array", "object"),
        ({"version": 1}, ".cards", "", "required"),
        ({"version": 1, "cards": [{}]}, ".cards[0].uuid", "", "required"),
        (cards({"memory_mib": "80Gi"}), ".cards[0].memory_mib", "str", "int"),
        (cards({"uuid": ""}), ".cards.uuid", "", "UUID"),
        (cards({}, {"index": 1}), ".cards.uuid", FIRST, "its own"),
        (cards({}, {"uuid": SECOND}), ".cards.index", "0", "its own"),
        (cards({"index": 1 << 32}), ".cards[0].index", "Expected `int` <= 4294967295", "format"),
    ],
)
def test_bad_cards_are_refused(written: Any, place: str, value: str, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.read_node(node({"hami.io/cards": json.dumps(written)}))
    says(caught.value, FIELD + place, value, fix)


def test_fields_of_a_newer_release_are_ignored() -> None:
    profile = {"name": "1g.10gb", "memory_mib": 9728, "slices": 1, "placements": (0,), "size": 1}
    newer = cards({"more": 1, "mig": {"profiles": [{**profile, "more": 1}], "more": 1}})
    seen = pods.read_node(node({"hami.io/cards": json.dumps({**newer, "more": {}})}))
    assert seen is not None
    assert seen.cards == (Card(FIRST, 0, "m", 1, mig=Mig((MigProfile(**profile),))),)


def test_cards_of_another_version_are_ignored() -> None:
    with pytest.raises(pods.UnknownVersion) as caught:
        pods.decode_cards('{"version":2,"cards":{}}')
    assert caught.value.version == 2


def test_many_cards_fit_and_too_many_are_refused() -> None:
    uuids = [f"GPU-{i:036}" for i in range(64)]
    links = dict.fromkeys(uuids[:16], 100)
    profiles = Mig(tuple(MigProfile(f"{i}g.10gb", 9728, 1, (0, 1), 1) for i in range(7)))
    cards = [
        Card(u, i, "NVIDIA H200", 143771, links=links, mig=profiles) for i, u in enumerate(uuids)
    ]
    assert len(pods.encode_cards(tuple(cards))) <= MAX_BYTES
    more = (Card(f"GPU-{i}", i, "x" * 1000, 1) for i in range(200))
    with pytest.raises(InvalidValue, match=f"at most {MAX_BYTES}"):
        pods.encode_cards(tuple(more))


# Quotas.


def quota(hard: dict[str, Any], settings: PodSettings | None = None) -> Quota | None:
    metadata = {"name": "team", "namespace": "ml"}
    written = pods.decode_quota.convert({"metadata": metadata, "spec": {"hard": hard}})
    return pods.read_quota(written, settings or PodSettings())


def test_a_quota_with_hamis_names() -> None:
    hard = {
        "limits.nvidia.com/gpu": "8",
        "limits.nvidia.com/gpumem": "40k",
        "limits.nvidia.com/gpucores": 200,
        "requests.nvidia.com/gpu": "2",
        "pods": "10",
    }
    assert quota(hard) == Quota("ml", "team", gpu=8, memory_mib=40000, cores=200)
    assert quota({"limits.nvidia.com/gpumem": 0}) == Quota("ml", "team", memory_mib=0)
    assert encode(Quota("ml", "team", gpu=0)) == b'{"namespace":"ml","name":"team","gpu":0}'


def test_a_quota_without_them_is_ignored() -> None:
    assert quota({"pods": "10", "requests.nvidia.com/gpumem": "40k"}) is None
    assert quota({}) is None
    metadata = {"metadata": {"name": "team"}}
    assert pods.read_quota(pods.decode_quota.convert({**metadata, "spec": {"hard": None}})) is None
    assert pods.read_quota(pods.decode_quota.convert(metadata)) is None
    # deploy/ has one, for its own pods.
    (own,) = [each for each in documents("quota.yaml") if each["kind"] == "ResourceQuota"]
    assert pods.read_quota(pods.decode_quota.convert(own)) is None


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("gpu", "-1", "from 0 to"),
        ("gpu", "1.5", "it counts cards"),
        ("gpumem", "40Gi", "for 40GiB write 40960"),
        ("gpumem", "1Gi", "for 1GiB write 1024"),
        ("gpumem", "40GiB", "write 40960"),
        ("gpucores", "200%", "it counts percent"),
    ],
)
def test_an_invalid_quota(name: str, value: str, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        quota({f"limits.nvidia.com/{name}": value})
    says(caught.value, f"spec.hard[limits.nvidia.com/{name}]", value, fix)


def test_a_quota_with_aliyuns_names_is_in_gib() -> None:
    assert quota({"limits.aliyun.com/gpu-mem": 40}, BOTH) == Quota("ml", "team", memory_mib=40960)


def test_a_quota_with_two_values_under_two_names() -> None:
    hard = {"limits.nvidia.com/gpumem": 1024, "limits.aliyun.com/gpu-mem": 2}
    with pytest.raises(InvalidValue) as caught:
        quota(hard, BOTH)
    says(caught.value, "spec.hard[limits.aliyun.com/gpu-mem]", "2", "another name sets 1: keep one")
