"""The Kubernetes API on the wire: paths, JSON objects, status codes.

Findings describe the real responses of the API server, so nothing here types, defaults or retries.
Programs under test use their own client and get a kubeconfig. urllib3 does the HTTP.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import urllib3

from cluster.certificates import Identity

Object = dict[str, Any]

#: Seconds that one request may take.
DEADLINE = 30.0

#: The content type of a patch.
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server said no: its status code and its Status object."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code, self.status = code, status


class Api:
    """One user's requests to an API server."""

    def __init__(
        self,
        url: str,
        authority: Path,
        identity: Identity,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._headers = dict(headers or {})
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(identity.certificate, identity.key)
        self._pool = urllib3.PoolManager(ssl_context=context, maxsize=32, retries=False)
        self._url = url

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
    ) -> tuple[int, Object]:
        """Send one request; returns status code and object of the response, without checks."""
        answer = self._pool.request(
            method,
            self._url + path,
            body=None if body is None else json.dumps(body),
            headers={**self._headers, "Content-Type": content_type, "Accept": "application/json"},
            timeout=DEADLINE,
        )
        return answer.status, json.loads(answer.data)

    def ready(self) -> bool:
        """Whether /readyz says ok."""
        return self._says_ok("/readyz")

    def healthy(self) -> bool:
        """Whether /healthz says ok."""
        return self._says_ok("/healthz")

    def text(self, path: str) -> str:
        """Read a path whose response is not JSON, such as /metrics."""
        answer = self._pool.request("GET", self._url + path, timeout=DEADLINE)
        assert answer.status == 200, answer.data
        return answer.data.decode()

    def get(self, path: str) -> Object:
        return self._ok("GET", path)

    def list(self, path: str) -> list[Object]:
        items: list[Object] = self._ok("GET", path)["items"]
        return items

    def create(self, path: str, body: Object) -> Object:
        """POST to a collection, or to a subresource such as ``…/pods/NAME/binding``."""
        return self._ok("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        return self._ok("PUT", path, body)

    def patch(self, path: str, body: Object, content_type: str = MERGE) -> Object:
        return self._ok("PATCH", path, body, content_type)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> Object:
        body = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self._ok("DELETE", path, body)

    def delete_all(self, path: str) -> None:
        """Delete a collection at once; objects with finalizers or protection stay."""
        self._ok("DELETE", path, {"gracePeriodSeconds": 0})

    def watch(self, path: str, *, seconds: int = 30) -> Iterator[Object]:
        """The events of a watch; ``path`` has its query, such as ``resourceVersion``."""
        joint = "&" if "?" in path else "?"
        answer = self._pool.request(
            "GET",
            f"{self._url}{path}{joint}watch=1&timeoutSeconds={seconds}",
            preload_content=False,
            timeout=seconds + DEADLINE,
        )
        try:
            if answer.status != 200:
                raise ApiError(answer.status, json.loads(answer.data))
            for line in _lines(answer.stream(65536)):
                yield json.loads(line)
        finally:
            answer.close()

    def _says_ok(self, path: str) -> bool:
        try:
            answer = self._pool.request("GET", self._url + path, timeout=2.0)
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        return answer.status == 200

    def _ok(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        code, answer = self.request(method, path, body, content_type=content_type)
        if code >= 300:
            raise ApiError(code, answer)
        return answer


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
