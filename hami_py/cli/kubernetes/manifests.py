"""The pods of manifests in YAML or JSON, including those that controllers would create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hami_py.cli.service import kubernetes_extra
from hami_py.errors import InvalidValue

if TYPE_CHECKING:
    from hami_py.cluster.view import DaemonPod
    from hami_py.model.pods.objects import Pod

Object: TypeAlias = dict[str, object]

_AT_ONCE = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
}
"""Kinds that create pods from ``spec.template``, and the field of the spec with their number."""

_GROUPS = ("", "apps", "batch", "extensions")
"""The API groups of Kubernetes' own kinds; another group may have kinds of the same name."""

_MOST = 10_000
"""The most pods of one manifest; a larger number is a mistake."""

_MOST_COMPLETIONS = (1 << 31) - 1
"""Kubernetes' own limit; most pods of such a Job end before the last ones start."""

_WRITE_PODS = "use manifests of pods, or of objects that create pods"

_DAEMON_TOLERATES = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure")
"""Taints of ``node.kubernetes.io/`` that DaemonSets tolerate, beside that of a cordon."""

NO_TEMPLATE = "no pod template at spec.template or spec.*ReplicaSpecs"
"""The reason why an object of any kind, such as a Service, is skipped."""


@dataclass(frozen=True)
class NoPods:
    """An object that would create no pod.

    Attributes:
        name: ``namespace/name``, or its name if it has no namespace.
        reason: the field that is the reason, or ``NO_TEMPLATE``.
    """

    kind: str
    name: str
    reason: str


@dataclass(frozen=True)
class _Template:
    """A pod template, and how many pods are created from it.

    Attributes:
        count: the pods that exist at once; ``None``: one for each node.
        reason: if there are none, the field that is the reason.
    """

    path: str
    template: Object
    count: int | None
    reason: str = ""
    role: str = ""


def read_pods(paths: tuple[Path, ...]) -> tuple[list[Pod | DaemonPod], list[NoPods]]:
    """The pods of manifests, including several documents, lists, and controllers' pods.

    Returns:
        The pods, and the objects that would create none: those without a pod template, and
        controllers without replicas, or suspended.

    Raises:
        InvalidValue: an object has no kind, or a pod or a controller of pods is invalid.
        StateError: a file cannot be read.
    """
    found: list[Pod | DaemonPod] = []
    without: list[NoPods] = []
    for path in paths:
        before = len(found) + len(without)
        for item in _items(path):
            try:
                made = _pods(item)
            except InvalidValue as error:
                field = f"{path}: {error.field}"
                raise InvalidValue(field, error.value, error.fix) from None
            if isinstance(made, NoPods):
                without.append(made)
            else:
                found += made
        if len(found) + len(without) == before:
            raise InvalidValue(str(path), "", f"it has no pod: {_WRITE_PODS}")
    return found, without


def _pods(item: object) -> list[Pod | DaemonPod] | NoPods:
    from hami_py.cluster.view import DaemonPod  # noqa: PLC0415
    from hami_py.model import pods  # noqa: PLC0415

    if not isinstance(item, dict):
        raise InvalidValue("manifest", str(item), _WRITE_PODS)
    kind = item.get("kind", "")
    if kind == "Pod":
        return [pods.decode_pod.convert(item)]
    if not isinstance(kind, str) or not kind:
        raise InvalidValue("kind", str(kind), _WRITE_PODS)
    spec = item.get("spec")
    templates = list(_templates(item, kind, spec if isinstance(spec, dict) else {}))
    made: list[Pod | DaemonPod] = []
    for each in templates:
        pod = _named(_decode_template(each), item, each.role)
        made += [DaemonPod(pod)] if each.count is None else [pod] * each.count
    return made or _no_pods(item, kind, templates)


def _templates(item: Object, kind: str, spec: Object) -> Iterator[_Template]:
    is_own = str(item.get("apiVersion") or "").rpartition("/")[0] in _GROUPS
    if is_own and kind == "CronJob":
        job = _object(_object(spec, "spec", "jobTemplate"), "spec.jobTemplate", "spec")
        yield _of_kind("Job", job, "spec.jobTemplate.spec", is_suspended=_is_suspended(spec))
    elif is_own and kind == "DaemonSet":
        yield _Template("spec.template", _daemon(_object(spec, "spec", "template")), None)
    elif is_own and kind in _AT_ONCE:
        yield _of_kind(kind, spec, "spec", is_suspended=kind == "Job" and _is_suspended(spec))
    else:
        yield from _of_unknown_kind(spec)


