"""The library that the webhook mounts, where a real kubelet and a real loader start containers."""

import shutil
from pathlib import Path

import pytest

from cluster import waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.device_plugin import StartPlugin
from cluster.gpu_pods import phase, pod, runs
from cluster.node import Node
from cluster.objects import PODS
from cluster.webhooks import webhook
from hami_py.model.pods import PodSettings
from support.artifacts import Artifacts

pytestmark = [pytest.mark.programs("node"), pytest.mark.timeout(300)]

#: The node's own C library and programs: the image's have none that loads anything.
#: By volume: the path in the container and the node's. A volume at /usr would be refused.
_NODES = {
    "bin": ("/usr/bin", "/usr/bin"),
    "lib": ("/lib", "/usr/lib"),
    "lib64": ("/lib64", "/usr/lib64"),
}

#: The mapped parts of the library in a program that does not know it, and the writable ones.
_SCRIPT = """
/usr/bin/grep -o '/[^ ]*libvgpu.so' /proc/self/maps | /bin/busybox sort -u
echo x > {directory}/libvgpu.so && echo written
echo x > /etc/ld.so.preload && echo written
echo done
"""


@pytest.fixture(scope="module")
def cluster(node: Node) -> ControlPlane:
    return node.cluster


@pytest.fixture
def directory(tmp_path: Path, artifacts: Artifacts) -> Path:
    """Of the node, as docs/settings.md has it made."""
    made = tmp_path / "library"
    made.mkdir()
    shutil.copy(artifacts.library, made / "libvgpu.so")
    (made / "ld.so.preload").write_text(f"{made}/libvgpu.so\n")
    return made


def test_it_is_loaded_only_where_a_gpu_is_requested(
    cluster: ControlPlane, node: Node, plugin: StartPlugin, directory: Path
) -> None:
    plugin()
    create(cluster, directory)
    phase(cluster, "one", "Succeeded", "Failed")
    said, others = (
        [line.split()[-1] for line in node.log("one", name).splitlines()]
        for name in ("main", "other")
    )
    assert f"{directory}/libvgpu.so" in said, said
    assert "done" in said and "written" not in said, said
    assert "done" in others and f"{directory}/libvgpu.so" not in others, others
    assert sorted(each.name for each in directory.iterdir()) == ["ld.so.preload", "libvgpu.so"]
    assert (directory / "ld.so.preload").read_text() == f"{directory}/libvgpu.so\n"


@pytest.mark.parametrize("name", ["ld.so.preload", "libvgpu.so"])
def test_without_one_of_the_files_the_container_does_not_start(
    cluster: ControlPlane, plugin: StartPlugin, directory: Path, name: str
) -> None:
    """Else the program would run without a limit, and the node keep a directory of that name."""
    (directory / name).unlink()
    plugin()
    uid = create(cluster, directory)["metadata"]["uid"]

    def refused() -> bool:
        events = cluster.api.list("/api/v1/namespaces/default/events")
        told = [each["message"] for each in events if each["involvedObject"].get("uid") == uid]
        return any("hostPath type check failed" in each and name in each for each in told)

    waiting.until(refused, "the kubelet says why it does not start the pod")
    assert not (directory / name).exists()


def create(cluster: ControlPlane, directory: Path) -> Object:
    """A pod with two containers that look for the library, of which one asks for a GPU."""
    mounts = [
        {"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in _NODES.items()
    ]
    script = _SCRIPT.format(directory=directory)
    made = pod(
        "one",
        runs("main", script, volumeMounts=mounts),
        runs("other", script, count=0, volumeMounts=mounts),
        volumes=[{"name": name, "hostPath": {"path": path}} for name, (_, path) in _NODES.items()],
    )
    # The node of the test has no time to give away, so none is asked for.
    settings = PodSettings(library_directory=str(directory), whole_card_cores=0)
    with webhook(cluster, pods=settings):
        return cluster.api.create(PODS, made)
