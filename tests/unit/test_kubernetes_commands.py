"""The commands of the Kubernetes side, where no cluster is needed to see what they do."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from hami_py.cli import hami
from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.kube.errors import Forbidden, NotFound, Unavailable
from unit.cluster_commands import refused, snapshot_and_pod


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return snapshot_and_pod(tmp_path)


def test_a_replay_shows_where_pods_are_placed(files: tuple[str, str]) -> None:
    done = CliRunner().invoke(hami, ["replay", *files], catch_exceptions=False)
    assert "default/p: a (main: GPU-0)" in done.output
    assert "state " in done.output


def test_equal_answers_for_the_pods_of_a_workload_are_one_entry(
    files: tuple[str, str], tmp_path: Path
) -> None:
    snapshot, _ = files
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000}

    def written(name: str, replicas: int, mib: int) -> str:
        main = {"name": "main", "resources": {"limits": {**limits, "nvidia.com/gpumem": mib}}}
        template = {"spec": {"containers": [main]}}
        spec = {"replicas": replicas, "template": template}
        path = tmp_path / f"{name}.json"
        path.write_text(
            json.dumps({"kind": "Deployment", "metadata": {"name": name}, "spec": spec})
        )
        return str(path)

    replay = ["replay", snapshot, written("web", 32, 6000), written("large", 30, 20_000)]
    lines = CliRunner().invoke(hami, replay, catch_exceptions=False).output.splitlines()
    assert lines[:5] == [
        "default/web- (2 pods): a (main: GPU-0)",
        "default/web- (30 pods): nowhere",
        "  a: too little memory free on its cards",
        "default/large- (30 pods): nowhere",
        "  a: never fits: its cards have less memory than requested",
    ]
    each = CliRunner().invoke(hami, [*replay, "--json"], catch_exceptions=False).output
    assert len(json.loads(each)["pods"]) == 62


def test_a_missing_package_is_reported(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    done = CliRunner().invoke(hami, ["replay", *files])
    assert isinstance(done.exception, StateError)
    assert '.whl)[kubernetes]"' in str(done.exception)


@pytest.mark.parametrize(
    "listen", ["9380", ":9380", "127.0.0.1:", "127.0.0.1:65536", "a:b", f"a:{'9' * 5000}"]
)
def test_an_invalid_address_is_refused(listen: str) -> None:
    from hami_py.cli.service import parse_listen

    with pytest.raises(InvalidValue, match="an address and a port"):
        parse_listen("--listen", listen)


@pytest.mark.parametrize("port", ["", "x", "0", "65536", "99999", "9" * 5000])
def test_an_api_server_without_a_valid_port_is_refused(tmp_path: Path, port: str) -> None:
    authority = tmp_path / "ca.crt"
    authority.touch()
    options = ["--api-server", f"10.0.0.1:{port}", "--certificate-authority", str(authority)]
    error = refused("view", *options)
    assert isinstance(error, InvalidValue)
    assert error.field == "--api-server"


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: "two\\nlines"}}]
"""


@pytest.mark.parametrize(
    ("content", "fix"),
    [("a: b: c", "--kubeconfig"), ("hello", "--kubeconfig"), (KUBECONFIG, "credentials")],
)
def test_an_invalid_kubeconfig_is_reported(tmp_path: Path, content: str, fix: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    done = CliRunner().invoke(hami, ["snapshot", "--kubeconfig", str(path)])
    assert isinstance(done.exception, HamiError), done.exception
    assert fix in str(done.exception)
    assert "\n" not in str(done.exception)


def test_the_webhooks_allowed_preloads_are_exact_paths() -> None:
    done = CliRunner().invoke(hami, ["webhook", "--allow-preload", "libx.so"])
    assert isinstance(done.exception, InvalidValue)
    assert done.exception.field == "allowed_preloads"


def test_an_invalid_snapshot_is_reported_with_its_file(
    files: tuple[str, str], tmp_path: Path
) -> None:
    snapshot, manifest = files
    error = refused("replay", manifest, manifest)
    assert isinstance(error, InvalidValue)
    assert error.field.startswith(f"{manifest}: snapshot")
    assert "hami snapshot" in error.fix
    later = tmp_path / "later.json"
    later.write_text(Path(snapshot).read_text().replace('"version":2', '"version":3'))
    assert "snapshot.version" in str(refused("what-if", "--snapshot", str(later), manifest))
    assert "missing" in str(refused("replay", str(tmp_path / "missing"), manifest))


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "pod", ""),
        ("explain", "pod", "pod/train"),
        ("explain", "pod", "train?watch=1"),
        ("explain", "pod", "train", "--namespace", "../kube-system"),
        ("explain", "pod", "a..b"),
        ("webhook", "--namespace", "a/b"),
        ("webhook", "--name", ""),
        ("webhook", "--scheduler", ""),
        ("webhook", "--host", ""),
        ("webhook", "--runtime-class", ""),
    ],
)
def test_an_invalid_object_name_is_refused(arguments: tuple[str, ...]) -> None:
    error = refused(*arguments)
    assert isinstance(error, InvalidValue)
    assert "as kubectl shows it" in error.fix


