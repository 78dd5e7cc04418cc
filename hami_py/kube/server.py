"""Requests to one API server: JSON bytes in, JSON bytes out, each with a deadline.

The ``kubernetes`` client handles kubeconfigs, certificates, proxies, authentication and the renewal
of tokens, and its urllib3 pool carries the requests. Its object models are not used: decoding with
them takes milliseconds, and decoding only the fields that we read takes microseconds.

The deadline bounds a request, with exceptions. urllib3's timeout bounds the connection and the wait
for the answer (``Timeout(total=…)``). The body is read piece by piece, and the deadline is checked
after each piece. A request's own body is sent only if the deadline has not passed when the
connection is made. urllib3 has no public interface that bounds more. docs/limitations.md
lists the requests that take longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from hami_py.errors import StateError
from hami_py.kube.errors import (
    Conflict,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration
    from urllib3 import BaseHTTPResponse, Timeout

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_CONNECT_S = 5.0
"""How long the connection of a watch may take."""

_FAILURE_BYTES = 1 << 16
"""The most bytes to read of a failure's body; a Status has some hundred."""

_LINE_BYTES = 1 << 25
"""The largest event of a watch. etcd stores 1.5 MiB per object, or more if it is configured so, and
JSON takes up to six times as much."""

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_POOL = 32
"""The connections to keep; if more threads send requests at once, more are opened."""


