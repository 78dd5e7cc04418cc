"""``hami set``: change the limits of a slice, or of a pod."""

from pathlib import Path

import click

from hami_py import config
from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.options import limit_options
from hami_py.cli.output import report
from hami_py.model import parse_options
from hami_py.slices import resize_named


@click.command("set")
@click.argument("name", metavar="NAME|ID", required=False)
@click.option(
    "--pod",
    metavar="NAMESPACE/NAME[/CONTAINER]",
    help="Change the limits of a running pod instead, on Kubernetes: of this container, or of all"
    " that have cards.",
)
@limit_options
@api_server_options
def set_(
    *,
    name: str | None,
    pod: str | None,
    kubeconfig: Path | None,
    context: str | None,
    gpumem: tuple[str, ...],
    gpucores: tuple[str, ...],
    mode: str | None,
    priority: str | None,
) -> None:
    """Change the limits of a slice while its programs run.

    Limits that are not named stay. The start of an id is enough if it is unique. If the memory
    limit falls below the usage, programs keep their memory, and new memory is refused until enough
    has been released.

    With --pod, the node agent of the pod's node decides whether the limits fit. The command waits
    for its decision, half a minute at most. `--gpucores none` is then the whole time of the card,
    and the cards, the priority and the share mode stay.
    """
    if (name is None) == (pod is None):
        raise click.UsageError("Give either a slice or --pod.")
    request = parse_options(gpumem, gpucores, mode, priority)
    if request.is_empty:
        raise click.UsageError("Give at least one of --gpumem, --gpucores, --mode and --priority.")
    if name is not None:
        for note in resize_named(config.read(), name, request):
            report(note)
        return
    if mode is not None or priority is not None:
        raise click.UsageError("--mode and --priority of a pod cannot change.")
    from hami_py.cli.kubernetes.resize import resize_pod  # noqa: PLC0415

    resize_pod(connect(kubeconfig, context), pod or "", request)
