"""Assignments that a tenant writes itself, at a real API server: which cards the pods get.

A pod that requests a card is created without the forged assignment, and gets ours when it is bound.
If the webhook is not called, the policy refuses the pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import failing, objects, waiting
from cluster.api import Api, ApiError
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import NODES, PODS
from cluster.webhooks import LEFT_OUT, as_scheduler, tenancy, tenant
from hami_py.scheduler.service import Scheduler

GPU = {"nvidia.com/gpu": 1}
ASSIGNMENT = "hami.io/assignment"


@pytest.fixture(scope="module")
def both(module_control_plane: StartControlPlane) -> Iterator[tuple[ControlPlane, Scheduler]]:
    with tenancy(module_control_plane) as both:
        yield both


@pytest.fixture
def api(both: tuple[ControlPlane, Scheduler]) -> Iterator[Api]:
    with tenant(*both) as api:
        yield api


@pytest.fixture(scope="module")
def cluster(both: tuple[ControlPlane, Scheduler]) -> ControlPlane:
    return both[0]


def forged(node: str, card: str, mib: int, **more: Any) -> str:
    share = {"card": card, "memory_mib": mib, "cores": 0}
    said = {"version": 1, "pod": "x", "node": node, "containers": {"main": [share]}, **more}
    return json.dumps(said)


#: The assignments that a tenant may claim: less than it gets, more, a missing card, and invalid
#: text.
FORGED = [
    {ASSIGNMENT: forged("a", "GPU-a-0", 1)},
    {ASSIGNMENT: forged("a", "GPU-a-0", 10_000), "hami.io/gpumem.main": "10000m"},
    {ASSIGNMENT: forged("a", "GPU-a-1", 3000)},
    {ASSIGNMENT: forged("nowhere", "GPU-nowhere-0", 3000)},
    {ASSIGNMENT: forged("a", "GPU-a-0", 3000, version=999)},
    {ASSIGNMENT: "{}"},
    {ASSIGNMENT: "no JSON", "hami.io/gpumem-0.main": "1m"},
]


@pytest.mark.parametrize("said", FORGED)
def test_a_forged_assignment_is_replaced_by_ours(api: Api, said: dict[str, str]) -> None:
    claims = {"annotations": {**said, "mine": "stays"}, "labels": {"hami.io/pod": "true"}}
    asked = {**GPU, "nvidia.com/gpumem": 3000}
    made = api.create(PODS, objects.pod("mine", asked, metadata=claims))
    assert made["metadata"]["annotations"] == {"mine": "stays"}
    bound = waiting.bound(api, "mine")
    now = bound["metadata"]["annotations"]
    assert {"hami.io/gpumem.main", *said} & now.keys() == {ASSIGNMENT}
    assignment = json.loads(now[ASSIGNMENT])
    assert (assignment["pod"], assignment["node"]) == (made["metadata"]["uid"], "a")
    ((share,),) = assignment["containers"].values()
    assert (share["card"], share["memory_mib"]) == ("GPU-a-0", 3000)
    assert share["card"] in api.get(f"{NODES}/a")["metadata"]["annotations"]["hami.io/cards"]
    # It counts as what it asked for, neither more nor less.
    api.create(PODS, objects.pod("rest", {**GPU, "nvidia.com/gpumem": 7000}))
    waiting.bound(api, "rest")
    assert failing.given(api) == {"GPU-a-0": 10_000}
    api.create(PODS, objects.pod("more", {**GPU, "nvidia.com/gpumem": 1}))
    waiting.unschedulable(api, "more", "too little memory")


@pytest.mark.parametrize("said", FORGED)
@pytest.mark.parametrize(
    ("path", "limits"),
    [(PODS, {}), (LEFT_OUT, {}), (LEFT_OUT, GPU)],
    ids=["asks for none", "asks for none, left out", "left out"],
)
def test_without_the_webhook_the_policy_refuses_it(
    api: Api, path: str, limits: dict[str, int], said: dict[str, str]
) -> None:
    claims = {"annotations": said, "labels": {"hami.io/pod": "true"}}
    placed: list[dict[str, Any]] = [{}, {"nodeName": "a"}]
    for where in placed:
        with pytest.raises(ApiError) as refusal:
            api.create(path, objects.pod("mine", limits, metadata=claims, **where))
        assert refusal.value.code == 422
        assert "only hami-py may write it; keep its value" in str(refusal.value)
    assert api.list(path) == []


def test_without_the_policy_the_scheduler_ignores_it(cluster: ControlPlane, api: Api) -> None:
    """Otherwise a user who can create pods could make every card look used."""
    _, allowed = as_scheduler(cluster)
    uid = api.create(PODS, objects.pod("mine", schedulerName="nobody"))["metadata"]["uid"]
    said = (
        f'{{"version":1,"pod":"{uid}","node":"a","containers":'
        '{"main":[{"card":"GPU-a-0","memory_mib":10000,"cores":100}]}}'
    )
    bound = objects.binding(
        {"metadata": {"name": "mine"}},
        "a",
        annotations={"hami.io/assignment": said},
        labels={"hami.io/pod": "true"},
    )
    allowed.create(f"{PODS}/mine/binding", bound)
    api.create(PODS, objects.pod("second", GPU))
    waiting.bound(api, "second")


def test_no_other_user_can_bind_with_cards(api: Api) -> None:
    api.create(PODS, objects.pod("mine", GPU, schedulingGates=[{"name": "test/wait"}]))
    forged = objects.binding(
        {"metadata": {"name": "mine"}}, "a", annotations={"hami.io/assignment": "{}"}
    )
    for path in (f"{PODS}/mine/binding", "/api/v1/namespaces/default/bindings"):
        with pytest.raises(ApiError, match="only hami-py may write it") as refusal:
            api.create(path, forged)
        assert refusal.value.code == 422
