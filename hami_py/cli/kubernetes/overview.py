"""``hami inspect``, ``hami top node``, ``hami top pod`` and ``hami quota``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from hami_py.cli.kubernetes.common import api_server_options, connect
from hami_py.cli.kubernetes.settings import read_settings, settings_option
from hami_py.cli.options import Seconds
from hami_py.cli.output import report
from hami_py.model import check_object_name
from hami_py.model.columns import CARDS, orders, record

if TYPE_CHECKING:
    from hami_py.overview import Overview, Reader

_FORMATS = ("json", "yaml", "wide")
Format = Literal["json", "yaml", "wide"]

_POD_ORDERS = ("name", *orders("pods"))
_NODE_ORDERS = ("name", *orders("nodes", CARDS))


@dataclass(frozen=True)
class _Asked:
    """The options that all these commands have."""

    namespace: str | None
    all_namespaces: bool
    output: Format | None
    watch: float | None
    system_namespace: str
    settings_file: Path | None
    kubeconfig: Path | None
    context: str | None

    def reader(self, *, of_all: bool) -> Reader:
        """The reader of the cluster; ``of_all``: without -n, it shows all namespaces."""
        if self.namespace is not None:
            if self.all_namespaces:
                raise click.UsageError("Give either --namespace or --all-namespaces.")
            check_object_name("--namespace", self.namespace)
        check_object_name("--system-namespace", self.system_namespace)
        settings = read_settings(self.settings_file)
        server = connect(self.kubeconfig, self.context)
        from hami_py.overview import Reader, Scope  # noqa: PLC0415

        shown = self.namespace or (None if of_all or self.all_namespaces else server.namespace)
        return Reader(server, Scope(shown, server.namespace, self.system_namespace), settings)

    def show(
        self,
        reader: Reader,
        lines: Callable[[Overview], Iterable[str]],
        answer: Callable[[Overview], object],
    ) -> None:
        """Write the answer once, or again and again."""
        if self.watch is None:
            overview = reader.read()
            click.echo(self._text(overview, lines, answer))
            _report_notes(overview)
            return
        with ExitStack() as ends, suppress(KeyboardInterrupt):
            ends.enter_context(reader.following())
            if self.output in (None, "wide") and sys.stdout.isatty():
                # Imported here, because rich takes longer to import than the rest of `hami`.
                from hami_py.cli.live import watch_text  # noqa: PLC0415

                watch_text(lambda: self._text(reader.read(), lines, answer), self.watch)
                return
            _report_notes(reader.read())
            while True:
                click.echo(self._text(reader.read(), lines, answer))
                if self.output is None:
                    click.echo()
                sys.stdout.flush()
                # The interval that the user has set.
                time.sleep(self.watch)

    def _text(
        self,
        overview: Overview,
        lines: Callable[[Overview], Iterable[str]],
        answer: Callable[[Overview], object],
    ) -> str:
        if self.output == "json":
            import msgspec  # noqa: PLC0415

            encoded = msgspec.json.encode(answer(overview))
            # With --watch each reading is one line, so that a program can separate them.
            return (encoded if self.watch else msgspec.json.format(encoded)).decode()
        if self.output == "yaml":
            import msgspec  # noqa: PLC0415
            import yaml  # noqa: PLC0415

            plain = msgspec.to_builtins(answer(overview))
            return "---\n" * bool(self.watch) + yaml.safe_dump(plain, sort_keys=False).rstrip()
        return "\n".join(lines(overview))


def _report_notes(overview: Overview) -> None:
    for note in overview.notes:
        report(note)


def _cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Kubectl's options; the command gets them as one argument."""

    @click.option("--namespace", "-n", help="Show the pods of this namespace.")
    @click.option("--all-namespaces", "-A", is_flag=True, help="Show the pods of all of them.")
    @click.option(
        "--output", "-o", type=click.Choice(_FORMATS), help="Another format than the table."
    )
    @click.option(
        "--watch",
        "-w",
        type=Seconds(0.5),
        is_flag=False,
        flag_value=2.0,
        metavar="[SECONDS]",
        help="Repeat every SECONDS (default: 2) until Ctrl-C.",
    )
    @click.option(
        "--system-namespace",
        default="hami-system",
        show_default=True,
        help="The namespace of hami-py's own parts.",
    )
    @settings_option
    @api_server_options
    def asking(**options: Any) -> None:  # noqa: ANN401
        asked = {field.name: options.pop(field.name) for field in fields(_Asked)}
        command(_Asked(**asked), **options)

    asking.__doc__, asking.__name__ = command.__doc__, command.__name__
    return asking


