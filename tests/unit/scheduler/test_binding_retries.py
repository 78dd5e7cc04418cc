"""A pod that is bound once more: the first attempt may be there, may come, or was never made."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hami_py.kube import MOST_BYTES
from hami_py.kube.errors import Forbidden
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from unit.scheduler.small import Object, Small, away

_INSTANCES = wire.Mig((wire.MigProfile("1g.5gb", 4_864, 1, (0, 1), 1),))


def forbidden(*_: object) -> None:
    raise Forbidden("POST binding", "403: no", "give it the right", 403)


def comes_late(small: Small) -> list[Object]:
    """Bindings are not answered, and not yet written."""
    sent: list[Object] = []

    def unanswered(body: Object) -> None:
        sent.append(body)
        away()

    small.server.before = unanswered
    return sent


def bound_to(small: Small, name: str) -> str | None:
    return small.server.pods[name]["spec"].get("nodeName")


def given(small: Small, name: str) -> Any:
    text = small.server.pods[name]["metadata"]["annotations"]["hami.io/assignment"]
    return json.loads(text)["containers"]["main"]


def cards(name: str, *there: wire.Card, mode: str = "full") -> objects.Node:
    annotations = {pods.annotations.CARDS: pods.encode_cards(there)}
    labels = {"hami.io/mode": mode}
    return objects.Node(objects.Metadata(name=name, annotations=annotations, labels=labels))


def card(uuid: str, mib: int = 10_000, index: int = 0, **more: Any) -> wire.Card:
    return wire.Card(uuid, index, "NVIDIA A100-SXM4-80GB", mib, **more)


@pytest.mark.parametrize("at_s", [0.0, 10.0, 29.0])
def test_a_pod_whose_binding_is_in_doubt_is_bound_to_no_other_node(
    small: Small, at_s: float
) -> None:
    """Else the first would come late, and the cards that it names be another's."""
    small.create("p")
    sent = comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.now_s = at_s
    small.verbs.binder.check_unreported()
    small.server.before = lambda _: None
    assert "it is being bound to node a" in small.bind("p", "b")
    assert small.server.written == []
    # No other pod gets the cards that it may have, and it holds no others.
    small.create("next")
    assert small.fits("next") == ["b"]
    small.server.write(sent[0])
    small.told("p")
    assert bound_to(small, "p") == "a"
    assert small.fits("next") == ["b"]


@pytest.mark.parametrize("how", ["forbidden", "too large"])
def test_a_rejected_second_attempt_shows_nothing_about_the_first(small: Small, how: str) -> None:
    """The first was let through when we had the right, or there was room beside its annotations."""
    small.create("p")
    small.told("p")
    sent = comes_late(small)
    assert "no answer" in small.bind("p", "a")
    if how == "forbidden":
        small.server.before = forbidden
    else:
        small.server.pods["p"]["metadata"]["annotations"] = {"x": "x" * (MOST_BYTES - 100)}
        small.told("p")
    assert "no answer" not in small.bind("p", "a")
    small.create("next")
    assert small.fits("next", "a") == []
    small.server.write(sent[0])
    small.told("p")
    assert small.fits("next", "a") == []


def test_rejected_later_attempts_do_not_extend_the_hold(small: Small) -> None:
    small.create("p")
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.server.before = forbidden
    for at_s in (10.0, 20.0, 30.0):
        small.now_s = at_s
        small.verbs.binder.check_unreported()
        assert "403" in small.bind("p", "a")
    small.create("next")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    assert small.fits("next", "a") == ["a"]


@pytest.mark.parametrize("how", ["gone", "another of that name"])
def test_a_rejection_that_rules_out_the_first_attempt_releases_at_once(
    small: Small, how: str
) -> None:
    small.create("p")
    small.told("p")
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.server.before = lambda _: None
    if how == "gone":
        del small.server.pods["p"]
    else:
        small.create("p", uid="uid-other")
    assert small.bind("p", "a") != ""
    small.create("next")
    assert small.fits("next", "a") == ["a"]


def test_reading_an_earlier_attempt_does_not_affect_the_next(small: Small) -> None:
    """The answer is of before the pod was bound once more."""
    small.create("p")
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.server.before = lambda _: None
    get = small.server.get

    def slow(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        answer = get(path, query, deadline_s=deadline_s)
        small.server.get = get  # type: ignore[method-assign]
        assert small.bind("p", "a") == ""
        return answer

    small.server.get = slow  # type: ignore[method-assign]
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    small.create("next")
    assert small.fits("next", "a") == []


def test_the_same_binding_by_another_replica_is_success(small: Small) -> None:
    """Another replica has bound it just so, between our looking and our writing."""
    small.create("p")

    def first(body: Object) -> None:
        small.server.before = lambda _: None
        small.server.write(body)

    small.server.before = first
    assert small.bind("p", "a") == ""
    assert len(small.server.written) == 1


def test_a_share_is_not_written_for_a_card_of_another_size(small: Small) -> None:
    """Half of 10,000 MiB is more than half of 6,000: with what others have it may be too much."""
    small.create("p")
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}
    small.server.pods["p"]["spec"]["containers"][0]["resources"]["limits"] = limits
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.cluster.nodes.changed(cards("a", card("GPU-a-0", 6000)))
    small.server.before = lambda _: None
    assert "no longer fit" in small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    assert small.bind("p", "a") == ""
    assert given(small, "p") == [{"card": "GPU-a-0", "memory_mib": 3000, "cores": 0}]


