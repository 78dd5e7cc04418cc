"""The columns of all views of use, in one table.

``SLICES`` has a row for each fact about a slice on a card, and ``CARDS`` for each fact about a
card. The commands, the web page, their JSON and Prometheus read them, so a new column or metric is
one row here. A column is in each view for which it has a heading, in the order of the table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from hami_py.model.limits import regime
from hami_py.model.usage import SliceCard, SliceUse

R = TypeVar("R")

Unit: TypeAlias = Literal["text", "bytes", "seconds", "time", "part", "number"]
"""How a value is written. ``time``: seconds since 1970. ``part``: of a card's time or memory, 0 to
1. ``text`` is aligned to the left, all others to the right where a view aligns them."""

View: TypeAlias = Literal["pods", "cards", "top", "ps", "page", "machine"]
"""``pods``: ``hami top pod``. ``cards``: ``hami inspect -o wide``. ``top``: ``hami top``. ``ps``:
``hami ps``. ``page``: the web page of a cluster. ``machine``: that of one machine."""

Value: TypeAlias = str | float | None


@dataclass(frozen=True)
class Column(Generic[R]):
    """One fact, and how it is shown.

    Attributes:
        key: its name, as in JSON.
        unit: how it is written.
        help: what it means, in one sentence.
        value: reads it from a row; None = unknown, or there is none.
        heads: its heading in each view that has it.
        sort: by view, the name of the order by this column, the largest first.
        metric: its name in Prometheus; None = it is no metric.
        is_counter: it is a counter there, and not a gauge.
        is_field: it is in the JSON of a row.
        of_slice: it is the same for all cards of a slice.
        rank: when a narrow terminal leaves it out, the lowest first; 0 = never.
    """

    key: str
    unit: Unit
    help: str
    value: Callable[[R], Value]
    heads: Mapping[View, str] = field(default_factory=dict)
    sort: Mapping[View, str] = field(default_factory=dict)
    metric: str | None = None
    is_counter: bool = False
    is_field: bool = True
    of_slice: bool = False
    rank: int = 0


def _used(read: Callable[[SliceCard], Value]) -> Callable[[SliceUse], Value]:
    """Reads a figure that is unknown while the use is."""
    return lambda row: read(row.use) if row.is_known else None


def _part(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


def _soft(row: SliceUse) -> bool | None:
    has_started = row.is_known and row.processes is not None
    return row.use.mode == "soft" if has_started and row.use.share is not None else None


SLICES: tuple[Column[SliceUse], ...] = (
    Column(
        "namespace",
        "text",
        "The pod's namespace.",
        lambda row: row.namespace,
        {"pods": "NAMESPACE"},
    ),
    Column(
        "pod",
        "text",
        "The name of the pod or the slice.",
        lambda row: row.pod,
        {"pods": "NAME", "ps": "NAME", "top": "NAME", "page": "Container", "machine": "Slice"},
        of_slice=True,
    ),
    Column(
        "id",
        "text",
        "The slice's id.",
        lambda row: row.id,
        {"ps": "ID"},
        is_field=False,
        of_slice=True,
        rank=4,
    ),
    Column(
        "container",
        "text",
        "The container's name.",
        lambda row: row.container,
        {"pods": "CONTAINER"},
    ),
    Column("node", "text", "The node's name.", lambda row: row.node or None, {"pods": "NODE"}),
    Column("card", "text", "The card's UUID.", lambda row: row.use.uuid),
    Column(
        "index",
        "number",
        "The card's index.",
        lambda row: row.use.index,
        {"pods": "GPU", "ps": "CARD", "top": "CARD"},
    ),
    Column(
        "memory_used",
        "bytes",
        "What its processes hold, with the driver's own memory.",
        _used(lambda use: use.memory_used),
        {
            "pods": "USED(GiB)",
            "ps": "USED",
            "top": "USED/LIMIT",
            "page": "Memory",
            "machine": "Memory",
        },
        {"pods": "used", "top": "memory"},
        "hami_container_memory_used_bytes",
    ),
    Column(
        "driver_memory",
        "bytes",
        "The part of the used memory that the driver has taken for itself.",
        _used(lambda use: use.driver_memory),
        {"ps": "DRIVER"},
        metric="hami_container_memory_driver_bytes",
        rank=3,
    ),
    Column(
        "memory_limit",
        "bytes",
        "Memory limit; without a limit there is no series.",
        lambda row: row.use.memory_limit,
        {"pods": "LIMIT(GiB)", "ps": "LIMIT"},
        {"pods": "limit"},
        "hami_container_memory_limit_bytes",
    ),
    Column(
        "memory_part",
        "part",
        "The part of its memory limit that it uses.",
        _used(lambda use: use.memory_used / use.memory_limit if use.memory_limit else None),
        {"top": "MEMORY"},
        is_field=False,
        rank=2,
    ),
    Column(
        "memory_peak",
        "bytes",
        "Largest use since it first started.",
        _used(lambda use: use.memory_peak),
        {"pods": "PEAK(GiB)", "page": "Peak", "machine": "Peak"},
        {"pods": "peak"},
        "hami_container_memory_peak_bytes",
    ),
    Column(
        "regime",
        "text",
        "Its share, how the share is enforced, and its priority.",
        lambda row: regime(row.use.share, row.use.mode, row.use.priority),
        {"ps": "SHARE", "top": "SHARE"},
        is_field=False,
        rank=13,
    ),
    Column(
        "share_used",
        "part",
        "The part of the card's time that it has used in the last second or two.",
        lambda row: row.share_used,
        {"pods": "SHARE%", "top": "GPU TIME", "page": "GPU time", "machine": "GPU time"},
        {"pods": "share", "top": "GPU time"},
        rank=12,
    ),
    Column(
        "share_limit",
        "part",
        "Part of the card's time that it may use; without a limit there is no series.",
        lambda row: _part(row.use.share),
        {"pods": "SHARE LIMIT%"},
        {"pods": "share-limit"},
        "hami_container_share_limit_ratio",
    ),
    Column(
        "share_soft",
        "number",
        "1 if its share is soft: it also gets idle time. 0 if it is hard. No series without a "
        "share.",
        _soft,
        metric="hami_container_share_soft",
        is_field=False,
    ),
    Column(
        "engine_time",
        "seconds",
        "Engine time of its processes.",
        _used(lambda use: use.engine_time),
        {"ps": "GPU TIME"},
        metric="hami_container_engine_seconds",
        is_counter=True,
        rank=10,
    ),
    Column(
        "history",
        "part",
        "The used part of the card's time, and of the memory, until now.",
        lambda _: None,
        {"top": "LAST MINUTE", "page": "Last hour", "machine": "Last hour"},
        is_field=False,
        rank=1,
    ),
    Column(
        "throttled",
        "seconds",
        "Time for which its threads waited to launch.",
        _used(lambda use: use.throttled),
        {"pods": "THROTTLED", "top": "THROTTLED", "page": "Throttled", "machine": "Throttled"},
        {"pods": "throttled", "top": "throttled"},
        "hami_container_throttled_seconds",
        is_counter=True,
        rank=7,
    ),
    Column(
        "refusals",
        "number",
        "Allocations that were refused because of the limit.",
        _used(lambda use: use.refusals),
        {"pods": "REFUSALS", "top": "REFUSED", "page": "Refused", "machine": "Refused"},
        {"pods": "refusals", "top": "refusals"},
        "hami_container_refusals",
        is_counter=True,
        rank=8,
    ),
    Column(
        "last_used",
        "time",
        "When its living processes last worked on the card; measured while a share is in force on "
        "the card.",
        _used(lambda use: use.last_used),
        {
            **{"pods": "LAST USED", "ps": "LAST USED", "top": "LAST USED"},
            **{"page": "Last used", "machine": "Last used"},
        },
        {"pods": "last-used"},
        "hami_container_last_used_timestamp_seconds",
        rank=5,
    ),
    Column(
        "processes",
        "number",
        "Its processes that use the library.",
        lambda row: row.processes,
        {"ps": "PROCESSES", "top": "PROCESSES"},
        metric="hami_container_processes",
        of_slice=True,
        rank=9,
    ),
    Column(
        "level", "text", "How its limits are enforced.", lambda row: row.level, {"pods": "LEVEL"}
    ),
    Column(
        "state",
        "text",
        "Whether processes hold the slice.",
        lambda row: row.state,
        {"ps": "STATE"},
        is_field=False,
        of_slice=True,
    ),
    Column(
        "user",
        "text",
        "Who runs its programs.",
        lambda row: row.user,
        {"ps": "USER", "top": "USER", "machine": "User"},
        of_slice=True,
        rank=6,
    ),
    Column(
        "command",
        "text",
        "Its command line.",
        lambda row: row.command or None,
        {"ps": "COMMAND", "top": "COMMAND"},
        of_slice=True,
        rank=11,
    ),
)

BY_KEY = {column.key: column for column in SLICES}


def _of_card(
    key: str, unit: Unit, text: str, head: str | None = None, metric: str | None = None
) -> Column[Any]:
    """A column whose value is the attribute of its name."""
    heads: Mapping[View, str] = {"cards": head} if head else {}
    return Column(key, unit, text, attrgetter(key), heads, metric=metric)


CARDS: tuple[Column[Any], ...] = (
    _of_card("index", "number", "The card's index.", "GPU"),
    _of_card("uuid", "text", "The card's UUID.", "UUID"),
    _of_card("model", "text", "The card's model.", "MODEL"),
    _of_card("state", "text", "Whether new pods may get the card.", "STATE"),
    _of_card(
        "memory_used",
        "bytes",
        "Memory of the card that is in use, by NVML.",
        "USED(GiB)",
        "hami_card_memory_used_bytes",
    ),
    _of_card(
        "memory_allocated",
        "bytes",
        "Memory of the card that is allocated to containers.",
        "ALLOCATED(GiB)",
        "hami_card_memory_allocated_bytes",
    ),
    _of_card("memory", "bytes", "Memory of the card.", "TOTAL(GiB)", "hami_card_memory_bytes"),
    _of_card("share_used", "part", "The used part of its time.", "SHARE%"),
    _of_card(
        "share_allocated",
        "part",
        "Allocated part of its time.",
        "SHARE ALLOCATED%",
        "hami_card_share_allocated_ratio",
    ),
    _of_card("containers", "number", "How many containers have part of it.", "CONTAINERS"),
    _of_card(
        "foreign",
        "bytes",
        "Memory that no limit covers.",
        metric="hami_card_foreign_memory_bytes",
    ),
    _of_card("healthy", "number", "1 if new pods may get the card.", metric="hami_card_healthy"),
)
"""A row is of two types: what the cluster knows of a card, and what its node agent knows."""


def columns(view: View) -> list[Column[SliceUse]]:
    """The columns of a view of slices."""
    return [column for column in SLICES if view in column.heads]


def orders(view: View) -> dict[str, Column[SliceUse]]:
    """The columns that a view can be sorted by, by the name of the order."""
    return {column.sort[view]: column for column in SLICES if view in column.sort}


def least_wanted(shown: Iterable[Column[Any]]) -> list[str]:
    """The keys of the columns that a narrow terminal leaves out, the first one first."""
    ranked = sorted((column.rank, column.key) for column in shown if column.rank)
    return [key for _, key in ranked]


def record(row: SliceUse) -> dict[str, Value]:
    """A row as the JSON of ``hami top pod`` and of the web page."""
    return {column.key: column.value(row) for column in SLICES if column.is_field}
