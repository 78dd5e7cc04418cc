"""Pods that name our resources with zero: kube-scheduler leaves their binding to us."""

from __future__ import annotations

import pytest

from unit.scheduler.small import Object, Small, away

NONE = (
    {"nvidia.com/gpu": "0"},
    {"nvidia.com/gpumem-percentage": "0"},
    {"nvidia.com/gpucores": "0"},
)


def create(small: Small, limits: dict[str, str]) -> None:
    small.create("p")
    small.server.pods["p"]["spec"]["containers"][0]["resources"] = {"limits": limits}


@pytest.mark.parametrize("limits", NONE)
def test_such_pods_fit_everywhere_and_are_bound_without_cards(
    small: Small, limits: dict[str, str]
) -> None:
    create(small, limits)
    assert small.fits("p", "a", "without-cards") == ["a", "without-cards"]
    assert small.bind("p", "without-cards") == ""
    (body,) = small.server.written
    assert body["target"]["name"] == "without-cards"
    assert (body["metadata"]["annotations"], body["metadata"]["labels"]) == ({}, {})
    assert small.cluster.allocator.snapshot() == Small().listed().cluster.allocator.snapshot()


def test_a_pod_whose_bind_response_was_lost_is_bound(small: Small) -> None:
    create(small, NONE[0])
    small.server.after = away
    assert "no answer" in small.bind("p", "a")
    small.server.after = lambda _: None
    assert small.bind("p", "a") == ""
    assert "409" in small.bind("p", "b")
    assert len(small.server.written) == 1


def test_a_bound_pod_of_the_same_name_is_another_pod(small: Small) -> None:
    create(small, NONE[0])

    def made_anew(_: Object) -> None:
        small.server.pods["p"]["metadata"]["uid"] = "uid-other"
        small.server.pods["p"]["spec"]["nodeName"] = "a"

    small.server.before = made_anew
    assert "409" in small.bind("p", "a")
