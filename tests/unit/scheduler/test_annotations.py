"""A binding's annotations beside the pod's: the API server takes any, and no later write then."""

from __future__ import annotations

import json

import pytest

from hami_py.cluster.view import ClusterView
from hami_py.errors import InvalidValue
from hami_py.kube import annotation_bytes, check_annotations
from hami_py.model import pods
from hami_py.model.pods import wire
from support.extender_calls import filtered
from unit.scheduler.small import Small

MOST = 256 * 1024


def test_annotations_that_would_be_too_large_are_not_written(small: Small) -> None:
    """The API server would store them, and refuse every later write of the pod."""
    small.create("p", annotations={"note": "x" * (MOST - 100)})
    small.told("p")
    said = small.bind("p", "a")
    assert "metadata.annotations" in said
    assert f"{MOST - 96} bytes" in said
    assert "shorten the pod's own annotations to" in said
    assert small.server.written == []
    small.create("next")
    assert small.fits("next", "a") == ["a"]


def test_annotations_that_just_fit_are_written(small: Small) -> None:
    small.create("q")
    assert small.bind("q", "b") == ""
    ours = annotation_bytes(small.server.written[0]["metadata"]["annotations"])
    small.create("p", annotations={"note": "x" * (MOST - ours - 4)})
    assert small.bind("p", "a") == ""
    annotations = small.server.pods["p"]["metadata"]["annotations"]
    assert sum(len(key) + len(value) for key, value in annotations.items()) == MOST


@pytest.mark.parametrize(
    "key", ["", "a b", "/a", "a/", "a/b/c", "x" * 64, "hami.io/-a", "ha_mi.io/a", "ü/a"]
)
def test_an_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_annotations(0, {key: "1"})
    assert caught.value.value == key


def test_annotations_are_counted_in_bytes() -> None:
    """As the API server does: a letter may be several."""
    assert annotation_bytes({"hami.io/ä": "€"}) == len("hami.io/") + 2 + 3


@pytest.mark.parametrize("key", ["a", "A.b_c-9", "hami.io/gpumem-0.main", "HAMI.io/a", "x" * 63])
def test_a_valid_key_is_accepted(key: str) -> None:
    check_annotations(0, {key: "1"})


def test_percentages_are_written_with_valid_keys(small: Small) -> None:
    """The longest name that a container can have."""
    small.create("p")
    container = small.server.pods["p"]["spec"]["containers"][0]
    container["name"] = "x" * 63
    container["resources"]["limits"] = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    assert small.bind("p", "a") == ""
    (body,) = small.server.written
    assert len(body["metadata"]["annotations"]) == 2
    assert json.dumps(body)


def noted(small: Small, size: int) -> pods.Pod:
    """A pod ``p`` with so many bytes of annotations."""
    small.create("p", annotations={"note": "x" * (size - 4)})
    return small.seen("p")


def test_a_pod_without_room_for_ours_fits_nowhere(small: Small) -> None:
    """It was held and refused when it was bound, again and again, and the pod did not say why."""
    pod = noted(small, MOST - 100)
    found = filtered(small.verbs, pod, ["a", "b"])
    reasons = found.failed_and_unresolvable_nodes
    assert (found.node_names, found.failed_nodes, found.error) == ([], {}, "")
    assert reasons.keys() == {"a", "b"}
    for reason in reasons.values():
        assert reason.startswith(f'metadata.annotations: "{MOST - 100} bytes" is refused: ')
        assert f"Kubernetes allows {MOST} bytes" in reason
        assert "shorten the pod's own annotations to" in reason
    # Nothing is held for it, and it is as any other once there is less.
    small.create("next")
    assert small.fits("next") == ["a", "b"]
    small.create("p", annotations={"note": "x"})
    assert small.fits("p") == ["a", "b"]


def test_a_pod_that_passes_the_filter_can_be_written(small: Small) -> None:
    """The most that it lets through; and not much less than there is room for."""
    room = MOST // 2, MOST
    while room[1] - room[0] > 1:
        size = sum(room) // 2
        found = filtered(small.verbs, noted(small, size), ["a"])
        room = (size, room[1]) if found.node_names else (room[0], size)
    assert room[0] > MOST - 1024
    noted(small, room[0])
    assert small.fits("p", "a") == ["a"]
    assert small.bind("p", "a") == ""
    assert annotation_bytes(small.seen("p").annotations) <= MOST


@pytest.mark.parametrize("memory", [wire.Size(percent=100), wire.Size(mib=1), "whole"])
@pytest.mark.parametrize("cards", [(320,), (5,) * 64, (1,)])
def test_no_binding_writes_more_than_the_reserved_size(
    cards: tuple[int, ...], memory: wire.Memory
) -> None:
    """The names are longer than half of the limit; below that there is no check."""
    names = [f"{number:063}" for number in range(len(cards))]
    asks = tuple(
        wire.ContainerRequest(name, "app", count, memory)
        for name, count in zip(names, cards, strict=True)
    )
    name = wire.PodName("0" * 36, "n" * 63, "p" * 253)
    request = wire.PodRequest(name, 0, asks, wire.CardRequest())
    instance = wire.Instance("7g.80gb+me", 10, 10)
    given = {
        ask.container: tuple(
            wire.CardAllocation(f"GPU-{number:036}", 1 << 20, 100, instance)
            for number in range(ask.cards)
        )
        for ask in asks
    }
    assignment = wire.Assignment(1, name.uid, "n" * 253, given)
    written = annotation_bytes(pods.bind_annotations(request, assignment))
    assert written <= annotation_bytes(pods.longest_annotations(request)) <= MOST // 2


def test_the_view_reports_it_for_a_pod_without_cards(small: Small) -> None:
    view = ClusterView.restore(small.cluster.allocator.snapshot())
    pod = noted(small, MOST - 100)
    with pytest.raises(InvalidValue, match="shorten the pod's own annotations to"):
        view.explain(pod)
    (outcome,) = view.what_if([pod])
    assert outcome.node is None
    assert "shorten the pod's own annotations to" in outcome.reasons[""]
    small.create("bound")
    assert small.bind("bound", "a") == ""
    small.server.pods["bound"]["metadata"]["annotations"]["note"] = "x" * (MOST - 600)
    assert [each.node for each in view.explain(small.seen("bound")) if each.fits] == ["a", "b"]
