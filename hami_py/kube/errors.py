"""What the API server may answer, as types that say what the caller must do."""

from hami_py.errors import HamiError

__all__ = ["Conflict", "Expired", "Forbidden", "KubeError", "NotFound", "Rejected", "Unavailable"]


class KubeError(HamiError):
    """Everything that a request to the API server can end with but success.

    Attributes:
        status: the HTTP status; 0 where there was no answer.
    """

    def __init__(self, what: str, why: str, fix: str, status: int = 0) -> None:
        super().__init__(what, why, fix)
        self.args = (what, why, fix, status)
        self.status = status


class Unavailable(KubeError):
    """No answer in time, or one that says so (429, 5xx): try again later."""


class Conflict(KubeError):
    """The object has changed, or is another one by now (409): look at it again."""


class Expired(KubeError):
    """The version asked for is no longer kept (410): list again.

    Attributes:
        rest: of a list of which some pages are read: what to go on with, if the others may be of a
            later moment. Empty: only from its beginning.
    """

    rest = ""


class NotFound(KubeError):
    """The object is gone (404): forget it."""


class Forbidden(KubeError):
    """We may not do that (401, 403): give the service account the right."""


class Rejected(KubeError):
    """The request is wrong (other 4xx): trying again does not help."""
