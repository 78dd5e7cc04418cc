"""What ``hami node --cleanup`` removes, without a container that still runs."""

from pathlib import Path
from typing import Any, cast

from hami_py.agent.cleanup import Cleanup
from hami_py.agent.settings import AgentSettings
from hami_py.kube import ApiServer
from hami_py.node.paths import Paths
from hami_py.serving import Listen


class Server:
    """Notes the patches."""

    def __init__(self) -> None:
        self.patches: dict[str, Any] = {}

    def patch(self, path: str, body: object, kind: str, *, deadline_s: float) -> bytes:
        self.patches[path] = body
        return b"{}"


def test_the_names_of_all_profiles_are_removed_because_it_runs_without_settings(
    tmp_path: Path,
) -> None:
    """With Alibaba Cloud's names first, the default scheduler would still place pods by them."""
    paths = Paths(tmp_path / "run", tmp_path / "state", tmp_path / "kubelet")
    for path in (paths.slots / "a", paths.libraries, paths.device_plugins):
        path.mkdir(parents=True)
    (paths.device_plugins / "hami-1-2.sock").touch()
    (paths.device_plugins / "other.sock").touch()
    api = Server()
    settings = AgentSettings("n", tmp_path / "unused", paths, listen=Listen("127.0.0.1", 0))
    cleanup = Cleanup(cast(ApiServer, api), settings)
    try:
        cleanup.clean()
    finally:
        cleanup._server.stop()
    names = ["nvidia.com/gpumem", "nvidia.com/gpucores"]
    names += ["aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"]
    amounts = dict.fromkeys(names)
    assert api.patches == {
        "/api/v1/nodes/n": {"metadata": {"annotations": {"hami.io/cards": None}}},
        "/api/v1/nodes/n/status": {"status": {"capacity": amounts, "allocatable": amounts}},
    }
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["kubelet", "kubelet/device-plugins", "kubelet/device-plugins/other.sock"]
