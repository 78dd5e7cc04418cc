"""The plots of docs/results: share over time against what was set, and error by share and workload.

The same data give the same bytes, so that a plot changes in the repository only with its numbers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.loads import Scenario
from bench.results import Row
from bench.tracks import Track, steps

mpl.use("svg")
mpl.rcParams.update(
    {
        # Without a fixed salt, every identifier in the file would be different each time.
        "svg.hashsalt": "hami-py",
        # Text stays text: the file is small, and its changes can be read.
        "svg.fonttype": "none",
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)

#: Seconds of each window in a plot over time, and how many seconds are shown.
WINDOW, SHOWN = 0.25, 10.0

#: Points from which on an error is drawn in the strongest colour.
STRONGEST = 2.0


def errors(rows: Sequence[Row], target: Path) -> None:
    """The error of every solo run, by workload and share."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        kind, *rest = row.name.split("/")
        if kind == "share_error" and rest[1] == "1":
            found.setdefault(rest[0], {})[int(rest[2])] = row.value
    caps = sorted({cap for each in found.values() for cap in each})
    values = [[each.get(cap, float("nan")) for cap in caps] for each in found.values()]
    figure = Figure(figsize=(1.6 + 0.6 * len(caps), 0.8 + 0.3 * len(found)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap="Reds", vmin=0, vmax=STRONGEST, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            colour = "white" if value > STRONGEST / 2 else "black"
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(caps)), [f"{cap} %" for cap in caps])
    axes.set_yticks(range(len(found)), list(found))
    axes.set_title("Error of the share, points, by workload and share")
    _save(figure, target)


def over_time(tracks: Mapping[str, Sequence[Track]], target: Path) -> None:
    """Every solo run's share in short windows, a panel for each workload, a line for each share."""
    panels: dict[str, dict[int, Track]] = {}
    for name, (track, *others) in tracks.items():
        workload, containers, cap = name.split("/")
        if containers == "1" and not others:
            panels.setdefault(workload, {})[int(cap)] = track
    figure, places = _grid(len(panels))
    for axes, (workload, by_cap) in zip(places, panels.items(), strict=False):
        for number, (cap, track) in enumerate(sorted(by_cap.items())):
            _line(axes, track, cap, f"C{number}")
        axes.set_title(workload)
    _save(figure, target)


def in_company(
    scenarios: Sequence[Scenario], tracks: Mapping[str, Sequence[Track]], target: Path
) -> None:
    """The part of the card that each slice had over time, one panel for each scenario."""
    figure, places = _grid(len(scenarios))
    for axes, scenario in zip(places, scenarios, strict=False):
        pairs = zip(scenario.members, tracks[scenario.name], strict=True)
        for number, (member, track) in enumerate(pairs):
            _line(axes, track, member.expected, f"C{number}")
        # All of one workload; its name would not fit beside the others'.
        axes.set_title(scenario.name.partition("/")[2])
    _save(figure, target)


#: The programs with pauses that are drawn, with the figure of each.
_WITH_PAUSES = {
    "server-10x1ms": ("p95", "a server's answers, 95th percentile"),
    "decode-30x50us+1ms": ("p50", "a decode's steps, median"),
}

#: How the card is shared, with the words of the picture.
_WAYS = {
    "bare": "without hami-py",
    "50+50-soft": "soft shares of 50 % and 50 %",
    "50+50-hard": "hard shares of 50 % and 50 %",
}

_TRAINERS = {"500us": "0.5 ms", "5ms": "5 ms", "20ms": "20 ms"}


def beside_a_trainer(rows: Sequence[Row], target: Path) -> None:
    """How long programs with pauses take beside a trainer, by its kernels and the way of sharing.

    A bar that was not measured is missing; the dotted line is the program alone.
    """
    values = {row.name: row.value for row in rows}
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    for axes, (program, (kind, title)) in zip(
        figure.subplots(1, len(_WITH_PAUSES)), _WITH_PAUSES.items(), strict=True
    ):
        for number, (way, words) in enumerate(_WAYS.items()):
            for place, kernels in enumerate(_TRAINERS):
                value = values.get(f"{kind}/{program}+async-{kernels}/2/{way}")
                if value is None:
                    continue
                at = place + (number - 1) * 0.28
                axes.bar(at, value, 0.26, color=f"C{number}", label=words if not place else None)
                axes.text(at, value, f"{value:.1f}", ha="center", va="bottom", fontsize=6.5)
        alone = values[f"{kind}/{program}/1/bare"]
        axes.axhline(alone, color="black", linewidth=0.8, linestyle=":", label="alone")
        axes.set_xticks(range(len(_TRAINERS)), list(_TRAINERS.values()))
        axes.set(title=title, xlabel="kernels of the trainer", ylabel="ms")
    handles = {}
    for axes in figure.axes:
        for handle, words in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(words, handle)
    ordered = [words for words in (*_WAYS.values(), "alone") if words in handles]
    figure.legend(
        [handles[words] for words in ordered],
        ordered,
        loc="outside lower center",
        ncols=len(ordered),
        frameon=False,
    )
    _save(figure, target)


def _grid(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(4, count)
    lines = -(-count // columns)
    figure = Figure(figsize=(2.4 * columns, 1.7 * lines), layout="constrained")
    places = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
    for place, axes in enumerate(places):
        axes.set(xlim=(0, SHOWN), ylim=(0, 105))
        axes.set_visible(place < count)
    figure.supxlabel(f"seconds; windows of {WINDOW:g} s")
    figure.supylabel("percent of the card's time")
    return figure, places


def _line(axes: Axes, track: Track, wanted: float | None, colour: str) -> None:
    points = [(x, y) for x, y in steps(track, WINDOW) if x <= SHOWN]
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=0.9)
    if wanted is not None:
        axes.axhline(wanted, color=colour, linewidth=0.6, linestyle=":")


def _save(figure: Figure, target: Path) -> None:
    # Without date and version of the tool.
    figure.savefig(target, metadata={"Date": None, "Creator": None})