@pytest.mark.parametrize("how", ["failed", "cordoned", "gone"])
def test_a_failed_card_does_not_release_other_cards_in_doubt(how: str) -> None:
    """The first attempt was written, and the watch has not told; one of its cards is not open."""
    there = [card(f"GPU-a-{i}", index=i, numa=i // 2) for i in range(4)]
    small = Small(nodes="").listed()
    small.cluster.nodes.changed(cards("a", *there))
    small.create("p", annotations={"nvidia.com/numa-bind": "true"})
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "10000"}
    small.server.pods["p"]["spec"]["containers"][0]["resources"]["limits"] = limits
    small.server.after = away
    assert "no answer" in small.bind("p", "a")
    small.server.after = lambda _: None
    has = [grant["card"] for grant in given(small, "p")]
    assert has == ["GPU-a-0", "GPU-a-1"]
    first, *others = there
    if how == "failed":
        others.append(msgspec.structs.replace(first, healthy=False))
    elif how == "cordoned":
        others.append(first)
    node = cards("a", *others)
    if how == "cordoned":
        assert node.metadata.annotations is not None
        node.metadata.annotations["hami.io/cordon"] = first.uuid
    small.cluster.nodes.changed(node)
    small.fits("p", "a")
    assert "no longer fit" in small.bind("p", "a")
    small.create("next")
    assert small.bind("next", "a") == ""
    assert given(small, "next")[0]["card"] not in has


def test_a_card_in_doubt_that_fails_and_recovers_stays_reserved(small: Small) -> None:
    small.cluster.nodes.changed(cards("a", card("GPU-a-0"), card("GPU-a-1", index=1)))
    small.create("p")
    small.server.after = away
    assert "no answer" in small.bind("p", "a")
    small.server.after = lambda _: None
    first, other = (card(f"GPU-a-{i}", index=i) for i in range(2))
    small.cluster.nodes.changed(cards("a", msgspec.structs.replace(first, healthy=False), other))
    assert "no longer fit" in small.bind("p", "a")
    small.cluster.nodes.changed(cards("a", first, other))
    small.create("next")
    assert small.bind("next", "a") == ""
    assert given(small, "next")[0]["card"] == "GPU-a-1"
    assert small.bind("p", "a") == ""
    assert given(small, "p")[0]["card"] == "GPU-a-0"


def test_an_instance_that_another_pod_has_is_not_written_again() -> None:
    """Another replica led meanwhile, and did not know of what it was promised to here."""
    small = Small(nodes="").listed()
    small.cluster.nodes.changed(cards("a", card("GPU-a-0", mig=_INSTANCES), mode="mig"))
    for name in ("p", "other"):
        small.create(name, mib=4000)
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    first = wire.CardAllocation("GPU-a-0", 4_864, 100, wire.Instance("1g.5gb", 0, 1))
    small.bound_elsewhere("other", "a", first)
    small.told("other")
    small.server.before = lambda _: None
    assert "no longer fit" in small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    assert small.bind("p", "a") == ""
    assert [one["mig"]["start"] for one in given(small, "p")] == [1]


def test_part_of_a_whole_card_is_not_written_after_it_was_partitioned(small: Small) -> None:
    small.create("p", mib=4000)
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    small.cluster.nodes.changed(cards("a", card("GPU-a-0", mig=_INSTANCES), mode="mig"))
    small.server.before = lambda _: None
    assert "no longer fit" in small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    assert small.bind("p", "a") == ""
    assert [one["mig"]["profile"] for one in given(small, "p")] == ["1g.5gb"]


def test_part_of_a_partitioned_card_is_not_written_if_another_is_shared(small: Small) -> None:
    small.create("p", mib=4000)
    comes_late(small)
    assert "no answer" in small.bind("p", "a")
    both = card("GPU-a-0", mig=_INSTANCES), card("GPU-a-1", index=1)
    small.cluster.nodes.changed(cards("a", *both, mode="mig"))
    small.server.before = lambda _: None
    assert "no longer fit" in small.bind("p", "a")


def test_a_binding_by_this_replica_needs_no_event(small: Small) -> None:
    """An idle replica lists the pods of the node; its own pods are there, too."""
    for name in ("p", "next"):
        small.create(name, mib=4000)
    assert small.bind("p", "a") == ""
    small.now_s = 6.0
    assert small.bind("next", "a") == ""


def test_a_failed_read_is_repeated(small: Small) -> None:
    """The event of another replica's binding is awaited, however often the pod is tried."""
    small.create("p", mib=8000)
    small.bound_elsewhere("p", "a", wire.CardAllocation("GPU-a-0", 8_000, 0))
    small.create("next", mib=8000)
    for _ in range(2):
        assert "the watch has not yet reported" in small.bind("next", "a")
    assert small.server.written == []
    small.told("p")
    assert small.fits("next", "a") == []
