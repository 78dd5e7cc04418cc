"""The commands of the Kubernetes side, where no cluster is needed to see what they do."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hami_py._native import Allocator
from hami_py.cli import hami
from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.model.pods import wire

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "4k"}}}]
    },
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A snapshot of a node with one card, and a manifest of a pod."""
    engine = Allocator()
    card = wire.Card("GPU-0", 0, "NVIDIA T4", 16_384)
    engine.set_node(wire.encode(wire.Node("a", cards=(card,))))
    snapshot, manifest = tmp_path / "state.json", tmp_path / "pod.json"
    snapshot.write_bytes(engine.snapshot())
    manifest.write_text(json.dumps(POD))
    return str(snapshot), str(manifest)


def test_a_replay_says_where_pods_go(files: tuple[str, str]) -> None:
    done = CliRunner().invoke(hami, ["replay", *files], catch_exceptions=False)
    assert "default/p: a (main: GPU-0)" in done.output
    assert "state " in done.output


def test_what_is_not_installed_is_said(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    done = CliRunner().invoke(hami, ["replay", *files])
    assert isinstance(done.exception, StateError)
    assert "hami-py[kubernetes]" in str(done.exception)


@pytest.mark.parametrize("listen", ["9380", ":9380", "127.0.0.1:", "127.0.0.1:65536", "a:b"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    from hami_py.cli.kubernetes.common import parse_listen

    with pytest.raises(InvalidValue, match="an address and a port"):
        parse_listen("--listen", listen)


def test_a_manifest_without_end_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    deep = tmp_path / "deep.yaml"
    deep.write_text(100_000 * "[")
    done = CliRunner().invoke(hami, ["replay", files[0], str(deep)])
    assert isinstance(done.exception, InvalidValue)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: "two\\nlines"}}]
"""


@pytest.mark.parametrize(
    ("content", "mend"),
    [("a: b: c", "--kubeconfig"), ("hello", "--kubeconfig"), (KUBECONFIG, "credentials")],
)
def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path, content: str, mend: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    done = CliRunner().invoke(hami, ["snapshot", "--kubeconfig", str(path)])
    assert isinstance(done.exception, HamiError), done.exception
    assert mend in str(done.exception)
    assert "\n" not in str(done.exception)


def test_the_webhooks_allowed_preloads_are_exact_paths() -> None:
    done = CliRunner().invoke(hami, ["webhook", "--allow-preload", "libx.so"])
    assert isinstance(done.exception, InvalidValue)
    assert done.exception.field == "allowed_preloads"
