"""Queries to a Prometheus: https://prometheus.io/docs/prometheus/latest/querying/api."""

from __future__ import annotations

from time import monotonic

import msgspec

from hami_py.errors import InvalidValue, StateError

_DEADLINE_S = 60.0
"""For each query. By default Prometheus itself gives up after two minutes."""


class Series(msgspec.Struct, frozen=True):
    """A series of a result, with its value or its values: seconds since 1970, and the number."""

    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "")
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, frozen=True):
    result: list[Series] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = "it is no answer of Prometheus"
    warnings: list[str] = []
    data: _Data = _Data()


class Prometheus:
    """One Prometheus; ``url`` has the path before ``/api/v1``, if there is one.

    Raises:
        InvalidValue: the address does not begin with http:// or https://.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidValue("--prometheus", url, "write its address, like http://127.0.0.1:9090")
        self.url = url.rstrip("/")

    def ask(self, path: str, **fields: str) -> list[Series]:
        """The result of ``query`` or ``query_range``, with the fields that these have.

        Raises:
            StateError: there is no complete answer within a minute.
        """
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            answer = msgspec.json.decode(self._read(path, fields), type=_Answer)
        except (HTTPError, OSError) as error:
            answer = _Answer(error=f"no answer ({error})")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            answer = _Answer()
        # A warning means that a part of the data is missing.
        if answer.status != "success" or answer.warnings:
            why = " ".join("; ".join(answer.warnings or [answer.error]).split())
            fix = "check --prometheus, or try again later"
            raise StateError(f"Prometheus at {self.url}", why, fix)
        return answer.data.result

    def _read(self, path: str, fields: dict[str, str]) -> bytes:
        """The body of an answer, also of a failure, which says why."""
        from urllib3 import Timeout, request  # noqa: PLC0415

        ends_at, timeout = monotonic() + _DEADLINE_S, Timeout(total=_DEADLINE_S)
        url, fields = f"{self.url}/api/v1/{path}", {**fields, "timeout": f"{_DEADLINE_S:.0f}s"}
        answer = request(
            "GET", url, fields=fields, timeout=timeout, retries=False, preload_content=False
        )
        body = bytearray()
        while piece := answer.read1(1 << 16):
            body += piece
            # The timeout is for each piece.
            if monotonic() > ends_at:
                answer.close()
                raise TimeoutError(f"not complete after {_DEADLINE_S:.0f} s")
        return bytes(body)
