"""The pods of manifests, YAML or JSON: most of what people have is no pod, and makes some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hami_py.cli.kubernetes.common import kubernetes_extra
from hami_py.errors import InvalidValue

if TYPE_CHECKING:
    from hami_py.model.pods.objects import Pod

__all__ = ["read_pods"]

_AT_ONCE = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
}
"""What makes pods of its ``spec.template``, and the field of its spec that says how many."""

_MOST = 10_000
"""Pods of one manifest; more are a slip of the hand."""

_WRITE_PODS = f"name manifests of pods, or of a {', '.join(sorted(_AT_ONCE))}"


def read_pods(paths: tuple[Path, ...]) -> list[Pod]:
    """The pods of manifests, several documents and lists included, and those that others make.

    Raises:
        InvalidValue: something in them is no pod and makes none.
        StateError: a file cannot be read.
    """
    found: list[Pod] = []
    for path in paths:
        before = len(found)
        for item in _items(path):
            try:
                found += _pods(item)
            except InvalidValue as error:
                field = f"{path}: {error.field}"
                raise InvalidValue(field, error.value, error.mend) from None
        if len(found) == before:
            raise InvalidValue(str(path), "", f"there is no pod in it: {_WRITE_PODS}")
    return found


def _pods(item: object) -> list[Pod]:
    from hami_py.model import pods  # noqa: PLC0415

    if not isinstance(item, dict):
        raise InvalidValue("manifest", str(item), _WRITE_PODS)
    kind = item.get("kind", "")
    if kind == "Pod":
        return [pods.decode_pod.convert(item)]
    if kind not in _AT_ONCE:
        raise InvalidValue("kind", str(kind), _WRITE_PODS)
    spec = item.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(template, dict):
        raise InvalidValue("spec.template", "", "it is required: add it")
    pod = _decode_template(template)
    return [_named(pod, item)] * _count(spec, _AT_ONCE[kind])


def _decode_template(template: dict[str, object]) -> Pod:
    from hami_py.model import pods  # noqa: PLC0415

    try:
        return pods.decode_pod.convert(template)
    except InvalidValue as error:
        raise InvalidValue(f"spec.template.{error.field}", error.value, error.mend) from None


def _named(pod: Pod, owner: dict[str, object]) -> Pod:
    """As its controller names it, as far as that can be told."""
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


def _count(spec: dict[str, object], field: str) -> int:
    count = spec.get(field)
    if count is None:
        return 1
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST:
        raise InvalidValue(f"spec.{field}", str(count), f"write a number from 0 to {_MOST}")
    return count


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
