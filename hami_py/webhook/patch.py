"""An admission as a JSON patch (RFC 6902) of its pod.

The patch changes only what the admission decides: it removes list entries by their index and adds
new ones at the end, so unknown fields stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hami_py.model.pods import Admission, ContainerEdit, PodSettings, objects
from hami_py.model.pods.annotations import LABELS

Operation = dict[str, object]

_CONTAINER = re.compile(r"spec\.(?P<list>containers|initContainers)\[(?P<index>\d+)\]")


def make_patch(
    pod: objects.Pod,
    admission: Admission,
    settings: PodSettings,
    runtime_class: str | None = None,
) -> list[Operation]:
    """The operations that an admission needs; none if the pod is right already.

    Pods that request a card and name no scheduler get the first one of the settings, and those that
    name no runtime class get this one.
    """
    operations = list(_removed(admission))
    operations += _added("annotations", pod.metadata.annotations, admission.annotations)
    if admission.request is not None:
        operations += _added("labels", pod.metadata.labels, LABELS)
        operations += _spec(pod, settings, runtime_class)
    for edit in admission.edits:
        operations += _container(pod, edit)
    return operations


def _removed(admission: Admission) -> Iterator[Operation]:
    for key in admission.remove_annotations:
        yield {"op": "remove", "path": f"/metadata/annotations/{_escaped(key)}"}


def _added(
    name: str, there: Mapping[str, str] | None, wanted: Mapping[str, str]
) -> Iterator[Operation]:
    """Set labels or annotations."""
    missing = {key: value for key, value in wanted.items() if (there or {}).get(key) != value}
    if missing and there is None:
        yield {"op": "add", "path": f"/metadata/{name}", "value": {}}
    for key, value in missing.items():
        yield {"op": "add", "path": f"/metadata/{name}/{_escaped(key)}", "value": value}


def _spec(
    pod: objects.Pod, settings: PodSettings, runtime_class: str | None
) -> Iterator[Operation]:
    # A pod that names a scheduler other than the default keeps it.
    theirs, ours = pod.spec.scheduler_name, next(iter(settings.schedulers), None)
    if ours and ours != theirs and theirs in (None, "", objects.DEFAULT_SCHEDULER):
        yield {"op": "add", "path": "/spec/schedulerName", "value": ours}
    if runtime_class and not pod.spec.runtime_class_name:
        yield {"op": "add", "path": "/spec/runtimeClassName", "value": runtime_class}


def _container(pod: objects.Pod, edit: ContainerEdit) -> Iterator[Operation]:
    match = _CONTAINER.fullmatch(edit.path)
    if match is None:
        raise ValueError(f"not the path of a container: {edit.path}")
    listed = pod.spec.containers if match["list"] == "containers" else pod.spec.init_containers
    container = (listed or ())[int(match["index"])]
    path = f"/spec/{match['list']}/{match['index']}"
    yield from _limits(path, container, edit.limits)
    yield from _environment(path, container, edit)


def _limits(
    path: str, container: objects.Container, limits: Mapping[str, str]
) -> Iterator[Operation]:
    if not limits:
        return
    if container.resources is None:
        yield {"op": "add", "path": f"{path}/resources", "value": {}}
    if container.resources is None or container.resources.limits is None:
        yield {"op": "add", "path": f"{path}/resources/limits", "value": {}}
    for name, amount in limits.items():
        pointer = f"{path}/resources/limits/{_escaped(name)}"
        yield {"op": "add", "path": pointer, "value": amount}


def _environment(
    path: str, container: objects.Container, edit: ContainerEdit
) -> Iterator[Operation]:
    plan = edit.environment
    entries = container.env or ()
    # From the end, so that the indexes of the entries before stay valid.
    for index in reversed(range(len(entries) if plan.remove else 0)):
        if entries[index].name in plan.remove:
            yield {"op": "remove", "path": f"{path}/env/{index}"}
    if plan.add and container.env is None:
        yield {"op": "add", "path": f"{path}/env", "value": []}
    for ours in plan.add:
        yield {"op": "add", "path": f"{path}/env/-", "value": ours.manifest()}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
