"""Errors of requests to the API server; each type says what the caller must do."""

from hami_py.errors import HamiError


class KubeError(HamiError):
    """A request to the API server failed.

    Attributes:
        status: the HTTP status; 0: there was no answer.
    """

    def __init__(self, what: str, why: str, fix: str, status: int = 0) -> None:
        super().__init__(what, why, fix)
        self.args = (what, why, fix, status)
        self.status = status


class Unavailable(KubeError):
    """There was no answer in time, or an overload or server error (429, 5xx): try again later."""


class Conflict(KubeError):
    """The object has changed or was replaced (409): read it again."""


class Expired(KubeError):
    """The API server no longer keeps the requested version (410): list again.

    Attributes:
        rest: the token that continues a list whose first pages were read, if the other pages may
            be of a later version. Empty: the list must begin again.
    """

    rest = ""


class NotFound(KubeError):
    """The object does not exist (404): forget it."""


class Forbidden(KubeError):
    """The right is missing (401, 403): grant it to the service account."""


class Rejected(KubeError):
    """The request is invalid (other 4xx): trying again does not help."""
