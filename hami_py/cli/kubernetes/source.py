"""Where the commands that ask about a cluster get it from: an API server, or a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.kubernetes.common import connect, kubernetes_extra
from hami_py.errors import InvalidValue, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hami_py.model.pods.objects import Pod
    from hami_py.scheduler.view import ClusterView

__all__ = ["read_pods", "read_view", "snapshot_option"]

snapshot_option = click.option(
    "--snapshot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Ask this snapshot of `hami snapshot` instead of a cluster.",
)


def read_view(snapshot: Path | None, kubeconfig: Path | None, context: str | None) -> ClusterView:
    """The cluster at this moment, or at that of a snapshot."""
    if snapshot is None:
        server = connect(kubeconfig, context)
        from hami_py.scheduler.view import ClusterView  # noqa: PLC0415

        return ClusterView.read(server)
    from hami_py.scheduler.view import ClusterView  # noqa: PLC0415

    return ClusterView.restore(_read(snapshot))


def read_pods(paths: tuple[Path, ...]) -> list[Pod]:
    """The pods of manifests: YAML or JSON, several documents and lists included.

    Raises:
        InvalidValue: something in them is no pod.
        StateError: a file cannot be read.
    """
    from hami_py.model import pods  # noqa: PLC0415

    found: list[Pod] = []
    for path in paths:
        for document in _documents(path):
            items = document.get("items", [document])
            for item in items if isinstance(items, list) else [items]:
                kind = item.get("kind") if isinstance(item, dict) else item
                if kind != "Pod":
                    raise InvalidValue(f"{path}: kind", str(kind), "name manifests of pods")
                found.append(pods.decode_pod.convert(item))
    return found


def _documents(path: Path) -> Iterator[dict[str, object]]:
    with kubernetes_extra():
        # kubernetes brings it: its own kubeconfigs are YAML.
        import yaml  # noqa: PLC0415

    try:
        for document in yaml.safe_load_all(_read(path)):
            if isinstance(document, dict):
                yield document
            elif document is not None:
                raise InvalidValue(str(path), str(document), "write a manifest of a pod")
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InvalidValue(str(path), problem, "write well-formed YAML or JSON") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise StateError(str(path), why, "name a file that can be read") from error
