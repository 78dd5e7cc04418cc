"""Attempts of pod authors to bypass the limits, and exceptions that the operator can allow."""

from typing import Any

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import PodSettings
from unit.pods.build import Manifest, able, container, host, mount, pod

GPU = {"gpu": 1, "gpumem": 3000}

TCMALLOC, JEMALLOC = "/usr/lib/libtcmalloc.so.4", "/usr/lib/libjemalloc.so.2"


@pytest.mark.parametrize(
    ("name", "value", "is_let_in"),
    [
        ("LD_PRELOAD", TCMALLOC, True),
        ("LD_PRELOAD", f"{TCMALLOC}:{JEMALLOC}", True),
        ("LD_PRELOAD", f" {TCMALLOC} ::{JEMALLOC} ", True),
        ("LD_PRELOAD", f"{TCMALLOC}:/tmp/x.so", False),
        ("LD_PRELOAD", f"{TCMALLOC}/../x.so", False),
        ("LD_PRELOAD", "libtcmalloc.so.4", False),
        ("LD_PRELOAD", "$(MINE)", False),
        ("LD_PRELOAD", f"{TCMALLOC}\n/tmp/x.so", False),
        ("LD_PRELOAD", {"configMapKeyRef": {"name": "x", "key": "y"}}, False),
        ("LD_AUDIT", TCMALLOC, False),
    ],
)
def test_an_allowed_library_may_be_preloaded(name: str, value: Any, is_let_in: bool) -> None:
    settings = PodSettings(allowed_preloads=(TCMALLOC, JEMALLOC))
    written = pod(container(limits=GPU, env={name: value}))
    refusals = pods.admit(written, settings).refusals
    assert (refusals == ()) == is_let_in
    if not is_let_in:
        assert (TCMALLOC in refusals[0].fix) == (name == "LD_PRELOAD")
    assert pods.admit(written).refusals


@pytest.mark.parametrize("path", ["", "libx.so", "/a:/b", "/a /b", "/usr/$LIB/x.so"])
def test_only_exact_paths_can_be_allowed(path: str) -> None:
    with pytest.raises(InvalidValue, match="an absolute path"):
        PodSettings(allowed_preloads=(path,))


@pytest.mark.parametrize(
    ("name", "is_let_in"),
    [
        (None, True),
        ("", True),
        ("default-scheduler", True),
        ("hami-scheduler", True),
        ("second", True),
        ("mine", False),
    ],
)
def test_only_a_scheduler_with_the_extender_may_be_named(name: str | None, is_let_in: bool) -> None:
    settings = PodSettings(schedulers=("hami-scheduler", "second"))
    refusals = pods.admit(pod(container(limits=GPU), schedulerName=name), settings).refusals
    assert (refusals == ()) == is_let_in
    for refusal in refusals:
        assert (refusal.field, refusal.value) == ("spec.schedulerName", "mine")
        assert "write hami-scheduler or second" in refusal.fix


def test_a_pod_cannot_opt_out() -> None:
    labels = {"hami.io/webhook": "ignore"}
    bad = container(limits=GPU, env={"LD_PRELOAD": "/x.so"})
    found = pods.admit(pod(bad, labels=labels)).findings
    assert [(each.rule, each.action) for each in found] == [
        ("opt-out", "remark"),
        ("loader-variable", "refuse"),
    ]
    assert found[0].field == "metadata.labels[hami.io/webhook]"
    assert pods.admit(pod(container(), labels=labels)).findings == ()
    assert pods.admit(pod(container(limits=GPU), labels={"hami.io/webhook": "x"})).findings == ()


# Containers that come later, to debug.

E = "spec.ephemeralContainers[0]"


@pytest.mark.parametrize(
    ("inside", "around", "field"),
    [
        ({"securityContext": {"privileged": True}}, {}, f"{E}.securityContext.privileged"),
        (able("SYS_ADMIN"), {}, f"{E}.securityContext.capabilities.add"),
        (able("SYS_PTRACE"), {"hostPID": True}, f"{E}.securityContext.capabilities.add"),
        (mount("/x"), host("/var/lib/hami"), f"{E}.volumeMounts[0]"),
        ({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, {}, f"{E}.env[NVIDIA_VISIBLE_DEVICES]"),
    ],
)
def test_other_containers_that_defeat_a_limit_are_refused(
    inside: Manifest, around: Manifest, field: str
) -> None:
    around = {**around, "ephemeralContainers": [container("debug", **inside)]}
    (refusal,) = pods.judge_ephemeral(pod(container(limits=GPU), **around))
    assert (refusal.action, refusal.field) == ("refuse", field)
    # A container in a pod without a GPU request is ignored.
    assert pods.judge_ephemeral(pod(container(), **around)) == ()
    assert pods.judge_ephemeral(pod(container(limits={"gpumem": "x"}), **around)) == (refusal,)


def test_an_ordinary_debug_container_is_accepted() -> None:
    debug = container("debug", env={"NVIDIA_VISIBLE_DEVICES": "none", "LD_PRELOAD": "/x.so"})
    written = pod(container(limits=GPU), ephemeralContainers=[{**debug, **able("SYS_PTRACE")}])
    assert pods.judge_ephemeral(written) == ()


def test_invisible_variables_are_a_warning() -> None:
    brought = {"envFrom": [{"configMapRef": {"name": "mine"}}]}
    (finding,) = pods.admit(pod(container(limits=GPU, **brought))).findings
    assert (finding.rule, finding.action) == ("unseen-variables", "remark")
    assert finding.field == "spec.containers[0].envFrom"
    assert pods.admit(pod(container(**brought))).findings == ()


def test_more_containers_than_the_allocator_takes_are_refused() -> None:
    asking = [container(f"c{i}", limits=GPU) for i in range(65)]
    assert pods.admit(pod(*asking[:64])).refusals == ()
    (refusal,) = pods.admit(pod(*asking)).refusals
    assert refusal.field == "spec.containers[64]"
    assert "split the pod" in refusal.fix


def test_more_cards_than_fit_into_an_assignment_are_refused() -> None:
    """Else such a pod would be filtered and never bound, again and again."""
    asking = [container(f"c{i}", limits={**GPU, "nvidia.com/gpu": 16}) for i in range(20)]
    assert pods.admit(pod(*asking)).refusals == ()
    one_more = container("more", limits={**GPU, "nvidia.com/gpu": 1})
    (refusal,) = pods.admit(pod(*asking, one_more)).refusals
    assert refusal.field == "spec.containers[20]"
    assert "320 cards over all its containers: split the pod" in refusal.fix
