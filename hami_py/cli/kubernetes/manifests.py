"""The pods of manifests in YAML or JSON, including those that controllers would create."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hami_py.cli.kubernetes.common import kubernetes_extra
from hami_py.errors import InvalidValue

if TYPE_CHECKING:
    from hami_py.model.pods.objects import Pod

__all__ = ["NoPods", "read_pods"]

_AT_ONCE = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
}
"""Kinds that create pods from ``spec.template``, and the field of the spec with their number."""

_MOST = 10_000
"""The most pods of one manifest; a larger number is a mistake."""

_MOST_COMPLETIONS = (1 << 31) - 1
"""Kubernetes' own limit; most pods of such a Job end before the last ones start."""

_WRITE_PODS = f"use manifests of pods, or of a {', '.join(sorted(_AT_ONCE))}"


@dataclass(frozen=True)
class NoPods:
    """A controller that would create no pod.

    Attributes:
        kind: its kind, such as ``Deployment``.
        name: ``namespace/name``.
        reason: the field that is the reason.
    """

    kind: str
    name: str
    reason: str


def read_pods(paths: tuple[Path, ...]) -> tuple[list[Pod], list[NoPods]]:
    """The pods of manifests, including several documents, lists, and controllers' pods.

    Returns:
        The pods, and the controllers that would create none (no replicas, or suspended).

    Raises:
        InvalidValue: an object is no pod and no controller of pods, or is invalid.
        StateError: a file cannot be read.
    """
    found: list[Pod] = []
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


def _pods(item: object) -> list[Pod] | NoPods:
    from hami_py.model import pods  # noqa: PLC0415

    if not isinstance(item, dict):
        raise InvalidValue("manifest", str(item), _WRITE_PODS)
    kind = item.get("kind", "")
    if kind == "Pod":
        return [pods.decode_pod.convert(item)]
    if not isinstance(kind, str) or kind not in _AT_ONCE:
        raise InvalidValue("kind", str(kind), _WRITE_PODS)
    spec = item.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict):
        raise InvalidValue("spec.template", "", "it is required: add it")
    pod = _named(_decode_template(template), item)
    count, reason = _at_once(kind, spec)
    if count == 0:
        owner = (pod.metadata.generate_name or "").removesuffix("-")
        return NoPods(kind, f"{pod.metadata.namespace or 'default'}/{owner}", reason)
    return [pod] * count


def _decode_template(template: dict[str, object]) -> Pod:
    from hami_py.model import pods  # noqa: PLC0415

    try:
        return pods.decode_pod.convert(template)
    except InvalidValue as error:
        raise InvalidValue(f"spec.template.{error.field}", error.value, error.fix) from None


def _named(pod: Pod, owner: dict[str, object]) -> Pod:
    """The pod with the name prefix and namespace that its controller would set."""
    import msgspec  # noqa: PLC0415

    from hami_py.model import pods  # noqa: PLC0415

    made_by = pods.decode_pod.convert({"metadata": owner.get("metadata") or {}}).metadata
    metadata = msgspec.structs.replace(
        pod.metadata,
        name="",
        generate_name=f"{made_by.name or made_by.generate_name or ''}-",
        namespace=made_by.namespace,
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _at_once(kind: str, spec: dict[str, object]) -> tuple[int, str]:
    """The number of pods that exist at once, and the field that is the reason."""
    field = _AT_ONCE[kind]
    count = _number(spec, field, 1, _MOST)
    if kind == "Job":
        if _is_suspended(spec):
            return 0, "spec.suspend is true"
        completions = _number(spec, "completions", count, _MOST_COMPLETIONS)
        if completions < count:
            count, field = completions, "completions"
    return count, f"spec.{field} is {count}"


def _is_suspended(spec: dict[str, object]) -> bool:
    suspend = spec.get("suspend")
    if suspend is not None and not isinstance(suspend, bool):
        raise InvalidValue("spec.suspend", str(suspend), "write true or false")
    return bool(suspend)


def _number(spec: dict[str, object], field: str, default: int, most: int) -> int:
    number = spec.get(field)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise InvalidValue(f"spec.{field}", str(number), f"write a number from 0 to {most}")
    return number


def _items(path: Path) -> Iterator[object]:
    for document in _documents(path):
        if not isinstance(document, dict) or "items" not in document:
            yield document
            continue
        items = document["items"]
        if not isinstance(items, list):
            raise InvalidValue(f"{path}: items", str(items), "write a list of manifests")
        yield from items


def _documents(path: Path) -> Iterator[object]:
    with kubernetes_extra():
        from hami_py.kube.documents import read_documents  # noqa: PLC0415

        yield from read_documents(path)
