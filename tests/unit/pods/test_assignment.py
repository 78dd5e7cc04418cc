"""The annotation that says which cards a pod has."""

import json
import random
import re
from typing import Any

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import annotations
from hami_py.model.pods.assignment import FIELD, MAX_BYTES
from hami_py.model.pods.request import MAX_POD_CARDS, MAX_POD_CONTAINERS
from hami_py.model.pods.wire import (
    Assignment,
    CardAllocation,
    CardRequest,
    ContainerRequest,
    Instance,
    PodName,
    PodRequest,
    Size,
)
from unit.pods.build import FIRST, SECOND, UID, asking, container, pod, read, says
from unit.pods.build import manifest as written_pod

GRANT = {"card": FIRST, "memory_mib": 3000, "cores": 30}
WRITTEN = {"version": 1, "pod": UID, "node": "n1", "containers": {"train": [GRANT]}}
MEANT = Assignment(1, UID, "n1", {"train": (CardAllocation(FIRST, 3000, 30),)})
TEXT = (
    '{"version":1,"pod":"7a0c5d2e-9b1f-4d3a-8c6e-1f2a3b4c5d6e","node":"n1","containers":'
    '{"train":[{"card":"GPU-aaaaaaaa","memory_mib":3000,"cores":30}]}}'
)


def test_an_assignment_is_these_bytes() -> None:
    """They are in clusters: a change of them is a new version."""
    assert pods.encode_assignment(MEANT) == TEXT
    assert pods.decode_assignment(TEXT) == MEANT
    assert pods.decode_assignment(TEXT.encode()) == MEANT


def test_the_order_in_which_containers_were_named_does_not_matter() -> None:
    names = ["b", "a", "d", "c"]
    forwards = {name: (CardAllocation(FIRST, 1, 0),) for name in names}
    backwards = {name: (CardAllocation(FIRST, 1, 0),) for name in reversed(names)}
    texts = {
        pods.encode_assignment(Assignment(1, UID, "n1", each)) for each in (forwards, backwards)
    }
    assert len(texts) == 1


def test_random_assignments_survive_a_round_trip() -> None:
    chosen = random.Random(1)  # noqa: S311
    for _ in range(500):
        containers = {
            f"c{chosen.randrange(1000)}": tuple(
                CardAllocation(
                    f"GPU-{card}",
                    chosen.randrange(1 << 40),
                    chosen.randrange(101),
                    Instance("1g.10gb", card % 7, 1) if chosen.random() < 0.2 else None,
                )
                for card in chosen.sample(range(10**6), chosen.randrange(1, 17))
            )
            for _ in range(chosen.randrange(1, 8))
        }
        made = Assignment(1, str(chosen.randrange(10**12)), f"n{chosen.randrange(99)}", containers)
        text = pods.encode_assignment(made)
        assert pods.decode_assignment(text) == made
        assert pods.encode_assignment(pods.decode_assignment(text)) == text


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**WRITTEN, **changes}.items() if value is not ...}


def granted(**changes: Any) -> dict[str, Any]:
    grant = {key: value for key, value in {**GRANT, **changes}.items() if value is not ...}
    return changed(containers={"train": [grant]})


BAD: list[tuple[Any, str, str, str]] = [
    ([], "", "array", "object"),
    ({}, ".version", "", "required"),
    (changed(version="1"), ".version", "str", "int"),
    (changed(version=True), ".version", "bool", "int"),
    (changed(version=1.5), ".version", "float", "int"),
    (changed(pod=...), ".pod", "", "required"),
    (changed(pod=""), ".pod", "", "required"),
    (changed(node=""), ".node", "", "required"),
    (changed(node=None), ".node", "null", "str"),
    (changed(containers={}), ".containers", "{}", "name a container"),
    (changed(containers=[]), ".containers", "array", "object"),
    (changed(containers={"train": []}), ".containers[train]", "[]", "name a card"),
    (granted(card=""), ".containers[train].card", "", "UUID"),
    (granted(card=...), ".containers[...][0].card", "", "required"),
    (granted(memory_mib=-1), ".containers[...][0].memory_mib", "Expected `int` >= 0", "format"),
    (granted(memory_mib="3000"), ".containers[...][0].memory_mib", "str", "int"),
    (granted(cores=101), ".containers[...][0].cores", "Expected `int` <= 100", "format"),
    (changed(containers={"train": [GRANT, GRANT]}), ".containers[train]", FIRST, "twice"),
    (
        changed(
            containers={
                "train": [GRANT, {**GRANT, "mig": {"profile": "1g.10gb", "start": 0, "size": 1}}]
            }
        ),
        ".containers[train]",
        FIRST,
        "twice",
    ),
]


