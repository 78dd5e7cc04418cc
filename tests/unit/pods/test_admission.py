"""The webhook's decisions about a pod: refusals, warnings, and the same result the second time."""

import json
import random

import pytest

from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from unit.pods.build import (
    Manifest,
    able,
    any_pod,
    asking,
    carried_out,
    container,
    manifest,
    mount,
    pod,
    read,
)

GPU = {"gpu": 1, "gpumem": 3000}
PRIVILEGED = {"securityContext": {"privileged": True}}


CAPABILITIES = "securityContext.capabilities.add"
COUNTERS = "NVreg_RestrictProfilingToAdminUsers=0"
UNSEEN = {"configMapKeyRef": {"name": "x", "key": "y"}}
# The container's fields; rule, field in the container, value, a part of the fix
REFUSED: list[tuple[Manifest, str, str, str, str]] = [
    ({"env": {"LD_PRELOAD": "/x.so"}}, "loader-variable", "env[LD_PRELOAD]", "/x.so", "leave it"),
    ({"env": {"LD_AUDIT": UNSEEN}}, "loader-variable", "env[LD_AUDIT]", "valueFrom", "leave it"),
    (PRIVILEGED, "privileged", "securityContext.privileged", "true", "where a GPU is requested"),
    (able("ALL"), "capability", CAPABILITIES, "ALL", "name the few"),
    (able("SYS_ADMIN"), "capability", CAPABILITIES, "SYS_ADMIN", COUNTERS),
    (able("CAP_SYS_ADMIN"), "capability", CAPABILITIES, "CAP_SYS_ADMIN", COUNTERS),
    (able("sys_module"), "capability", CAPABILITIES, "sys_module", "leave it out"),
    (able("SYS_RAWIO"), "capability", CAPABILITIES, "SYS_RAWIO", "leave it out"),
    (able("DAC_READ_SEARCH"), "capability", CAPABILITIES, "DAC_READ_SEARCH", "leave it out"),
    (able("BPF"), "capability", CAPABILITIES, "BPF", "leave it out"),
]


def only_refusal(written: pods.Pod, rule: str, field: str, value: str, fix: str) -> None:
    (finding,) = pods.admit(written).refusals
    assert (finding.rule, finding.action) == (rule, "refuse")
    assert (finding.field, finding.value) == (field, value)
    assert fix in finding.fix
    assert str(finding) == f"{field}: {json.dumps(value)} is refused: {finding.fix}"


@pytest.mark.parametrize(("inside", "rule", "field", "value", "fix"), REFUSED)
def test_settings_that_defeat_a_limit_are_refused(
    inside: Manifest, rule: str, field: str, value: str, fix: str
) -> None:
    written = pod(container(limits=GPU, **inside))
    only_refusal(written, rule, f"spec.containers[0].{field}", value, fix)


def test_settings_of_the_pod_that_defeat_a_limit_are_refused() -> None:
    windows = pod(container(limits=GPU), os={"name": "windows"})
    only_refusal(windows, "windows", "spec.os.name", "windows", "leave out the GPU")
    chosen = pod(container(limits=GPU), nodeName="n1")
    only_refusal(chosen, "node-name", "spec.nodeName", "n1", "with spec.nodeSelector")


HARMLESS: list[tuple[Manifest, Manifest]] = [
    ({"env": {"LD_PRELOAD": "", "LD_LIBRARY_PATH": "/x", "LD_DEBUG": "libs"}}, {}),
    ({"securityContext": {"privileged": False, "runAsUser": 0, "capabilities": None}}, {}),
    (able("NET_ADMIN", "SYS_PTRACE", "IPC_LOCK", "SYS_NICE"), {}),
    ({}, {"hostNetwork": True, "hostIPC": True, "shareProcessNamespace": True}),
    ({}, {"nodeName": "", "nodeSelector": {"gpu": "on"}}),
    ({}, {"schedulerName": "volcano", "os": {"name": "linux"}}),
]


@pytest.mark.parametrize(("inside", "around"), HARMLESS)
def test_common_harmless_settings_are_accepted(inside: Manifest, around: Manifest) -> None:
    admission = pods.admit(pod(container(limits=GPU, **inside), **around))
    assert admission.findings == ()
    assert admission.request is not None


@pytest.mark.parametrize(
    "inside",
    [
        {"env": {"LD_PRELOAD": "/x.so"}},
        PRIVILEGED,
        able("ALL"),
        mount("/etc/ld.so.preload"),
    ],
)
def test_a_container_without_a_gpu_may_use_them(inside: Manifest) -> None:
    """Such as an init container that sets a sysctl, or a sidecar that needs the network."""
    written = pod(container(limits=GPU), init=(container("sysctl", **inside),))
    assert pods.admit(written).findings == ()


@pytest.mark.parametrize("name", ["SYS_PTRACE", "CAP_SYS_PTRACE"])
def test_host_pid_is_a_warning_and_with_ptrace_refused(name: str) -> None:
    (finding,) = pods.admit(pod(container(limits=GPU), hostPID=True)).findings
    assert (finding.rule, finding.action, finding.field) == ("host-pid", "remark", "spec.hostPID")
    assert '"true" is admitted: ' in str(finding)
    written = pod(container(limits=GPU, **able(name)), hostPID=True)
    (refusal,) = pods.admit(written).refusals
    assert refusal.rule == "capability"
    assert "spec.hostPID" in refusal.fix


