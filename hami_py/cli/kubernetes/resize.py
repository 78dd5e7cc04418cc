"""``hami set --pod``: new limits for a running pod."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hami_py.cli.output import report
from hami_py.cli.service import kubernetes_extra
from hami_py.errors import InvalidValue, StateError
from hami_py.model import UNLIMITED, LimitRequest, check_object_name
from hami_py.model.pods import assignment_of, decode_pod
from hami_py.model.pods.annotations import RESIZE, VERSION
from hami_py.model.pods.resize import encode_resize
from hami_py.model.pods.wire import Assignment, CardAllocation, Resize

if TYPE_CHECKING:
    from hami_py.kube import ApiServer
    from hami_py.model.pods import Pod

_MIB = 1 << 20

_DEADLINE_S = 10.0
_DECISION_S = 30.0
_POLL_S = 0.2

_AGENT_LOG = (
    "kubectl -n hami-system logs $(kubectl -n hami-system get pods -o name"
    " -l app.kubernetes.io/name=hami-node --field-selector spec.nodeName={node})"
)
"""The command that prints the log of the agent of a node, with the names of deploy/."""


class _Event(msgspec.Struct):
    class Meta(msgspec.Struct):
        name: str

    metadata: Meta
    message: str = ""


def resize_pod(server: ApiServer, text: str, request: LimitRequest) -> None:
    """Request new limits for a pod, and wait until its node agent has decided.

    Raises:
        InvalidValue: the text or a limit is invalid.
        StateError: the pod has no cards, or the limits were refused, or nobody decided.
        KubeError: the API server has refused, or does not answer.
    """
    with kubernetes_extra():
        from hami_py.kube import patch_metadata, path_of  # noqa: PLC0415

    namespace, name, container = _parse(text)
    path = path_of(namespace, "pods", name)
    pod = decode_pod(server.get(path, deadline_s=_DEADLINE_S))
    assignment = assignment_of(pod)
    if assignment is None:
        raise StateError(f"pod {text}", "no card was assigned to it", "name a bound pod with cards")
    wanted = _wanted(assignment, container, request)
    refused = _refusals(server, namespace, pod)
    resize = encode_resize(Resize(VERSION, wanted))
    # An equal request would not be judged again; a space changes nothing but the text.
    resize += " " * (pod.annotations.get(RESIZE) == resize)
    patch_metadata(server, path, annotations={RESIZE: resize}, deadline_s=_DEADLINE_S)
    deadline = time.monotonic() + _DECISION_S
    while time.monotonic() < deadline:
        pod = decode_pod(server.get(path, deadline_s=_DEADLINE_S))
        if _has(assignment_of(pod), wanted):
            report(f"{namespace}/{name}: the limits are in force")
            return
        for event, message in _refusals(server, namespace, pod).items():
            if event not in refused:
                raise _refused(text, message)
        time.sleep(_POLL_S)
    node = pod.spec.node_name
    why = f"the agent of node {node} has not decided after {_DECISION_S:g} s"
    raise StateError(f"pod {text}", why, f"read the agent's log: {_AGENT_LOG.format(node=node)}")


def _refused(text: str, message: str) -> StateError:
    """The agent's error, from the message of its event: what failed, why, and the fix."""
    _, _, rest = message.partition(": ")
    why, _, fix = rest.rpartition("; ")
    if not why or not fix:
        # Kubernetes has cut a long message.
        why, fix = message, "request other limits"
    return StateError(f"pod {text}", f"the node agent refuses: {why}", fix)


def _parse(text: str) -> tuple[str, str, str | None]:
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise InvalidValue("--pod", text, "write namespace/name, or namespace/name/container")
    namespace, name, *rest = (check_object_name("--pod", part) for part in parts)
    return namespace, name, rest[0] if rest else None


def _wanted(
    assignment: Assignment, container: str | None, request: LimitRequest
) -> dict[str, tuple[CardAllocation, ...]]:
    names = [container] if container is not None else list(assignment.containers)
    wanted = {}
    for name in names:
        if name not in assignment.containers:
            fix = f"write one of {', '.join(assignment.containers)}"
            raise InvalidValue("--pod", name, fix)
        cards = assignment.containers[name]
        for values, option in ((request.memory, "--gpumem"), (request.share, "--gpucores")):
            if isinstance(values, Mapping):
                unknown = values.keys() - {card.card for card in cards}
                if unknown:
                    fix = f"write UUIDs of its cards: {', '.join(card.card for card in cards)}"
                    raise InvalidValue(option, min(unknown), fix)
        wanted[name] = tuple(_changed(card, request) for card in cards)
    return wanted


def _changed(card: CardAllocation, request: LimitRequest) -> CardAllocation:
    memory, share = (
        values.get(card.card) if isinstance(values, Mapping) else values
        for values in (request.memory, request.share)
    )
    if memory == UNLIMITED:
        raise InvalidValue("--gpumem", "none", "write a size: a pod has a part of a card")
    if memory is not None and memory % _MIB:
        raise InvalidValue("--gpumem", f"{memory} bytes", "a pod's limit is in whole MiB")
    return msgspec.structs.replace(
        card,
        memory_mib=card.memory_mib if memory is None else memory // _MIB,
        cores=card.cores if share is None else share,
    )


def _has(assignment: Assignment | None, wanted: Mapping[str, tuple[CardAllocation, ...]]) -> bool:
    present = assignment.containers if assignment is not None else {}
    return all(present.get(name) == cards for name, cards in wanted.items())


def _refusals(server: ApiServer, namespace: str, pod: Pod) -> dict[str, str]:
    """The pod's events that refuse a resize: their messages by name."""
    from hami_py.kube import list_objects, path_of  # noqa: PLC0415

    query = {"fieldSelector": f"involvedObject.uid={pod.uid},reason=ResizeRefused"}
    path = path_of(namespace, "events")
    events, _ = list_objects(server, path, _Event, query=query, deadline_s=_DEADLINE_S)
    return {event.metadata.name: event.message for event in events}
