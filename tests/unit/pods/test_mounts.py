"""Mounts that cover or reach what enforces the limits, and those that do not."""

import pytest

from hami_py.config import INSIDE
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.model.pods.admission.findings import Finding
from unit.pods.build import Manifest, container, host, mount, pod

GPU = {"gpu": 1, "gpumem": 3000}
RECURSIVE = {"readOnly": True, "recursiveReadOnly": "Enabled"}
ALL_OF_IT = "readOnly and recursiveReadOnly: Enabled"


def found(mounted: Manifest, around: Manifest) -> tuple[Finding, ...]:
    return pods.admit(pod(container(limits=GPU, **mounted), **around)).findings


SLOT, LIMITS, PRELOAD = "/usr/local/hami", "/usr/local/hami/limits", "/etc/ld.so.preload"

VOLUMES: list[Manifest] = [
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory"}},
    {"configMap": {"name": "x"}},
    {"secret": {"secretName": "x"}},
    {"projected": {"sources": []}},
    {"downwardAPI": {"items": []}},
    {"hostPath": {"path": "/data"}},
    {"persistentVolumeClaim": {"claimName": "x"}},
    {"image": {"reference": "x"}},
    {"csi": {"driver": "x"}},
    {"ephemeral": {"volumeClaimTemplate": {}}},
    {"nfs": {"server": "x", "path": "/"}},
]


def device(path: str) -> Manifest:
    return {"volumeDevices": [{"name": "v", "devicePath": path}]}


def message(path: str) -> Manifest:
    return {"terminationMessagePath": path}


COVERS: dict[str, Manifest] = {
    "the slot": mount(SLOT),
    "a file of the slot": mount(LIMITS, subPath="limits"),
    "a file by an expression": mount(LIMITS, subPathExpr="$(POD)"),
    "the grants": mount(f"{SLOT}/grants"),
    "the account": mount(f"{SLOT}/account"),
    "the library": mount(f"{SLOT}/libvgpu.so"),
    "a file that is not there": mount(f"{SLOT}/x/y"),
    "the preload file": mount(PRELOAD),
    "below the preload file": mount(f"{PRELOAD}/x"),
    "a slash at the end": mount(f"{SLOT}/"),
    "slashes": mount("//usr///local//hami//limits"),
    "points": mount("/./usr/local/./hami/."),
    "a way up": mount("/usr/local/x/../hami/limits"),
    "a way up beyond the root": mount("/../../usr/local/hami"),
    "a relative path": mount("usr/local/hami/limits"),
    "a relative path with points": mount("./etc/ld.so.preload"),
    "read-only": mount(SLOT, readOnly=True, recursiveReadOnly="Enabled"),
    "with propagation": mount(SLOT, mountPropagation="HostToContainer"),
    "a block device": device(LIMITS),
    "a block device in another spelling": device("usr/local//hami/libvgpu.so"),
    "a block device at the preload file": device(PRELOAD),
    "a termination message": message(LIMITS),
    "a termination message at the preload file": message("//etc/ld.so.preload"),
    "above, at the root": mount("/"),
    "above, at the root, relative": mount("."),
    "above the slot": mount("/usr/local", readOnly=True),
    "above the slot, higher": mount("/usr/"),
    "above the slot, by a way up": mount(f"{SLOT}/.."),
    "above the preload file": mount("/etc"),
    "above, a block device": device("/usr/local"),
    "above, a termination message": message("/etc"),
}
"""The ways to cover a file that enforces the limits, or a directory around it."""


def refusal(findings: tuple[Finding, ...], place: str, written: Manifest) -> Finding:
    """The only finding, with the field and value that are to be fixed."""
    (finding,) = findings
    ((field, value),) = written.items()
    if isinstance(value, list):
        name = "mountPath" if field == "volumeMounts" else "devicePath"
        field, value = f"{field}[0].{name}", value[0][name]
    assert (finding.rule, finding.action) == ("mount", "refuse")
    assert (finding.field, finding.value) == (f"{place}.{field}", value)
    assert "choose" in finding.fix
    return finding


@pytest.mark.parametrize("written", COVERS.values(), ids=COVERS)
def test_nothing_covers_what_enforces_the_limits(written: Manifest) -> None:
    finding = refusal(found(written, {}), "spec.containers[0]", written)
    assert SLOT in finding.fix or PRELOAD in finding.fix


@pytest.mark.parametrize("written", COVERS.values(), ids=COVERS)
def test_it_is_refused_in_every_kind_of_container(written: Manifest) -> None:
    plain = container(limits=GPU)
    for other in ({}, {"restartPolicy": "Always"}):
        inside = container("init", limits=GPU, **written, **other)
        findings = pods.admit(pod(plain, init=(inside,))).findings
        refusal(findings, "spec.initContainers[0]", written)
    debug = container("debug", targetContainerName="train", **written)
    findings = pods.judge_ephemeral(pod(plain, ephemeralContainers=[debug]))
    refusal(findings, "spec.ephemeralContainers[0]", written)
    # Without a card there is no limit.
    assert pods.admit(pod(plain, container("none", **written))).findings == ()
    assert pods.judge_ephemeral(pod(container(), ephemeralContainers=[debug])) == ()


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/nvidia-container-devices",
        "/var/run/nvidia-container-devices/all",
        "/var//run/./nvidia-container-devices/GPU-1",
        "var/run/nvidia-container-devices/cdi/runtime.nvidia.com/gpu/0",
    ],
)
def test_no_mount_names_a_card_for_nvidias_container_toolkit(path: str) -> None:
    around = {"volumes": [{"name": "v", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}]}
    finding = refusal(found(mount(path), around), "spec.containers[0]", mount(path))
    assert "NVIDIA's container toolkit may add the card" in finding.fix