def test_all_errors_are_reported_at_once() -> None:
    bad = {"securityContext": {"privileged": True}, "env": {"LD_PRELOAD": "/x.so"}}
    written = pod(
        container(limits=GPU, **bad), container("b", limits=GPU, **able("ALL")), nodeName="n1"
    )
    rules = [each.rule for each in pods.admit(written).refusals]
    assert rules == ["node-name", "loader-variable", "privileged", "capability"]


def test_a_request_that_cannot_be_read_is_a_refusal() -> None:
    admission = pods.admit(asking(gpu=17))
    assert admission.request is None
    assert admission.edits == ()
    (finding,) = admission.refusals
    assert finding.rule == "request"
    assert str(finding) == str(finding.error())
    assert finding.field == "spec.containers[0].resources.limits[nvidia.com/gpu]"


@pytest.mark.parametrize("value", [1, 3, 99])
def test_memory_too_small_for_cuda_is_a_warning(value: int) -> None:
    (finding,) = pods.admit(asking(gpumem=value)).findings
    assert (finding.rule, finding.action, finding.value) == ("small-memory", "remark", str(value))
    assert "nvidia.com/gpumem counts MiB" in finding.fix
    assert pods.admit(asking(gpumem=100)).findings == ()


@pytest.mark.parametrize(
    ("cards", "annotation", "warned"),
    [
        (1, None, False),
        (2, None, True),
        (2, "nvidia.com/use-gputype", False),
        (2, "nvidia.com/use-gpuuuid", False),
    ],
)
def test_a_percentage_of_several_cards_is_a_warning(
    cards: int, annotation: str | None, warned: bool
) -> None:
    """Of a T4 and an L40S it is 5 and 15 GiB."""
    one = container(limits={"gpu": cards, "gpumem-percentage": 33})
    findings = pods.admit(
        pod(one, annotations={annotation: "GPU-a, GPU-b"} if annotation else {})
    ).findings
    assert [(each.rule, each.action, each.value) for each in findings] == (
        [("mixed-cards", "remark", "33")] * warned
    )


# Annotations that only we write.


@pytest.mark.parametrize("limits", [GPU, {}])
def test_a_forged_assignment_is_removed(limits: Manifest) -> None:
    forged = {
        "hami.io/assignment": '{"version":1}',
        "hami.io/gpumem.train": "80000m",
        "hami.io/gpumem-1.train": "80000m",
        "hami.io/gpu-scheduler-policy": "spread",
        "mine": "x",
    }
    written = manifest(container(limits=limits), annotations=forged)
    admission = pods.admit(read(written))
    assert [(f.rule, f.action) for f in admission.warnings] == [("forged-annotation", "remove")] * 3
    done = carried_out(written, admission)
    assert set(done["metadata"]["annotations"]) == {"hami.io/gpu-scheduler-policy", "mine"}
    assert pods.admit(read(done)).warnings == ()


# Additions.


@pytest.mark.parametrize(
    ("limits", "added"),
    [
        ({"gpu": 1, "gpumem": 3000}, {}),
        ({"gpumem": 3000}, {"nvidia.com/gpu": "1"}),
        ({"gpumem-percentage": 50}, {"nvidia.com/gpu": "1"}),
        ({"gpucores": 30}, {"nvidia.com/gpu": "1"}),
        ({"gpu": 1}, {"nvidia.com/gpucores": "100"}),
        ({"gpu": 1, "gpucores": 0}, {}),
        ({"gpumem-percentage": 100}, {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100"}),
    ],
)
def test_missing_limits_are_added(limits: Manifest, added: Manifest) -> None:
    edits = pods.admit(pod(container(limits=limits))).edits
    assert (dict(edits[0].limits) if edits else {}) == added


def test_the_kubelets_resource_is_added_for_other_names_too() -> None:
    settings = PodSettings(profiles=(HAMI, ALIYUN))
    labels = {"aliyun.com/gpu-count": "2"}
    written = manifest(container(limits={"aliyun.com/gpu-mem": 8}), labels=labels)
    admission = pods.admit(read(written), settings)
    (edit,) = admission.edits
    assert edit.limits == {"nvidia.com/gpu": "2"}
    assert [added.value for added in edit.environment.add] == ["4096m"]
    again = pods.admit(read(carried_out(written, admission)), settings)
    assert again.edits == ()
    assert again.request == admission.request


def test_complete_containers_are_unchanged() -> None:
    written = manifest(
        container("proxy", env={"A": "b"}),
        container("train", limits={"gpumem": 3000}),
        init=(container("copy"), container("warm", limits={"gpucores": 10})),
    )
    edits = pods.admit(read(written)).edits
    assert [(e.path, e.container) for e in edits] == [
        ("spec.initContainers[1]", "warm"),
        ("spec.containers[1]", "train"),
    ]
    assert pods.admit(read(manifest(container(limits={"cpu": 1})))) == pods.Admission()


# Twice.


def test_a_second_mutation_changes_nothing() -> None:
    chosen = random.Random(4)  # noqa: S311
    let_in = 0
    for number in range(3000):
        settings = PodSettings(
            core_policy=chosen.choice(["default", "force"]),
            default_memory_mib=chosen.choice([0, 0, 2000]),
            isolations=chosen.choice([{}, {"ml": "preload"}]),
        )
        written = any_pod(chosen)
        admission = pods.admit(read(written), settings)
        if admission.refusals:
            continue
        let_in += 1
        done = carried_out(written, admission)
        again = pods.admit(read(done), settings)
        assert again.edits == (), number
        assert (again.remove_annotations, again.annotations) == ((), {})
        assert all(each.action == "remark" for each in again.findings)
        assert again.request == admission.request
        assert carried_out(done, again) == done
    assert let_in > 300