class _Rest(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(name="continue", default="")


class Status(msgspec.Struct):
    """Why a request failed (meta/v1 Status): the fields that we read."""

    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: _Rest = _Rest()


class ApiServer:
    """One API server. Threads may share it.

    Attributes:
        namespace: the namespace of the kubeconfig's context, or of this pod.
    """

    def __init__(self, client: ApiClient, namespace: str = "default") -> None:
        self._client = client
        self.namespace = namespace

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> ApiServer:
        """The cluster of a kubeconfig, or the cluster that this pod runs in.

        Args:
            kubeconfig: the file; ``None``: the pod's service account if there is one, or else
                ``KUBECONFIG`` and ``~/.kube/config``, as kubectl reads them.
            context: the context of the file; ``None``: its current context.

        Raises:
            StateError: there is no such configuration, or it is invalid.
        """
        # Imported here because it takes half a second, which `hami run` must not wait for.
        import yaml  # noqa: PLC0415
        from kubernetes import client, config  # noqa: PLC0415
        from kubernetes.config import ConfigException  # noqa: PLC0415

        configuration = client.Configuration()
        configuration.connection_pool_maxsize = _POOL
        try:
            if kubeconfig is None and context is None:
                try:
                    config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
                    return cls(client.ApiClient(configuration), _namespace_of_pod())
                except ConfigException:
                    pass
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=configuration,
            )
        except (ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
            raise StateError(
                f"kubeconfig {kubeconfig or '(default)'}",
                " ".join(str(error).split()),
                "name a valid file with --kubeconfig, or set KUBECONFIG",
            ) from error
        return cls(client.ApiClient(configuration), _namespace_of(kubeconfig, context))

    @property
    def configuration(self) -> Configuration:
        """Its address, how it is checked, and the credentials."""
        configuration: Configuration = self._client.configuration
        return configuration

    def close(self) -> None:
        """Closes all connections: idle ones now, others when their answers end."""
        pools = self._client.rest_client.pool_manager.pools
        # The manager only forgets its pools. Each keeps its idle connections open until the garbage
        # collector finds it, because a request that failed leaves a cycle with its pool.
        for pool in map(pools.get, pools.keys()):
            if pool is not None:
                pool.close()
        pools.clear()

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        """Sends a GET; returns the answer's body."""
        return self._fetch(_Request("GET", path, query or {}), deadline_s)

    def post(self, path: str, body: object, *, deadline_s: float) -> bytes:
        """Sends a POST with a body that becomes JSON; returns the answer's body."""
        return self._fetch(_Request("POST", path, body=body), deadline_s)

    def put(self, path: str, body: object, *, deadline_s: float) -> bytes:
        """Sends a PUT with a body that becomes JSON; returns the answer's body."""
        return self._fetch(_Request("PUT", path, body=body), deadline_s)

    def patch(self, path: str, body: object, kind: str, *, deadline_s: float) -> bytes:
        """Sends a PATCH of a kind (such as ``MERGE_PATCH``); returns the answer's body."""
        return self._fetch(_Request("PATCH", path, body=body, kind=kind), deadline_s)

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> Stream:
        """Sends a GET whose answer continues line by line, such as a watch.

        After ``silence_s`` without a byte the connection counts as lost.
        """
        from urllib3 import Timeout  # noqa: PLC0415

        request = _Request("GET", path, query)
        timeout = Timeout(connect=min(_CONNECT_S, silence_s), read=silence_s)
        return Stream(request.what, self._send(request, _Deadline(silence_s), timeout))

    def _fetch(self, request: _Request, deadline_s: float) -> bytes:
        from urllib3 import Timeout  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        deadline = _Deadline(deadline_s)
        try:
            timeout = Timeout(total=deadline.left_s())
        except TimeoutError as error:
            raise _unavailable(request.what, error) from error
        answer = self._send(request, deadline, timeout)
        try:
            return _read(answer, deadline)
        except (HTTPError, OSError) as error:
            answer.close()
            raise _unavailable(request.what, error) from error

    def _send(self, request: _Request, deadline: _Deadline, timeout: Timeout) -> BaseHTTPResponse:
        """Sends a request; returns the answer once its head is there and says success."""
        from kubernetes.config import ConfigException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError, SSLError  # noqa: PLC0415

        client = self._client
        headers = {**client.default_headers, "Accept": "application/json"}
        body = None
        if request.body is not None:
            encoded = msgspec.json.encode(request.body)
            headers |= {"Content-Type": request.kind, "Content-Length": str(len(encoded))}
            body = _before(deadline, encoded)
        try:
            client.update_params_for_auth(
                headers, [], ["BearerToken"], request.path, request.method, None
            )
        except ConfigException as error:
            # For example, a token file that is empty for a moment.
            why = f"the credentials cannot be read: {error}"
            raise Forbidden(request.what, why, "check the credentials, then try again") from error
        query = f"?{urlencode(request.query)}" if request.query else ""
        try:
            answer = client.rest_client.pool_manager.request(
                request.method,
                client.configuration.host + request.path + query,
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if answer.status < 300:
                return answer
            try:
                data = _read(answer, deadline, _FAILURE_BYTES)
            finally:
                # A connection whose answer was read completely is in the pool already.
                answer.close()
        except SSLError as error:
            fix = "check the cluster's certificates, then try again"
            raise Unavailable(request.what, f"TLS failed ({error})", fix) from error
        except (HTTPError, OSError) as error:
            raise _unavailable(request.what, error) from error
        except ValueError as error:
            # For example, a token with a line break cannot be a header.
            why = f"it cannot be sent: {error}"
            raise Forbidden(request.what, why, "check the credentials") from error
        raise _failure(request.what, answer.status, data)


def path_of(namespace: str, kind: str, name: str | None = None) -> str:
    """The path of an object of the core API, or of all of a kind, such as ``pods``."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/{kind}"
    return path if name is None else f"{path}/{quote(name, safe='')}"


def _namespace_of(kubeconfig: Path | None, context: str | None) -> str:
    from kubernetes.config import ConfigException, list_kube_config_contexts  # noqa: PLC0415

    file = str(kubeconfig) if kubeconfig else None
    try:
        named, current = list_kube_config_contexts(file)  # type: ignore[no-untyped-call]
    except ConfigException:
        # For example, there is no current context.
        return "default"
    found = next((each for each in named if each["name"] == context), current)
    return str((found.get("context") or {}).get("namespace") or "default")


def _namespace_of_pod() -> str:
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        return "default"


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    kind: str = "application/json"

    @property
    def what(self) -> str:
        return f"{self.method} {self.path}"


class _Deadline:
    """The end of a request's time."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._ends_at = monotonic() + deadline_s

    def left_s(self) -> float:
        """The seconds that are left; more than 0.

        Raises:
            TimeoutError: none are left.
        """
        left_s = self._ends_at - monotonic()
        if left_s <= 0:
            raise TimeoutError(f"not complete after {self._deadline_s:g} s")
        return left_s


def _before(deadline: _Deadline, body: bytes) -> Iterator[bytes]:
    """A request's body that is only sent before the deadline.

    urllib3 reads it once the connection is made, which may take up to the deadline. Without its
    body the API server drops the request, so a write never begins after its caller has given up.
    """
    deadline.left_s()
    yield body


def _read(answer: BaseHTTPResponse, deadline: _Deadline, most_bytes: int | None = None) -> bytes:
    """Reads an answer's body, or its beginning.

    Raises:
        TimeoutError: it was not complete before the deadline.
        HTTPError: the connection was lost, or silent for too long.
    """
    body = bytearray()
    while piece := answer.read1(1 << 16):
        body += piece
        if most_bytes is not None and len(body) >= most_bytes:
            break
        # The connection of a complete answer is in the pool again, and nothing is left to wait for.
        if answer.connection is not None:
            deadline.left_s()
    return bytes(body)


class Stream:
    """The lines of an answer that continues. Another thread may stop it."""

    def __init__(self, what: str, answer: BaseHTTPResponse) -> None:
        self._what = what
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        """The lines, until the answer ends.

        Raises:
            Unavailable: the connection was lost, or silent for too long.
            Rejected: a line is too long.
        """
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        line = bytearray()
        try:
            for chunk in self._answer.stream(1 << 16):
                *ends, begun = chunk.split(b"\n")
                for end in ends:
                    line += end
                    if line:
                        yield bytes(line)
                    line.clear()
                line += begun
                if len(line) > _LINE_BYTES:
                    raise Rejected(
                        self._what, f"an event of more than {_LINE_BYTES} bytes", "list again"
                    )
            if line:
                yield bytes(line)
        except (HTTPError, OSError, ValueError) as error:
            raise _unavailable(self._what, error) from error
        finally:
            self._answer.close()

    def stop(self) -> None:
        """Ends the iteration, whichever thread waits in it."""
        # Before the first read, or after the last, there is nothing to shut down.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._answer.shutdown()


def _unavailable(what: str, error: Exception) -> Unavailable:
    return Unavailable(what, f"no answer from the API server ({error})", "try again later")


def _failure(what: str, code: int, data: bytes) -> KubeError:
    try:
        status = msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = Status()
    return failure(what, code, status)


def failure(what: str, code: int, status: Status) -> KubeError:
    """The error for a status that is not success."""
    kind, fix = _KINDS.get(code, (Rejected, "fix the request"))
    if code == 429 or code >= 500:
        kind, fix = Unavailable, "try again later"
    why = status.message or status.reason or "no reason given"
    error = kind(what, f"{code}: {why}", fix, code)
    if isinstance(error, Expired):
        error.rest = status.metadata.continue_
    return error


_KINDS: dict[int, tuple[type[KubeError], str]] = {
    401: (Forbidden, "check the credentials"),
    403: (Forbidden, "ask for this right; docs/operate.md, Ask about pods, has a ClusterRole"),
    404: (NotFound, "check whether it still exists"),
    409: (Conflict, "read it again, then try again"),
    410: (Expired, "list again"),
}