@pytest.mark.parametrize(
    ("arguments", "field", "fix"),
    [
        (("scheduler", "--lease", "foo"), "--lease", "namespace/name"),
        (("scheduler", "--lease", "a/b/c"), "--lease", "as kubectl shows it"),
        (("scheduler", "--listen", "9380"), "--listen", "an address and a port"),
        (("scheduler", "--probes", "9381"), "--probes", "an address and a port"),
        (("webhook", "--listen", "9443"), "--listen", "an address and a port"),
    ],
)
def test_invalid_options_are_refused_before_any_request(
    tmp_path: Path, arguments: tuple[str, ...], field: str, fix: str
) -> None:
    error = refused(*arguments, "--kubeconfig", str(tmp_path / "missing"))
    assert isinstance(error, InvalidValue)
    assert error.field == field
    assert fix in error.fix


def test_a_missing_argument_is_a_usage_error() -> None:
    for arguments in (["explain"], ["explain", "pod"], ["what-if"], ["replay", "x"]):
        with pytest.raises(click.UsageError) as told:
            hami.main(arguments, standalone_mode=False)
        assert told.value.exit_code == 2
        assert "\n" not in told.value.format_message()


def test_an_unusable_listen_address_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """uvicorn wrote the reason elsewhere, and ours was "3"."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(config("http://127.0.0.1:1")))
    listen = ("--listen", "203.0.113.1:9380", "--kubeconfig", str(kubeconfig))
    error = refused("scheduler", *listen)
    assert error.why == "Cannot assign requested address"
    assert capfd.readouterr().err == ""


def config(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }


@pytest.fixture
def api(tmp_path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The response of an API server to every request, which the test sets, and its kubeconfig."""
    told: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told["code"])
            self.end_headers()
            self.wfile.write(told.get("body") or json.dumps(told).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config(f"http://127.0.0.1:{server.server_port}")))
    yield told, str(kubeconfig)
    server.shutdown()
    thread.join()
    server.server_close()


FORBIDDEN = 'pods "p" is forbidden: User "me" cannot get resource "pods" in API group ""'


@pytest.mark.parametrize(
    ("told", "kind", "says"),
    [
        ({"code": 403, "message": FORBIDDEN}, Forbidden, FORBIDDEN),
        ({"code": 401, "message": "Unauthorized"}, Forbidden, "credentials"),
        ({"code": 404, "message": 'pods "p" not found'}, NotFound, "there is no such pod"),
        ({"code": 503, "body": b"<html>"}, Unavailable, "503"),
        ({"code": 200, "body": b"<html>"}, HamiError, "JSON"),
    ],
)
def test_a_refusal_of_the_api_server_is_reported(
    api: tuple[dict[str, Any], str],
    files: tuple[str, str],
    told: dict[str, Any],
    kind: type[HamiError],
    says: str,
) -> None:
    answers, kubeconfig = api
    answers.update(told)
    error = refused("explain", "pod", "p", "--kubeconfig", kubeconfig)
    assert isinstance(error, kind)
    assert says in str(error)
    for command in (["snapshot"], ["what-if", files[1]]):
        refused(*command, "--kubeconfig", kubeconfig)


def test_a_missing_response_is_reported(files: tuple[str, str], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(json.dumps(config("http://127.0.0.1:1")))
    for command in (["snapshot"], ["what-if", files[1]], ["explain", "pod", "p"]):
        error = refused(*command, "--kubeconfig", str(kubeconfig))
        assert isinstance(error, Unavailable)
        assert "Connection refused" in str(error)
    absent = refused("snapshot", "--kubeconfig", str(kubeconfig), "--context", "none")
    assert "none" in str(absent)
    assert "missing" in str(refused("snapshot", "--kubeconfig", str(tmp_path / "missing")))
