"""The errors of the API server: Status objects, as they were recorded."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class Refused(Exception):
    """The server says no, with a Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        metadata: Object | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.body: Object = {
            "apiVersion": "v1",
            "code": code,
            "kind": "Status",
            "message": message,
            "metadata": metadata or {},
            "reason": reason,
            "status": "Failure",
        }
        if details is not None:
            self.body["details"] = details


def conflict(kind: str, name: str | None, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return Refused(409, "Conflict", message, details={"kind": kind, "name": name})


def already_there(kind: str, name: str | None) -> Refused:
    message = f'{kind} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, details={"kind": kind, "name": name})


def not_found(kind: str, name: str | None) -> Refused:
    message = f'{kind} "{name}" not found'
    return Refused(404, "NotFound", message, details={"kind": kind, "name": name})


def too_old(version: int, oldest: int) -> Refused:
    return Refused(410, "Expired", f"too old resource version: {version} ({oldest})")


def page_too_old(fresh: str) -> Refused:
    return Refused(410, "Expired", _CONTINUE_TOO_OLD, metadata={"continue": fresh})