def _of_kind(kind: str, spec: Object, path: str, *, is_suspended: bool) -> _Template:
    template = _object(spec, path, "template")
    if is_suspended:
        return _Template(f"{path}.template", template, 0, "spec.suspend is true")
    field = _AT_ONCE[kind]
    count = _number(spec, path, field)
    if kind == "Job":
        completions = _number(spec, path, "completions", count, _MOST_COMPLETIONS)
        if completions < count:
            count, field = completions, "completions"
    return _Template(f"{path}.template", template, count, f"{path}.{field} is {count}")


def _of_unknown_kind(spec: Object) -> Iterator[_Template]:
    """The templates where a Deployment has its own, or a PyTorchJob those of its roles."""
    policy = spec.get("runPolicy")
    places: list[tuple[str, str, Object]] = [("spec", "", spec)]
    for name, roles in spec.items():
        if name.endswith("ReplicaSpecs") and isinstance(roles, dict):
            each = ((f"spec.{name}.{role}", role, one) for role, one in roles.items())
            places += [place for place in each if isinstance(place[2], dict)]
    for path, role, place in places:
        template = place.get("template")
        if not isinstance(template, dict) or not _is_of_pods(template):
            continue
        if _is_suspended(spec):
            yield _Template(f"{path}.template", template, 0, "spec.suspend is true")
        elif isinstance(policy, dict) and _is_suspended(policy, "spec.runPolicy"):
            yield _Template(f"{path}.template", template, 0, "spec.runPolicy.suspend is true")
        else:
            count = _number(place, path, "replicas")
            reason = f"{path}.replicas is {count}"
            yield _Template(f"{path}.template", template, count, reason, role)


def _is_of_pods(template: Object) -> bool:
    """Whether it is the template of a pod: other kinds of objects have templates, too."""
    spec = template.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _daemon(template: Object) -> Object:
    """The template with the tolerations that the DaemonSet controller adds."""
    spec = template.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("tolerations") or [], list):
        # It is refused when it is decoded.
        return template
    added = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
        for name in ("unschedulable", *_DAEMON_TOLERATES)
    ]
    tolerations = [*(spec.get("tolerations") or []), *added]
    return {**template, "spec": {**spec, "tolerations": tolerations}}


def _decode_template(each: _Template) -> Pod:
    from hami_py.model import pods  # noqa: PLC0415

    try:
        return pods.decode_pod.convert(each.template)
    except InvalidValue as error:
        raise InvalidValue(f"{each.path}.{error.field}", error.value, error.fix) from None


def _named(pod: Pod, owner: Object, role: str) -> Pod:
    """The pod with the name prefix and namespace that its controller would set."""
    import msgspec  # noqa: PLC0415

    from hami_py.model import pods  # noqa: PLC0415

    made_by = pods.decode_pod.convert({"metadata": owner.get("metadata") or {}}).metadata
    parts = [made_by.name or made_by.generate_name or "", role.lower()]
    metadata = msgspec.structs.replace(
        pod.metadata,
        name="",
        generate_name="".join(f"{part}-" for part in parts[: 1 + bool(role)]),
        namespace=made_by.namespace,
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _no_pods(item: Object, kind: str, templates: list[_Template]) -> NoPods:
    metadata = item.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    namespace = named.get("namespace") or ("default" if templates else "")
    parts = [namespace, named.get("name") or named.get("generateName") or ""]
    name = "/".join(str(part) for part in parts if part)
    return NoPods(kind, name, templates[0].reason if templates else NO_TEMPLATE)


def _object(parent: Object, path: str, field: str) -> Object:
    value = parent.get(field)
    if not isinstance(value, dict):
        raise InvalidValue(f"{path}.{field}", "", "it is required: add it")
    return value


def _is_suspended(spec: Mapping[str, object], path: str = "spec") -> bool:
    suspend = spec.get("suspend")
    if suspend is not None and not isinstance(suspend, bool):
        raise InvalidValue(f"{path}.suspend", str(suspend), "write true or false")
    return bool(suspend)


def _number(
    spec: Mapping[str, object], path: str, field: str, default: int = 1, most: int = _MOST
) -> int:
    number = spec.get(field)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise InvalidValue(f"{path}.{field}", str(number), f"write a number from 0 to {most}")
    return number


def _items(path: Path) -> Iterator[object]:
    with kubernetes_extra():
        from hami_py.kube.documents import read_documents  # noqa: PLC0415

        for document in read_documents(path):
            if not isinstance(document, dict) or "items" not in document:
                yield document
                continue
            items = document["items"]
            if not isinstance(items, list):
                raise InvalidValue(f"{path}: items", str(items), "write a list of manifests")
            yield from items