@pytest.mark.parametrize(("written", "place", "value", "fix"), BAD)
def test_a_bad_one_is_refused(written: Any, place: str, value: str, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.decode_assignment(json.dumps(written))
    says(caught.value, FIELD + place, value, fix)


@pytest.mark.parametrize("text", ["", "{", "null", TEXT + "x", "a" * (MAX_BYTES + 1), "\udcff"])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.decode_assignment(text)
    assert caught.value.field == FIELD


def test_two_instances_of_one_card_are_two() -> None:
    instances = tuple(
        CardAllocation(FIRST, 9728, 14, Instance("1g.10gb", start, 1)) for start in (0, 1)
    )
    made = Assignment(1, UID, "n1", {"train": instances})
    assert pods.decode_assignment(pods.encode_assignment(made)) == made


def test_fields_of_a_newer_release_are_ignored() -> None:
    """They barred the pod's node for new pods until all parts had the newer release."""
    newer = {**granted(more=1, mig={"profile": "1g.10gb", "start": 0, "size": 1, "more": 1})}
    instance = Instance("1g.10gb", 0, 1)
    meant = Assignment(1, UID, "n1", {"train": (CardAllocation(FIRST, 3000, 30, instance),)})
    assert pods.decode_assignment(json.dumps({**newer, "more": {"a": []}})) == meant


@pytest.mark.parametrize("version", [0, 2, -1, 10**6])
def test_another_version_is_not_parsed(version: int) -> None:
    later = json.dumps({"version": version, "cards": "whatever they are then"})
    with pytest.raises(pods.UnknownVersion) as caught:
        pods.decode_assignment(later)
    assert caught.value.version == version
    assert not isinstance(caught.value, InvalidValue)
    assert "this is version 1" in str(caught.value)


@pytest.mark.parametrize("containers", [MAX_POD_CARDS // 16, MAX_POD_CONTAINERS])
def test_the_largest_accepted_pod_can_be_bound(containers: int) -> None:
    """With the longest of everything: names, numbers and instances."""
    instance = Instance("4g.141gb+me.all", 15, 16)
    each = MAX_POD_CARDS // containers
    asks, given = [], {}
    for i in range(containers):
        grants = tuple(
            CardAllocation(f"GPU-{16 * i + at:036}", 10**7 - 1, 100, instance) for at in range(each)
        )
        asks.append(ContainerRequest(f"{i:063}", "app", each, Size(percent=100)))
        given[f"{i:063}"] = grants
    request = PodRequest(PodName("p" * 36, "n" * 63, "p" * 253), 0, tuple(asks), CardRequest())
    most = Assignment(1, "p" * 36, "n" * 253, given)
    written = pods.bind_annotations(request, most)
    assert pods.decode_assignment(written[pods.annotations.ASSIGNMENT]) == most
    # Half of what Kubernetes allows: the pod has annotations of its own.
    assert sum(len(key) + len(value) for key, value in written.items()) < 128 << 10


def test_it_stays_small() -> None:
    grants = tuple(CardAllocation(f"GPU-{i:036}", 80000, 100) for i in range(16))
    too_many = Assignment(1, UID, "n1", {f"{i:063}": grants for i in range(80)})
    with pytest.raises(InvalidValue, match=f"at most {MAX_BYTES}"):
        pods.encode_assignment(too_many)


# The pod of an assignment.


def bound(text: str | None, node: str | None = "n1") -> pods.Pod:
    notes = {} if text is None else {"hami.io/assignment": text}
    fields = {} if node is None else {"nodeName": node}
    return pod(container(limits={"gpu": 1}), annotations=notes, **fields)


def test_a_bound_pods_assignment_is_read() -> None:
    assert pods.assignment_of(bound(TEXT)) == MEANT
    assert pods.assignment_of(bound(None)) is None


def test_before_a_binding_an_assignment_is_forged() -> None:
    assert pods.assignment_of(bound(TEXT, node=None)) is None
    assert pods.assignment_of(bound(TEXT, node="")) is None


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [(changed(pod="another"), "pod", "another"), (changed(node="n2"), "node", "n2")],
)
def test_a_copied_assignment_is_rejected(written: Any, field: str, value: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.assignment_of(bound(json.dumps(written)))
    says(caught.value, f"{FIELD}.{field}", value, "delete the pod")


def test_a_pod_with_an_unreadable_request_requests_its_assignment() -> None:
    written = written_pod(
        container("train", limits={"gpumem": "?"}),
        container("log"),
        init=(container("fetch"), container("proxy", restartPolicy="Always")),
        priority=7,
    )
    given = {
        "train": (CardAllocation(FIRST, 3000, 30), CardAllocation(SECOND, 4000, 20)),
        "proxy": (CardAllocation(FIRST, 100, 0),),
        "fetch": (CardAllocation(FIRST, 200, 5),),
    }
    asked = pods.as_assigned(read(written), Assignment(1, UID, "n1", given))
    assert asked == PodRequest(
        PodName(UID, "ml", "p"),
        7,
        (
            ContainerRequest("fetch", "init", 1, Size(mib=200), 5),
            ContainerRequest("proxy", "sidecar", 1, Size(mib=100), 0),
            ContainerRequest("train", "app", 2, Size(mib=4000), 30),
        ),
        CardRequest(),
    )


# The annotations of a binding.


def request_of(written: pods.Pod) -> pods.wire.PodRequest:
    request = pods.read_request(written)
    assert request is not None
    return request


def test_numbers_of_the_pod_are_not_repeated_in_annotations() -> None:
    request = request_of(asking(gpumem=3000, gpucores=30))
    assert pods.bind_annotations(request, MEANT) == {"hami.io/assignment": TEXT}


def test_a_percentage_becomes_a_number() -> None:
    request = request_of(asking(gpumem_percentage=50))
    made = pods.bind_annotations(request, MEANT)
    assert made["hami.io/gpumem.train"] == "3000m"
    assert set(made) == {"hami.io/assignment", "hami.io/gpumem.train"}


def test_a_percentage_of_unlike_cards_is_a_number_each() -> None:
    request = request_of(asking(gpu=2, gpumem_percentage=50))
    grants = (CardAllocation(FIRST, 20000, 0), CardAllocation(SECOND, 40000, 0))
    made = pods.bind_annotations(request, Assignment(1, UID, "n1", {"train": grants}))
    assert made["hami.io/gpumem-0.train"] == "20000m"
    assert made["hami.io/gpumem-1.train"] == "40000m"
    assert len(made) == 3


@pytest.mark.parametrize("containers", [{"train": (CardAllocation(FIRST, 1, 0),)}, {}])
def test_an_assignment_of_another_request_is_refused(containers: Any) -> None:
    request = request_of(asking(gpu=2))
    with pytest.raises(InvalidValue, match="requests 2 cards"):
        pods.bind_annotations(
            request, Assignment(1, UID, "n1", {"x": MEANT.containers["train"], **containers})
        )


# The annotations' names.

QUALIFIED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,61})?[A-Za-z0-9]")
"""Of what stands behind the slash, by Kubernetes' own rule (at most 63 characters)."""


@pytest.mark.parametrize("length", [1, 2, 50, 55, 56, 57, 60, 63])
@pytest.mark.parametrize("card", [None, 0, 9, 15])
def test_a_key_is_a_qualified_name_however_long_the_containers_is(
    length: int, card: int | None
) -> None:
    key = annotations.memory_key("c" * length, card)
    prefix, _, name = key.partition("/")
    assert prefix == "hami.io"
    assert QUALIFIED.fullmatch(name)
    assert len(name) <= 63
    assert annotations.is_written_by_us(key)


def test_keys_are_different_for_different_containers_and_cards() -> None:
    chosen = random.Random(2)  # noqa: S311
    names = {"a" * 62 + last for last in "abcdefgh"}
    names |= {"".join(chosen.choices("ab-", k=61)).join("aa") for _ in range(500)}
    # A short name that looks like what a long one becomes.
    names |= {annotations.memory_key(n).partition(".")[2].replace("_", "-") for n in list(names)}
    keys = {annotations.memory_key(n, c) for n in names for c in (None, 0, 1, 10)}
    assert len(keys) == 4 * len(names)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("hami.io/assignment", True),
        ("hami.io/gpumem.train", True),
        ("hami.io/gpumem-15.train", True),
        ("hami.io/gpumem", False),
        ("hami.io/gpu-scheduler-policy", False),
        ("hami.io/assignments", False),
        ("example.com/hami.io/assignment", False),
        ("nvidia.com/gpumem.train", False),
    ],
)
def test_only_we_write_these_annotations(key: str, ours: bool) -> None:
    assert annotations.is_written_by_us(key) is ours


def test_the_pod_that_was_read_is_the_one_that_was_written() -> None:
    """From one end to the other: read, bound, and read again as the API server has it then."""
    written = written_pod(container(limits={"gpu": 1, "gpumem-percentage": 50}))
    request = request_of(read(written))
    written["metadata"]["annotations"] = pods.bind_annotations(request, MEANT)
    written["spec"]["nodeName"] = MEANT.node
    again = read(written)
    assert pods.assignment_of(again) == MEANT
    assert pods.read_request(again) == request