@pytest.mark.parametrize("volume", VOLUMES, ids=", ".join)
def test_no_volume_of_any_type_covers_the_slot(volume: Manifest) -> None:
    around = {"volumes": [{"name": "v", **volume}]}
    for path in (SLOT, LIMITS, "/usr/local", PRELOAD):
        refusal(found(mount(path), around), "spec.containers[0]", mount(path))
    assert found(mount("/data"), around) == ()


@pytest.mark.parametrize("profile", [HAMI, ALIYUN], ids=lambda profile: profile.name)
def test_they_are_guarded_under_every_name(profile: pods.NameProfile) -> None:
    one = container(limits={profile.gpu: 1}, **mount(str(INSIDE)))
    settings = PodSettings(profiles=(profile,))
    refusal(pods.admit(pod(one), settings).refusals, "spec.containers[0]", mount(SLOT))


FURTHER_IN = ["/var/lib/hami/slots/x", "/etc/cdi/a.json", "/sys/fs/cgroup/devices", "/proc/sys"]
AROUND = [
    "/",
    "/var",
    "/run",
    "/sys",
    "/etc/cdi",
    "/var//lib/./hami/",
    "/srv/../var/lib/hami",
    "/var/lib/kubelet",
    "/sys/fs/cgroup",
    "/proc",
]
LINKS = [
    "/proc/1/root",
    "/proc/1/root/var/lib/hami",
    "//proc/self/../1//root/run/cdi",
    "/proc/self/task/7/cwd",
    "/proc/thread-self/fd/3",
]


@pytest.mark.parametrize("path", [*FURTHER_IN, *AROUND, *LINKS])
def test_a_writable_mount_of_the_limits_is_refused(path: str) -> None:
    (finding,) = found(mount("/host"), host(path))
    assert (finding.rule, finding.action) == ("host-path", "refuse")
    assert (finding.field, finding.value) == ("spec.containers[0].volumeMounts[0]", path)
    assert "mount another directory" in finding.fix
    assert (ALL_OF_IT in finding.fix) == (path not in FURTHER_IN)
    assert "this one with readOnly" in finding.fix


@pytest.mark.parametrize("path", [*AROUND, *LINKS])
@pytest.mark.parametrize(
    "written",
    [
        {"readOnly": True},
        {"readOnly": True, "recursiveReadOnly": "Disabled"},
        {"readOnly": True, "recursiveReadOnly": "IfPossible"},
        {"recursiveReadOnly": "Enabled"},
    ],
)
def test_mounts_below_a_volume_have_to_be_read_only_too(path: str, written: Manifest) -> None:
    """With ``readOnly`` alone the kubelet leaves a tmpfs below the volume writable."""
    (finding,) = found(mount("/host", **written), host(path))
    assert (finding.rule, finding.action, finding.value) == ("host-path", "refuse", path)
    assert ALL_OF_IT in finding.fix


LOOKALIKES = [
    "/usr/local/hami-data",
    "/usr/local/hami.d/limits",
    "/usr/local/ham",
    "/usr/local/bin",
    "/usr/local/vgpu",
    "/usr/local/cuda/hami",
    "/usr/localhami",
    "/usr/share",
    "/local/hami",
    "/data/usr/local/hami/limits",
    "/etc/ld.so.preload.d",
    "/etc/ld.so.conf.d",
    "/etc/ld.so",
    "/etc/hami",
    "/etcetera",
    "/USR/local/hami",
    "/data/...",
    "/data/..x",
    "/data/link/../other",
    # A hook on the node sees where links lead.
    "/proc/self/root/usr/local/hami",
    "/proc/meminfo",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/selfish/root",
    "/srv/proc/self/root",
    "/dev/termination-log",
    "/var/run",
    "/var/run/nvidia",
]

HARMLESS: list[tuple[Manifest, Manifest]] = [
    *((way(path), {}) for path in LOOKALIKES for way in (mount, device, message)),
    (message(""), {}),
    (mount("/cache"), {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}),
    (mount("/data"), host("/data")),
    (mount("/data"), host("/var/lib/hamilton")),
    (mount("/data"), host("/srv/proc/1/root")),
    (mount("/host", name="other"), host("/")),
    *((mount("/host", readOnly=True), host(path)) for path in FURTHER_IN),
    *((mount("/host", **RECURSIVE), host(path)) for path in [*FURTHER_IN, *AROUND, *LINKS]),
]


@pytest.mark.parametrize(("mounted", "around"), HARMLESS)
def test_mounts_that_change_no_limit_are_accepted(mounted: Manifest, around: Manifest) -> None:
    assert found(mounted, around) == ()