@click.command()
@click.option("--details", "-d", is_flag=True, help="Show the pods of each node.")
@_cluster_options
def inspect(asked: _Asked, *, details: bool) -> None:
    """Show for each node what its cards have, what is allocated, and what is used, in GiB.

    USED is by NVML. CORES% is the allocated part of the time of each card. Pods that wait for a
    card are listed with their main reason; `hami explain pod` has all of them.
    """
    reader = asked.reader(of_all=True)
    from hami_py.cli.kubernetes.overview_tables import inspect_lines  # noqa: PLC0415

    wide = asked.output == "wide"
    asked.show(
        reader,
        lambda overview: inspect_lines(overview, details=details, wide=wide),
        lambda overview: overview.as_json(),
    )


@click.command("node", short_help="Show what the cards of each node do.")
@click.option(
    "--sort-by",
    type=click.Choice(_NODE_ORDERS),
    default="name",
    show_default=True,
    help="The order; the largest is first.",
)
@_cluster_options
def top_node(asked: _Asked, *, sort_by: str) -> None:
    """Show for each node the sums over its cards: memory in GiB, and percent of one card's time."""
    reader = asked.reader(of_all=True)
    from hami_py.cli.kubernetes.overview_tables import node_lines  # noqa: PLC0415

    asked.show(
        reader,
        lambda overview: node_lines(overview.nodes, sort_by),
        lambda overview: {"nodes": overview.nodes, "notes": overview.notes},
    )


@click.command("pod", short_help="Show what pods use of their cards.")
@click.option(
    "--sort-by",
    type=click.Choice(_POD_ORDERS),
    default="name",
    show_default=True,
    help="The order; the largest is first.",
)
@_cluster_options
def top_pod(asked: _Asked, *, sort_by: str) -> None:
    """Show for each container and card its memory in GiB, and its percent of the card's time.

    GPU TIME% is the part of the time that it has used in the last second or two. THROTTLED is how
    long its threads have waited to launch, and REFUSALS counts refused allocations. LAST USED is
    how long ago its programs worked on the card: `-` if no program has since it started, or if it
    has no share.
    """
    reader = asked.reader(of_all=False)
    from hami_py.cli.kubernetes.overview_tables import pod_lines  # noqa: PLC0415

    asked.show(
        reader,
        lambda overview: pod_lines(overview.containers, sort_by),
        lambda overview: {
            "containers": [record(each) for each in overview.containers],
            "notes": overview.notes,
        },
    )


@click.command()
@_cluster_options
def quota(asked: _Asked) -> None:
    """Show for each namespace what its pods have, and the limits of its quotas.

    Memory is in GiB, summed over cards. WASTE is the memory that its containers have never used:
    MEMORY less PEAK.
    """
    reader = asked.reader(of_all=True)
    from hami_py.cli.kubernetes.overview_tables import namespace_lines  # noqa: PLC0415

    asked.show(
        reader,
        lambda overview: namespace_lines(overview.namespaces),
        lambda overview: {"namespaces": overview.namespaces, "notes": overview.notes},
    )


@click.group("top", commands=[top_node, top_pod])
def kubectl_top() -> None:
    """Show what the nodes and pods of a cluster use of their cards."""
