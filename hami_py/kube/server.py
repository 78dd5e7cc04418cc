"""Requests to one API server: JSON bytes in, JSON bytes out, every one with a deadline.

It is one for all of a request: a connection, the head of the answer and its body, whether they come
at once or in drops. A name that has to be looked up is the system's, which has bounds of its own.

Authentication, certificates, proxies and the tokens' renewal are the ``kubernetes`` client's. Its
object models are not used: they take milliseconds where a typed decode of the fields that we read
takes microseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from hami_py.errors import StateError
from hami_py.kube.deadlines import Deadline, keep_deadlines
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
    from kubernetes.client import ApiClient
    from urllib3 import HTTPResponse

__all__ = [
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "ApiServer",
    "Status",
    "Stream",
    "failure",
]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_CONNECT_S = 5.0
"""How long a connection for a stream may take: the server is near, or away."""

_FAILURE_BYTES = 1 << 16
"""So much is read of why a request failed; a Status has some hundred bytes."""

_LINE_BYTES = 1 << 25
"""No event of a watch is longer: etcd takes 1.5 MiB of an object, of which JSON makes six times as
much at worst, and some set it to more."""

_POOL = 32
"""Connections that are kept; more are made where more threads ask at once."""


class _Rest(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(name="continue", default="")


class Status(msgspec.Struct):
    """Why a request failed (meta/v1 Status), as far as we read it."""

    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: _Rest = _Rest()


class ApiServer:
    """One API server. Threads may share it."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        keep_deadlines(client.rest_client.pool_manager)

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> ApiServer:
        """The cluster of a kubeconfig, or the one that this pod runs in.

        Args:
            kubeconfig: the file; ``None``: the pod's service account where there is one, else
                ``KUBECONFIG`` and ``~/.kube/config``, as kubectl reads them.
            context: the context of the file; ``None``: its current one.

        Raises:
            StateError: neither is there, or it cannot be read.
        """
        # Imported where it is needed: it takes half a second that `hami run` must not wait for.
        import yaml  # noqa: PLC0415
        from kubernetes import client, config  # noqa: PLC0415
        from kubernetes.config import ConfigException  # noqa: PLC0415

        configuration = client.Configuration()
        configuration.connection_pool_maxsize = _POOL
        configuration.retries = False
        try:
            if kubeconfig is None and context is None:
                try:
                    config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
                    return cls(client.ApiClient(configuration))
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
                "name one with --kubeconfig, or set KUBECONFIG",
            ) from error
        return cls(client.ApiClient(configuration))

    def close(self) -> None:
        """Ends all connections."""
        self._client.rest_client.close()

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        """GET: the answer's body."""
        return self._ask(_Question("GET", path, query or {}), deadline_s)

    def post(self, path: str, body: object, *, deadline_s: float) -> bytes:
        """POST of what can be written as JSON: the answer's body."""
        return self._ask(_Question("POST", path, body=body), deadline_s)

    def put(self, path: str, body: object, *, deadline_s: float) -> bytes:
        """PUT of what can be written as JSON: the answer's body."""
        return self._ask(_Question("PUT", path, body=body), deadline_s)

    def patch(self, path: str, body: object, kind: str, *, deadline_s: float) -> bytes:
        """PATCH of a kind (``MERGE_PATCH`` …): the answer's body."""
        return self._ask(_Question("PATCH", path, body=body, kind=kind), deadline_s)

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> Stream:
        """An answer that goes on line by line, as a watch's does.

        Args:
            path: what to ask for.
            query: the query's parameters.
            silence_s: how long nothing may come before the connection counts as lost.
        """
        question = _Question("GET", path, query)
        deadline = Deadline(silence_s)
        answer = self._send(question, deadline, (min(_CONNECT_S, silence_s), silence_s))
        deadline.bound_silence(silence_s)
        return Stream(question.what, answer)

    def _ask(self, question: _Question, deadline_s: float) -> bytes:
        import urllib3  # noqa: PLC0415

        deadline = Deadline(deadline_s)
        answer = self._send(question, deadline, deadline_s)
        try:
            data: bytes = answer.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            answer.close()
            raise _unavailable(question.what, error) from error
        answer.release_conn()
        return data

    def _send(
        self, question: _Question, deadline: Deadline, timeout_s: float | tuple[float, float]
    ) -> HTTPResponse:
        """The answer's head: within so long in all, or to connect and then to answer."""
        import urllib3  # noqa: PLC0415
        from kubernetes.client import ApiException  # noqa: PLC0415

        client = self._client
        headers = {**client.default_headers, "Accept": "application/json"}
        if question.body is not None:
            headers["Content-Type"] = question.kind
        client.update_params_for_auth(
            headers, [], ["BearerToken"], question.path, question.method, None
        )
        query = f"?{urlencode(question.query)}" if question.query else ""
        url = client.configuration.host + question.path + query
        body = msgspec.to_builtins(question.body)
        try:
            deadline.left_s()
            with deadline.kept():
                sent = client.call_api(question.method, url, headers, body, None, timeout_s)
            answer: HTTPResponse = sent.response
            if answer.status < 300:
                return answer
            try:
                data = answer.read(_FAILURE_BYTES)
            finally:
                # Read to the end it is the pool's again; else there is more of it, or to come.
                answer.close()
        except ApiException as error:
            raise Unavailable(
                question.what, str(error.reason), "look at the certificates, then try again"
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _unavailable(question.what, error) from error
        except ValueError as error:
            # A token with a line break, for one, is no header.
            raise Forbidden(
                question.what, f"it cannot be sent: {error}", "look at the credentials"
            ) from error
        raise _failure(question.what, answer.status, data)


@dataclass(frozen=True)
class _Question:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    kind: str = "application/json"

    @property
    def what(self) -> str:
        return f"{self.method} {self.path}"


class Stream:
    """The lines of an answer that goes on. Another thread may stop it."""

    def __init__(self, what: str, answer: HTTPResponse) -> None:
        self._what = what
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        """The lines, until the answer ends.

        Raises:
            Unavailable: the connection was lost, or silent for too long.
            Rejected: a line has no end.
        """
        import urllib3  # noqa: PLC0415

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
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _unavailable(self._what, error) from error
        finally:
            self._answer.close()

    def stop(self) -> None:
        """Ends the iteration, whichever thread waits in it."""
        # Before the first read there is nothing to shut down, and then the answer was just closed.
        with contextlib.suppress(OSError, ValueError):
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
    """The error for a status that is none of success."""
    kind, fix = _KINDS.get(code, (Rejected, "fix the request"))
    if code == 429 or code >= 500:
        kind, fix = Unavailable, "try again later"
    why = status.message or status.reason or "no reason given"
    error = kind(what, f"{code}: {why}", fix, code)
    if isinstance(error, Expired):
        error.rest = status.metadata.continue_
    return error


_KINDS: dict[int, tuple[type[KubeError], str]] = {
    401: (Forbidden, "look at the credentials"),
    403: (Forbidden, "give the service account the right (deploy/ has the roles)"),
    404: (NotFound, "look whether it is still there"),
    409: (Conflict, "look at it again, then try again"),
    410: (Expired, "list again"),
}
