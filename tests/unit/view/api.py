"""An API server that knows some tokens, and counts what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

from hami_py.kube import ApiServer
from hami_py.kube.errors import Forbidden, Unavailable
from unit.overview.fake_cluster import FakeCluster


class Silence:
    """A watch without events."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        self._stopped.wait(60)
        return iter(())

    def stop(self) -> None:
        self._stopped.set()


class Users:
    """The users by token; ``of`` makes the API server of one, as ``UserServers`` does.

    A user may read nothing but the own namespace, unless the name begins with ``admin``.
    """

    def __init__(self, cluster: FakeCluster, users: Mapping[str, str]) -> None:
        self.cluster, self.users = cluster, dict(users)
        #: The number of lists, by user.
        self.lists: dict[str, int] = {}
        self.closed: list[str] = []
        #: Cleared: the API server refuses connections, or its lists take long.
        self.answers, self.listing = threading.Event(), threading.Event()
        self.answers.set()
        self.listing.set()
        #: The users who may not watch.
        self.no_watch: set[str] = set()

    def of(self, token: str, namespace: str) -> ApiServer:
        return cast(ApiServer, _User(self, token))


class _User:
    def __init__(self, users: Users, token: str) -> None:
        self.users, self.token = users, token

    def _name(self, path: str) -> str:
        name = self.users.users.get(self.token)
        if name is None:
            raise Forbidden(path, "401: Unauthorized", "check the credentials", 401)
        return name

    def post(self, path: str, body: Any, *, deadline_s: float) -> bytes:
        if not self.users.answers.is_set():
            raise Unavailable(path, "it does not answer", "wait")
        return json.dumps({"status": {"userInfo": {"username": self._name(path)}}}).encode()

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        name = self._name(path)
        namespace = name.removeprefix("system:serviceaccount:").partition(":")[0]
        own = path.startswith(f"/api/v1/namespaces/{namespace}/")
        if not name.startswith("admin") and not own:
            why = f'403: x is forbidden: User "{name}" cannot list it'
            raise Forbidden(path, why, "grant it", 403)
        if "/proxy/" not in path:
            self.users.listing.wait(60)
            self.users.lists[name] = self.users.lists.get(name, 0) + 1
        if path.endswith("/events"):
            items = self.users.cluster.lists.get(path, [])
            listed = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
            return json.dumps(listed).encode()
        return self.users.cluster.get(path, query, deadline_s=deadline_s)

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> Silence:
        if (name := self._name(path)) in self.users.no_watch:
            why = f'403: x is forbidden: User "{name}" cannot watch it'
            raise Forbidden(path, why, "grant it", 403)
        return Silence()

    def close(self) -> None:
        self.users.closed.append(self.token)
