"""The pod of a process, by cgroups as real kubelets and runtimes name them."""

import os
import signal
import subprocess
from mmap import PROT_READ, mmap
from pathlib import Path

import pytest

from hami_py.node.processes import kill_container, mapped_files, pod_of, pods_with_processes

UID = "8dbc6577-d0e2-4706-8787-57d52c03ddf2"
MIRROR = "7e6c2b8a0f5d4e1ab9c3d2e1f0a9b8c7"
"""The UID of a static pod is a hash; its mirror on the API server has another one."""

ID = "4f1a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566aabb"
WITH_UNDERSCORES = UID.replace("-", "_")

V1_CONTROLLERS = ("12:pids", "11:memory", "10:cpu,cpuacct", "1:name=systemd")


def v1(path: str, last: str = "") -> str:
    return "".join(f"{controller}:{path}\n" for controller in V1_CONTROLLERS) + last


FOUND = {
    "v1, guaranteed": v1(f"/kubepods/pod{UID}/{ID}"),
    "v1, burstable": v1(f"/kubepods/burstable/pod{UID}/{ID}"),
    "v1, best effort": v1(f"/kubepods/besteffort/pod{UID}/{ID}"),
    "v1 with v2 beside it": v1(f"/kubepods/pod{UID}/{ID}", "0::/system.slice/containerd.service\n"),
    "v1, systemd": v1(
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{WITH_UNDERSCORES}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "v2, guaranteed": f"0::/kubepods/pod{UID}/{ID}\n",
    "v2, burstable": f"0::/kubepods/burstable/pod{UID}/{ID}\n",
    "v2, systemd, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{WITH_UNDERSCORES}.slice/cri-containerd-{ID}.scope\n"
    ),
    "v2, systemd, burstable": (
        "0::/kubepods.slice/kubepods-burstable.slice"
        f"/kubepods-burstable-pod{WITH_UNDERSCORES}.slice/cri-containerd-{ID}.scope\n"
    ),
    "v2, CRI-O": (
        "0::/kubepods.slice/kubepods-besteffort.slice"
        f"/kubepods-besteffort-pod{WITH_UNDERSCORES}.slice/crio-{ID}.scope\n"
    ),
    "v2, CRI-O with a group inside": (
        f"0::/kubepods.slice/kubepods-pod{WITH_UNDERSCORES}.slice/crio-{ID}.scope/container\n"
    ),
    "v2, cri-dockerd": (
        f"0::/kubepods.slice/kubepods-pod{WITH_UNDERSCORES}.slice/docker-{ID}.scope\n"
    ),
    "v2, kind": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
        f"/kubelet-kubepods-burstable-pod{WITH_UNDERSCORES}.slice/cri-containerd-{ID}.scope\n"
    ),
    "v2, seen from the cgroup namespace of another pod": (
        f"0::/../../kubepods-burstable-pod{WITH_UNDERSCORES}.slice/cri-containerd-{ID}.scope\n"
    ),
    "v2, the same with cgroupfs": f"0::/../../pod{UID}/{ID}\n",
    "the kubelet with systemd, containerd without": v1(
        f"/system.slice/containerd.service/kubepods-burstable-pod{WITH_UNDERSCORES}.slice"
        f":cri-containerd:{ID}"
    ),
    "a group that the container made": (
        f"0::/kubepods/pod{UID}/{ID}/pod00000000-0000-0000-0000-000000000000/job\n"
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_pod_of_a_containers_process(name: str) -> None:
    assert pod_of(FOUND[name]) == UID


@pytest.mark.parametrize(
    "cgroups",
    [
        v1(f"/kubepods/burstable/pod{MIRROR}/{ID}"),
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{MIRROR}.slice"
        f"/cri-containerd-{ID}.scope\n",
    ],
)
def test_a_static_pod(cgroups: str) -> None:
    assert pod_of(cgroups) == MIRROR


@pytest.mark.parametrize(
    "cgroups",
    [f"0::/kubepods/pod{UID}\n", v1(f"/kubepods/pod{UID}"), f"0::/kubepods/pod{UID}/crio-conmon\n"],
)
def test_a_process_of_the_pod_itself(cgroups: str) -> None:
    assert pod_of(cgroups) == UID


@pytest.mark.parametrize(
    "cgroups",
    [
        "",
        "0::/\n",
        "0::/init.scope\n",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/podman-1234.scope\n",
        "0::/kubepods.slice/kubepods-burstable.slice\n",
        f"0::/system.slice/docker-{ID}.scope\n",
        f"0::/tripod{UID}/x\n",
        f"0::/kubepods/pod{UID[:-1]}/x\n",
        f"0::/kubepods/pod{UID}0/x\n",
    ],
)
def test_processes_of_no_pod(cgroups: str) -> None:
    assert pod_of(cgroups) is None


def test_the_pods_of_a_machine(tmp_path: Path) -> None:
    """A process may end while it is read, and any user of the host may name a cgroup."""
    for pid, content in {
        "1": b"0::/init.scope\n",
        "20": FOUND["v2, CRI-O"].encode(),
        "21": FOUND["v1, burstable"].encode(),
        "22": v1(f"/kubepods/burstable/pod{MIRROR}/{ID}").encode(),
        "23": b"0::/user.slice/\xff\xfe\n",
        "self": b"0::/kubepods/pod00000000-0000-0000-0000-000000000000/x\n",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_bytes(content)
    (tmp_path / "30").mkdir()
    (tmp_path / "uptime").touch()
    assert pods_with_processes(tmp_path) == {UID, MIRROR}


def test_the_processes_of_this_machine_can_be_read() -> None:
    assert isinstance(pods_with_processes(), set)


def test_the_files_that_a_process_has_mapped(tmp_path: Path) -> None:
    (tmp_path / "limits").write_bytes(bytes(4096))
    (tmp_path / "other").write_bytes(bytes(4096))
    page = (tmp_path / "limits").stat()
    with (tmp_path / "limits").open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ):
        mapped = mapped_files(os.getpid(), page.st_dev)
        assert mapped is not None
        assert page.st_ino in mapped
        assert (tmp_path / "other").stat().st_ino not in mapped
        assert mapped_files(os.getpid(), page.st_dev + 1) == set()
    assert page.st_ino not in (mapped_files(os.getpid(), page.st_dev) or ())


def test_what_a_process_that_ends_has_mapped_is_unknown() -> None:
    """The driver may still list it, while it has no mappings any more."""
    with subprocess.Popen(["true"]) as program:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        assert mapped_files(program.pid, 1) is None, "a zombie"
    assert mapped_files(program.pid, 1) is None


def test_all_processes_of_a_container_are_killed_and_no_others(tmp_path: Path) -> None:
    programs = [subprocess.Popen(["sleep", "60"]) for _ in range(4)]
    try:
        one, two, other, elsewhere = programs
        mine = f"0::/kubepods/pod{UID}/{'a' * 64}\n"
        for program, cgroups in (
            (one, mine),
            (two, mine),
            (other, mine.replace("a" * 64, "b" * 64)),
            (elsewhere, "0::/user.slice\n"),
        ):
            (tmp_path / str(program.pid)).mkdir()
            (tmp_path / str(program.pid) / "cgroup").write_text(cgroups)
        kill_container(one.pid, UID.replace("8", "2"), tmp_path)
        assert one.poll() is None, "it is of another pod"
        kill_container(one.pid, UID, tmp_path)
        assert [each.wait(10) for each in (one, two)] == [-signal.SIGKILL] * 2
        assert [other.poll(), elsewhere.poll()] == [None, None]
    finally:
        for each in programs:
            each.kill()
            each.wait()
