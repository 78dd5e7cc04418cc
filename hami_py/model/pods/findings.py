"""What is found in a pod beside its request, as values: the webhook shows them to the author."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hami_py.errors import InvalidValue

Action: TypeAlias = Literal["refuse", "remove", "replace", "remark"]
"""``refuse``: the pod is not let in. ``remove``, ``replace``: it is let in without this, or with
ours instead. ``remark``: it is let in as it is, and its author is told something."""

Rule: TypeAlias = Literal[
    "request",
    "opt-out",
    "scheduler",
    "windows",
    "loader-variable",
    "unseen-variables",
    "privileged",
    "capability",
    "host-pid",
    "mount",
    "library",
    "host-path",
    "node-name",
    "visible-devices",
    "off-switch",
    "own-limit",
    "own-priority",
    "small-memory",
    "forged-annotation",
    "unknown-annotation",
    "late-change",
    "size",
]
"""What was looked for; a label for counters, so its values are few and fixed."""

_DONE = {
    "refuse": "is refused",
    "remove": "is removed",
    "replace": "is replaced",
    "remark": "is let in",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        rule: what was looked for.
        action: what is done about it.
        field: its path in the pod.
        value: as it stands there.
        fix: how to write it instead, or why this is done.
    """

    rule: Rule
    action: Action
    field: str
    value: str
    fix: str

    def __str__(self) -> str:
        return str(self.error()).replace("is refused", _DONE[self.action], 1)

    def error(self) -> InvalidValue:
        """The same as an error."""
        return InvalidValue(self.field, self.value, self.fix)


def refused(error: InvalidValue) -> Finding:
    """The finding for a request that cannot be read."""
    return Finding("request", "refuse", error.field, error.value, error.fix)
