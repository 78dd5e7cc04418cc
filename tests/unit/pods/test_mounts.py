"""Volumes that reach what keeps the limits, and those that do not."""

import pytest

from hami_py.model import pods
from hami_py.model.pods.admission.findings import Finding
from unit.pods.build import Manifest, container, host, mount, pod

GPU = {"gpu": 1, "gpumem": 3000}
RECURSIVE = {"readOnly": True, "recursiveReadOnly": "Enabled"}
ALL_OF_IT = "readOnly and recursiveReadOnly: Enabled"


def found(mounted: Manifest, around: Manifest) -> tuple[Finding, ...]:
    return pods.admit(pod(container(limits=GPU, **mounted), **around)).findings


@pytest.mark.parametrize("path", ["/etc/ld.so.preload", "//etc/./x/../ld.so.preload/"])
def test_a_mount_over_the_preload_files_is_refused(path: str) -> None:
    (finding,) = found(mount(path), {})
    assert (finding.rule, finding.action) == ("mount", "refuse")
    assert finding.field == "spec.containers[0].volumeMounts[0].mountPath"
    assert finding.value == path
    assert "choose another path" in finding.fix


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


HARMLESS: list[tuple[Manifest, Manifest]] = [
    (mount("/etc/ld.so.conf.d"), {}),
    (mount("/etc"), {}),
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
