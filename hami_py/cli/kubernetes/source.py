"""The cluster that a command reads: from an API server, or from a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hami_py.cli.kubernetes.common import connect
from hami_py.errors import InvalidValue

if TYPE_CHECKING:
    from hami_py.model.pods import PodSettings
    from hami_py.scheduler.view import ClusterView

__all__ = ["read_view", "snapshot_option"]

snapshot_option = click.option(
    "--snapshot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read this file, written by `hami snapshot`, instead of a cluster.",
)


def read_view(
    snapshot: Path | None, kubeconfig: Path | None, context: str | None, settings: PodSettings
) -> ClusterView:
    """The cluster now, or at the time of a snapshot.

    Raises:
        InvalidValue: the file is not a snapshot.
        StateError: a file cannot be read.
    """
    if snapshot is None:
        server = connect(kubeconfig, context)
        from hami_py.scheduler.view import ClusterView  # noqa: PLC0415

        return ClusterView.read(server, settings)
    from hami_py.kube.documents import read_file  # noqa: PLC0415
    from hami_py.scheduler.view import ClusterView  # noqa: PLC0415

    try:
        return ClusterView.restore(read_file(snapshot), settings)
    except InvalidValue as error:
        fix = f"{error.fix}; name a file that `hami snapshot` wrote"
        raise InvalidValue(f"{snapshot}: {error.field}", error.value, fix) from None
