"""Pods whose cards another allocator allocates: what the webhook adds, and what it refuses."""

from typing import Any

import pytest

from hami_py.model import pods
from hami_py.model.pods.admission.findings import Finding
from hami_py.model.pods.owner import LIMITS
from unit.pods.build import (
    CLAIM,
    OF_OTHERS,
    Manifest,
    able,
    carried_out,
    container,
    host,
    manifest,
    mount,
    read,
)


def limited(written: Manifest) -> list[str]:
    """The containers with ``hami.io/limits`` after the webhook, which changes nothing again."""
    admission = pods.admit_others(read(written))
    assert admission.refusals == ()
    done = carried_out(written, admission)
    again = pods.admit_others(read(done))
    assert (again.edits, again.refusals) == ((), ())
    all_containers = [*done["spec"].get("initContainers", []), *done["spec"]["containers"]]
    amounts = {each["name"]: each.get("resources", {}).get("limits", {}) for each in all_containers}
    assert {found[LIMITS] for found in amounts.values() if LIMITS in found} <= {"1", 1}
    return [name for name, found in amounts.items() if LIMITS in found]


@pytest.mark.parametrize(("written", "names"), OF_OTHERS)
def test_each_container_that_may_have_cards_is_limited(written: Manifest, names: list[str]) -> None:
    assert limited(written) == names


def test_no_card_is_no_card() -> None:
    """The API server asks all the same."""
    assert limited(manifest(container("a", limits={"gpu": "0"}))) == []


@pytest.mark.parametrize(
    ("name", "resources", "value", "fix"),
    [
        ("limits", {LIMITS: 2, "gpu": 1}, "2", "write 1, or leave it out"),
        ("limits", {LIMITS: "0", "gpu": 1}, "0", "write 1, or leave it out"),
        ("limits", {LIMITS: "1000m", "gpu": 1}, "1000m", "write 1, or leave it out"),
        ("requests", {LIMITS: "x", "gpu": 1}, "x", "write 1, or leave it out"),
        ("limits", {LIMITS: 10**5000, "gpu": 1}, "a number of 16610 bits", "write 1"),
        ("limits", {LIMITS: 1}, "1", "no other allocator gives this container cards"),
        ("requests", {LIMITS: 10**5000}, "a number of 16610 bits", "no other allocator"),
    ],
)
def test_another_number_of_limits_is_refused(
    name: str, resources: dict[str, Any], value: str, fix: str
) -> None:
    inside: Manifest = {name: resources}
    written = read(manifest(container(**inside)))
    (refusal,) = pods.admit_others(written).refusals
    assert refusal.field == f"spec.containers[0].resources.{name}[{LIMITS}]"
    assert refusal.value == value
    assert fix in refusal.fix


@pytest.mark.parametrize(
    ("inside", "around", "rule"),
    [
        ({"env": {"LD_PRELOAD": "/x.so"}}, {}, "loader-variable"),
        ({"securityContext": {"privileged": True}}, {}, "privileged"),
        (able("SYS_ADMIN"), {}, "capability"),
        (mount("/etc/ld.so.preload"), {}, "mount"),
        (mount("/x"), host("/var/lib/hami"), "host-path"),
        ({}, {"os": {"name": "windows"}}, "windows"),
        ({}, {"nodeName": "a"}, "node-name"),
        ({}, {"annotations": {"hami.io/isolation": "x"}}, "request"),
        ({}, {"annotations": {"hami.io/share-mode": "x"}}, "request"),
        ({"env": {f"V{i}": "x" for i in range(10_001)}}, {}, "size"),
    ],
)
def test_what_could_defeat_limits_is_refused(inside: Manifest, around: Manifest, rule: str) -> None:
    def refusals(**more: Any) -> tuple[Finding, ...]:
        return pods.admit_others(read(manifest(container(**inside, **more), **around))).refusals

    assert [each.rule for each in refusals(**CLAIM)] == [rule]
    assert refusals() == ()


def test_what_belongs_to_the_other_allocator_is_left_alone() -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": {"configMapKeyRef": {"name": "kai", "key": "cards"}}}
    written = manifest(
        container(limits={"gpu": 99, "gpumem": "x"}, env=env),
        schedulerName="kai-scheduler",
        hostPID=True,
    )
    admission = pods.admit_others(read(written))
    assert [(each.rule, each.action) for each in admission.findings] == [("host-pid", "remark")]
    assert admission.request is None
    assert limited(written) == ["train"]


@pytest.mark.parametrize("resources", [{}, CLAIM])
def test_forged_annotations_are_removed(resources: Manifest) -> None:
    written = manifest(container(**resources), annotations={"hami.io/assignment": "{}"})
    admission = pods.admit_others(read(written))
    assert admission.remove_annotations == ("hami.io/assignment",)
    assert [each.action for each in admission.findings] == ["remove"]
    many = {f"hami.io/gpumem.c{i}": "x" for i in range(1000)}
    assert pods.admit_others(read(manifest(container(**resources), annotations=many))).refusals


def test_more_limited_containers_than_of_ours_are_refused() -> None:
    many = [container(f"c{i}", **CLAIM) for i in range(65)]
    assert pods.admit_others(read(manifest(*many[:64]))).refusals == ()
    (refusal,) = pods.admit_others(read(manifest(*many))).refusals
    assert refusal.field == "spec.containers[64]"
    assert "split the pod" in refusal.fix


def test_ephemeral_containers_of_a_limited_pod_are_judged() -> None:
    debug = [container("debug", securityContext={"privileged": True})]
    (refusal,) = pods.judge_ephemeral_others(
        read(manifest(container(**CLAIM), ephemeralContainers=debug))
    )
    assert refusal.field == "spec.ephemeralContainers[0].securityContext.privileged"
    assert pods.judge_ephemeral_others(read(manifest(container(), ephemeralContainers=debug))) == ()
