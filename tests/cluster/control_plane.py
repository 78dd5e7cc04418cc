"""etcd, the API server, the scheduler and, if wanted, the controller manager, on loopback.

Nothing here needs root, and nodes are objects that a test makes by hand (`objects.node`): no
kubelet has to run for a pod to be mutated, filtered, scored and bound.

    with ControlPlane(programs, tmp_path, scheduler={"extenders": [...]}) as cluster:
        cluster.api.create("/api/v1/nodes", objects.node("a"))

Each server can be stopped and started, paused and resumed: `cluster.apiserver.stop()`.
"""

import base64
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from cluster import audit_log, binaries, server_flags
from cluster.api import Api, Object
from cluster.certificates import Authority, Identity
from cluster.servers import Server, accepts, free_ports

#: The controllers for service account tokens, and for the taint of a new node.
_NEEDS_CONTROLLERS = "ServiceAccount,TaintNodesByCondition"


@dataclass(frozen=True)
class Programs:
    """Folders that `binaries` built; None is a group that this cluster does without."""

    control_plane: Path
    controllers: Path | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of a control plane that a test can change.

    ``apiserver`` and ``controller_manager`` are flags by name; they are added to ours or replace
    them. ``controllers`` are the controllers that run; without any there is no controller manager.
    ``address`` is the address that the API server listens on: loopback, or an address of a node's
    namespace; ``port`` is its port, by default a free one. ``emulates`` is an older Kubernetes
    version, such as "1.33". The API server and the scheduler then have the APIs and feature gates
    of that version, as far as the newer programs support them. ``audits``: the API server logs the
    users that write to pods; `audit_log` reads the log.
    """

    apiserver: Mapping[str, str] = field(default_factory=dict)
    controller_manager: Mapping[str, str] = field(default_factory=dict)
    controllers: Sequence[str] = ()
    address: str = "127.0.0.1"
    port: int | None = None
    emulates: str | None = None
    audits: bool = False


class ControlPlane:
    """A running control plane; used in `with`.

    ``scheduler`` is merged over our KubeSchedulerConfiguration (``extenders``, ``profiles``, ...).
    Attributes: ``url``, ``authority`` (signs what clients trust), ``api`` (as cluster-admin),
    ``kubeconfig`` (the same, for other clients), ``folder`` (for the test's files), and the servers
    by their names.
    """

    def __init__(
        self,
        programs: Programs,
        folder: Path,
        *,
        scheduler: Mapping[str, Any] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._programs, self.settings = programs, settings or Settings()
        self.folder = self._home = folder
        self._is_compacted = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._etcd_port, self._etcd_peers, free_port, scheduler_port, manager_port = free_ports(5)
        api_port = self.settings.port or free_port
        self.url = f"https://{self.settings.address}:{api_port}"
        self.authority = Authority(folder / "certificates")
        self._tokens = self.authority.signing_key()
        self.admin = self.authority.issue("admin", groups=["system:masters"])
        self.api = Api(self.url, self.authority.certificate, self.admin)
        self.kubeconfig = self.kubeconfig_for(self.admin)
        self.etcd = self._etcd()
        self.apiserver = self._apiserver(api_port)
        self.scheduler = self._scheduler(scheduler_port, scheduler or {})
        self.controller_manager = self._controller_manager(manager_port)

    @property
    def servers(self) -> list[Server]:
        """Those that this control plane has, in the order in which they start."""
        manager = [self.controller_manager] if self.controller_manager else []
        return [self.etcd, self.apiserver, *manager, self.scheduler]

    def __enter__(self) -> "ControlPlane":
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self.etcd.start()
            self.apiserver.start()
            clients = self.servers[2:]
            for server in clients:
                server.launch()
            for server in clients:
                server.wait()
            undo.pop_all()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all servers, those first that talk to the others."""
        for server in reversed(self.servers):
            server.stop()

    def compact(self) -> None:
        """Let etcd forget all revisions but the last, as the API server does every five minutes."""
        revision = int(self.api.get("/api/v1/namespaces")["metadata"]["resourceVersion"])
        self._tell_etcd("compaction", {"revision": revision, "physical": True})
        self._is_compacted = True

    @property
    def is_as_started(self) -> bool:
        """Whether all servers run since the start, and etcd has its history."""
        others = [server for server in self.servers if server is not self.scheduler]
        return not self._is_compacted and all(
            server.is_running and not server.was_disturbed for server in others
        )

    def store(self, objects: Mapping[str, Object]) -> None:
        """Put whole objects into etcd, at most 128, by their keys such as ``pods/default/a``.

        As if the API server had, at a thousandth of the time: nothing is defaulted or judged.
        """

        def put(key: str, value: Object) -> Object:
            pair = (f"/registry/{key}".encode(), json.dumps(value).encode())
            name, content = (base64.b64encode(part).decode() for part in pair)
            return {"requestPut": {"key": name, "value": content}}

        self._tell_etcd("txn", {"success": [put(*each) for each in objects.items()]})

    def entries(self) -> dict[bytes, bytes]:
        """All that etcd has, by key."""
        first, end = (base64.b64encode(key).decode() for key in (b"/registry/", b"/registry0"))
        found = self._tell_etcd("range", {"key": first, "range_end": end})
        return {
            base64.b64decode(entry["key"]): base64.b64decode(entry["value"])
            for entry in found.get("kvs", ())
        }

    def change_entries(self, put: Mapping[bytes, bytes], remove: Sequence[bytes]) -> None:
        """Put entries into etcd, and remove others, in this order."""
        for key, value in put.items():
            name, content = (base64.b64encode(part).decode() for part in (key, value))
            self._tell_etcd("put", {"key": name, "value": content})
        for key in remove:
            self._tell_etcd("deleterange", {"key": base64.b64encode(key).decode()})

    def _tell_etcd(self, what: str, body: Object) -> Object:
        answer = urllib3.request(
            "POST", f"http://127.0.0.1:{self._etcd_port}/v3/kv/{what}", json=body, timeout=30.0
        )
        assert answer.status == 200, answer.data
        return dict(answer.json())

    def user(self, name: str, *groups: str) -> Identity:
        """A client certificate for this user; ``system:serviceaccount:NS:NAME`` is one too."""
        return self.authority.issue(name, groups=groups)

    def api_as(self, name: str, *groups: str) -> Api:
        """Requests of another user."""
        return Api(self.url, self.authority.certificate, self.user(name, *groups))

    def api_of_node_agent(self, name: str, node: str) -> Api:
        """Requests of a service account, as with the token of its pod on this node."""
        headers = {
            "Impersonate-User": name,
            "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": node,
        }
        return Api(self.url, self.authority.certificate, self.admin, headers)

    def kubeconfig_for(self, identity: Identity) -> Path:
        """A kubeconfig beside this identity's certificate."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        user = {
            "client-certificate": str(identity.certificate),
            "client-key": str(identity.key),
        }
        path = identity.certificate.with_suffix(".kubeconfig")
        # JSON is YAML.
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "test", "user": user}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def scheduler_config(self, wanted: Mapping[str, Any], kubeconfig: Path | None = None) -> Path:
        """Write what kube-scheduler reads; it does so at its next start.

        ``kubeconfig``: as whom it speaks to the API server, if not as itself.
        """
        path = self._home / "scheduler.json"
        ours: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(kubeconfig or self._component("system:kube-scheduler")),
                # A test cluster is not to be throttled.
                "qps": 1000,
                "burst": 2000,
            },
            "leaderElection": {"leaderElect": False},
        }
        path.write_text(json.dumps({**ours, **wanted}))
        return path

    def reschedule(self, wanted: Mapping[str, Any], kubeconfig: Path | None = None) -> None:
        """Restart kube-scheduler with this configuration, as this user."""
        self.scheduler.stop()
        self.scheduler_config(wanted, kubeconfig)
        self.scheduler.start()

    def _component(self, user: str) -> Path:
        return self.kubeconfig_for(self.user(user))

    def _program(self, name: str) -> Path:
        return self._programs.control_plane / name

    def _server(
        self, program: Path, flags: Mapping[str, object], ready: Callable[[], bool]
    ) -> Server:
        command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
        return Server(command, self._home / f"{program.name}.log", ready)

    def _etcd(self) -> Server:
        flags = server_flags.etcd(self.folder / "etcd", self._etcd_port, self._etcd_peers)
        return self._server(self._program("etcd"), flags, lambda: accepts(self._etcd_port))

    def _apiserver(self, port: int) -> Server:
        hosts = [self.settings.address, "127.0.0.1", "localhost", "kubernetes.default.svc"]
        serving = self.authority.issue("kube-apiserver", hosts=[*hosts, "10.96.0.1"])
        kubelets = self.authority.issue("apiserver-kubelets", groups=["system:masters"])
        flags = server_flags.apiserver(
            self.folder / "apiserver",
            (self.settings.address, port),
            etcd_port=self._etcd_port,
            authority=self.authority,
            serving=serving,
            kubelets=kubelets,
            tokens=self._tokens,
        )
        if not self.settings.controllers:
            flags["disable-admission-plugins"] = _NEEDS_CONTROLLERS
        if self.settings.audits:
            flags.update(audit_log.flags(self.folder))
        flags.update(self._emulated())
        flags.update(self.settings.apiserver)
        return self._server(self._program("kube-apiserver"), flags, self.api.ready)

    def _scheduler(self, port: int, wanted: Mapping[str, Any]) -> Server:
        kubeconfig = self._component("system:kube-scheduler")
        flags: dict[str, object] = {
            "config": self.scheduler_config(wanted),
            **self._emulated(),
            **self._loopback("kube-scheduler", port, kubeconfig),
        }
        api = Api(f"https://127.0.0.1:{port}", self.authority.certificate, self.admin)
        # Before 1.31 it has no /readyz.
        ready = api.healthy if binaries.kubernetes_version().startswith("1.30.") else api.ready
        return self._server(self._program("kube-scheduler"), flags, ready)

    def _controller_manager(self, port: int) -> Server | None:
        if not self.settings.controllers:
            return None
        assert self._programs.controllers, "controllers are wanted, but their group is not named"
        kubeconfig = self._component("system:kube-controller-manager")
        flags: dict[str, object] = {
            **server_flags.controller_manager(
                self.settings.controllers, kubeconfig, self.authority, self._tokens
            ),
            **self._loopback("kube-controller-manager", port, kubeconfig),
            **self.settings.controller_manager,
        }
        program = self._programs.controllers / "kube-controller-manager"
        # It has no /readyz.
        ready = Api(f"https://127.0.0.1:{port}", self.authority.certificate, self.admin).healthy
        return self._server(program, flags, ready)

    def _emulated(self) -> dict[str, object]:
        wanted = self.settings.emulates
        return {"emulated-version": wanted} if wanted else {}

    def _loopback(self, name: str, port: int, kubeconfig: Path) -> dict[str, object]:
        """The flags of a component that serves health and metrics on loopback."""
        serving = self.authority.issue(f"{name}-serving", hosts=["127.0.0.1"])
        return server_flags.component(port, kubeconfig, self.authority, serving)
