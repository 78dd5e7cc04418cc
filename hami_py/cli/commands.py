"""The commands, by the titles under which ``--help`` lists them."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click


class Entry(NamedTuple):
    """A command: its name, where it is in ``hami_py.cli``, and its line in the list."""

    name: str
    place: str
    help: str


class Commands(click.Group):
    """A group that imports a command when it runs, so that others start without it."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        titles: Mapping[str, Sequence[Entry]],
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **kwargs)
        self._titles = titles
        self._entries = {each.name: each for entries in titles.values() for each in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted({*self._entries, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, which is imported."""
        if cmd_name in self._entries and cmd_name not in self.commands:
            module, _, name = self._entries[cmd_name].place.partition(":")
            self.add_command(getattr(import_module(f"hami_py.cli.{module}"), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by title; nothing is imported for it."""
        others = [
            Entry(name, "", command.get_short_help_str())
            for name, command in self.commands.items()
            if name not in self._entries
        ]
        widest = max(map(len, self.list_commands(ctx)))
        for title, entries in {**self._titles, "Help": others}.items():
            if entries:
                with formatter.section(title):
                    formatter.write_dl([(each.name.ljust(widest), each.help) for each in entries])


_SET = Entry("set", "set:set_", "Change the limits of a slice or pod.")

_CLUSTER = (
    Entry(
        "inspect",
        "kubernetes.overview:inspect",
        "Show all nodes, their cards, and the pods that wait.",
    ),
    Entry("quota", "kubernetes.overview:quota", "Show what each namespace has of its quotas."),
    Entry("cost", "kubernetes.cost:cost", "Show what parts of cards have cost in a month."),
    Entry("explain", "kubernetes.queries:explain", "Explain where a pod fits."),
    Entry("what-if", "kubernetes.queries:what_if", "Show where pods would be placed."),
    Entry(
        "snapshot",
        "kubernetes.queries:snapshot",
        "Save nodes, cards, quotas and what pods have.",
    ),
    Entry(
        "replay", "kubernetes.queries:replay", "Place pods on a snapshot, as the scheduler would."
    ),
    Entry("cordon", "kubernetes.cordoning:cordon", "Give cards of a node to no new pods."),
    Entry("uncordon", "kubernetes.cordoning:uncordon", "Give cards of a node to new pods again."),
)

#: The commands of ``hami``.
HAMI = {
    "Programs": (
        Entry("run", "run:run", "Run a program with limits on GPU memory and time."),
        Entry("ps", "ps:ps", "List your slices, their limits and usage."),
        _SET,
        Entry("rm", "rm:rm", "Remove unused slices."),
        Entry("jupyter", "jupyter:jupyter", "Manage Jupyter kernels with limits."),
    ),
    "Machine": (
        Entry("top", "top:top", "Watch cards and slices; or nodes and pods."),
        Entry("view", "view:view", "Serve a web page of what the cards do."),
        Entry(
            "devices",
            "devices:devices",
            "List the cards of this machine, and whose programs use them.",
        ),
        Entry(
            "doctor",
            "doctor:doctor",
            "Check whether limits hold on this machine or for a program.",
        ),
        Entry("cdi", "cdi:cdi", "List your kept slices as devices for containers."),
        Entry("account", "account:account", "Show who has used how much of a shared machine."),
        Entry("machine", "machine:machine", "Share the cards between the users of this machine."),
    ),
    "Kubernetes": (
        *_CLUSTER,
        Entry("node", "kubernetes.node:node", "Run the node agent."),
        Entry("scheduler", "kubernetes.scheduler:scheduler", "Run the scheduler extender."),
        Entry("webhook", "kubernetes.webhook:webhook", "Run the admission webhook."),
    ),
}

#: The commands of ``hami top``.
TOP = {
    "Commands": (
        Entry("node", "kubernetes.overview:top_node", "Show what the cards of each node do."),
        Entry("pod", "kubernetes.overview:top_pod", "Show what pods use of their cards."),
    )
}

#: The commands of ``kubectl hami``, all about a cluster.
KUBECTL = {
    "Commands": (
        *_CLUSTER,
        Entry("top", "kubernetes.overview:kubectl_top", "Show what nodes and pods use."),
        _SET,
    )
}
