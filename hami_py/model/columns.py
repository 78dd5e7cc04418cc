"""The columns of all views of use, in one table.

``SLICES`` has a row for each fact about a slice on a card, and ``CARDS`` for each fact about a
card. The commands, the web page, their JSON and Prometheus read them, so a new column or metric is
one row here. A column is in each view for which it has a heading, in the order of the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from hami_py.model.usage import SliceUse

Unit: TypeAlias = Literal["text", "bytes", "seconds", "time", "part", "number"]
"""How a value is written. ``time``: seconds since 1970. ``part``: of a card's time or memory, 0 to
1. ``text`` is aligned to the left, all others to the right where a view aligns them."""

View: TypeAlias = Literal["pods", "nodes", "cards", "top", "ps", "page", "machine"]
"""``pods``, ``nodes``: ``hami top pod`` and ``hami top node``. ``cards``: ``hami inspect -o wide``.
``top``: ``hami top``. ``ps``: ``hami ps``. ``page``: the web page of a cluster. ``machine``: the
page of one machine."""

Value: TypeAlias = str | float | None


@dataclass(frozen=True)
class Column:
    """One fact, and how it is shown.

    Attributes:
        key: its name, as in JSON.
        unit: how it is written.
        help: what it means.
        path: the attributes from a row to the value; empty: ``key``.
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
    path: str = ""
    heads: Mapping[View, str] = field(default_factory=dict)
    sort: Mapping[View, str] = field(default_factory=dict)
    metric: str | None = None
    is_counter: bool = False
    is_field: bool = True
    of_slice: bool = False
    rank: int = 0

    def value(self, row: object) -> Value:
        """The value in a row; None = unknown, or there is none."""
        for name in (self.path or self.key).split("."):
            row = None if row is None else getattr(row, name)
        return cast(Value, row)


def _page(head: str, machine: str | None = None) -> Mapping[View, str]:
    return {"page": head, "machine": machine or head}


def _sum(head: str) -> Mapping[View, str]:
    return {"cards": head, "nodes": head}


# fmt: off
SLICES = (
    Column("namespace", "text", "The pod's namespace.", heads={"pods": "NAMESPACE"}),
    Column("pod", "text", "The name of the pod or the slice.", of_slice=True,
           heads={"pods": "NAME", "ps": "NAME", "top": "NAME", **_page("Container", "Slice")}),
    Column("id", "text", "The slice's id.", heads={"ps": "ID"},
           is_field=False, of_slice=True, rank=4),
    Column("container", "text", "The container's name.", heads={"pods": "CONTAINER"}),
    Column("node", "text", "The node's name.", heads={"pods": "NODE"}),
    Column("card", "text", "The card's UUID.", "use.uuid"),
    Column("index", "number", "The card's index.", "use.index",
           {"pods": "GPU", "ps": "CARD", "top": "CARD"}),
    Column("memory_used", "bytes", "What its processes hold, with the driver's own memory.",
           "used.memory_used",
           {"pods": "USED(GiB)", "ps": "USED", "top": "USED/LIMIT", **_page("Memory")},
           {"pods": "used", "top": "memory"}, "hami_container_memory_used_bytes"),
    Column("driver_memory", "bytes",
           "The part of the used memory that the driver has taken for itself.",
           "used.driver_memory", {"ps": "DRIVER"}, rank=3,
           metric="hami_container_memory_driver_bytes"),
    Column("memory_limit", "bytes", "Memory limit; without a limit there is no series.",
           "use.memory_limit", {"pods": "LIMIT(GiB)", "ps": "LIMIT"}, {"pods": "limit"},
           "hami_container_memory_limit_bytes"),
    Column("memory_part", "part", "The part of its memory limit that it uses.",
           heads={"top": "MEMORY"}, is_field=False, rank=2),
    Column("memory_peak", "bytes", "Largest use since it first started.", "used.memory_peak",
           {"pods": "PEAK(GiB)", **_page("Peak")}, {"pods": "peak"},
           "hami_container_memory_peak_bytes"),
    Column("regime", "text", "Its share, how the share is enforced, and its priority.",
           heads={"ps": "SHARE", "top": "SHARE"}, is_field=False),
    Column("share_used", "part",
           "The part of the card's time that it has used in the last second or two.",
           heads={"pods": "GPU TIME%", "top": "GPU TIME", **_page("GPU time")},
           sort={"pods": "share", "top": "GPU time"}, rank=12),
    Column("share_limit", "part",
           "Part of the card's time that it may use; without a limit there is no series.",
           heads={"pods": "SHARE LIMIT%"}, sort={"pods": "share-limit"},
           metric="hami_container_share_limit_ratio"),
    Column("share_soft", "number", "1 if its share is soft: it also gets idle time. 0 if it is "
           "hard. No series without a share.",
           metric="hami_container_share_soft", is_field=False),
    Column("card_allocated", "part", "Allocated part of the card: the larger one of its "
           "parts of the memory and of the time, enforced or not.",
           metric="hami_container_card_allocated_ratio", is_field=False),
    Column("engine_time", "seconds", "Engine time of its processes.", "used.engine_time",
           {"ps": "GPU TIME"}, {}, "hami_container_engine_seconds", is_counter=True, rank=10),
    Column("history", "part", "The used part of the card's time, and of the memory, until now.",
           "", {"top": "LAST MINUTE", **_page("Last hour")}, is_field=False, rank=1),
    Column("throttled", "seconds", "Time for which its threads waited to launch.",
           "used.throttled", {"pods": "THROTTLED", "top": "THROTTLED", **_page("Throttled")},
           {"pods": "throttled", "top": "throttled"}, "hami_container_throttled_seconds",
           is_counter=True, rank=7),
    Column("refusals", "number", "Allocations that were refused because of the limit.",
           "used.refusals", {"pods": "REFUSALS", "top": "REFUSED", **_page("Refused")},
           {"pods": "refusals", "top": "refusals"}, "hami_container_refusals",
           is_counter=True, rank=8),
    Column("last_used", "time", "When its living processes last worked on the card; without a "
           "share there is no series.", "used.last_used",
           {"pods": "LAST USED", "ps": "LAST USED", "top": "LAST USED", **_page("Last used")},
           {"pods": "last-used"}, "hami_container_last_used_timestamp_seconds", rank=5),
    Column("processes", "number", "Its processes that use the library.",
           heads={"ps": "PROCESSES", "top": "PROCESSES"},
           metric="hami_container_processes", of_slice=True, rank=9),
    Column("level", "text", "What enforces its memory limit.",
           heads={"pods": "LEVEL", "page": "Level"}),
    Column("time_level", "text", "What enforces its limit on time.", heads={"pods": "TIME LEVEL"}),
    Column("enforcement", "text", "Both levels, and why nothing stronger enforces its limits."),
    Column("state", "text", "Whether processes hold the slice.", heads={"ps": "STATE"},
           is_field=False, of_slice=True),
    Column("user", "text", "Who runs its programs.", of_slice=True, rank=6,
           heads={"ps": "USER", "top": "USER", "machine": "User"}),
    Column("command", "text", "Its command line.", of_slice=True, rank=11,
           heads={"ps": "COMMAND", "top": "COMMAND"}),
)

CARDS = (
    Column("index", "number", "The card's index.", heads={"cards": "GPU"}),
    Column("uuid", "text", "The card's UUID.", heads={"cards": "UUID"}),
    Column("model", "text", "The card's model.", heads={"cards": "MODEL"}),
    Column("state", "text", "Whether new pods may get the card.", heads={"cards": "STATE"}),
    Column("memory_used", "bytes", "Memory of the card that is in use, by NVML.",
           heads=_sum("USED(GiB)"), sort={"nodes": "used"}, metric="hami_card_memory_used_bytes"),
    Column("memory_allocated", "bytes", "Memory of the card that is allocated to containers.",
           heads=_sum("ALLOCATED(GiB)"), sort={"nodes": "allocated"},
           metric="hami_card_memory_allocated_bytes"),
    Column("memory", "bytes", "Memory of the card.",
           heads=_sum("TOTAL(GiB)"), sort={"nodes": "total"}, metric="hami_card_memory_bytes"),
    Column("share_used", "part", "The used part of its time.", heads=_sum("GPU TIME%"),
           sort={"nodes": "share"}),
    Column("share_allocated", "part", "Allocated part of its time.",
           heads=_sum("SHARE ALLOCATED%"), sort={"nodes": "share-allocated"},
           metric="hami_card_share_allocated_ratio"),
    Column("containers", "number", "How many have part of it.", heads=_sum("CONTAINERS"),
           sort={"nodes": "containers"}),
    Column("foreign", "bytes", "Memory that no limit covers.",
           metric="hami_card_foreign_memory_bytes"),
    Column("healthy", "number", "1 if new pods may get the card.", metric="hami_card_healthy"),
)
"""A row is what the cluster knows of a card, or, for the metrics, what its node agent knows. The
view ``nodes`` has the sums over a node's cards."""
# fmt: on

BY_KEY = {column.key: column for column in SLICES}


def columns(view: View, table: Iterable[Column] = SLICES) -> list[Column]:
    """The columns of a view."""
    return [column for column in table if view in column.heads]


def orders(view: View, table: Iterable[Column] = SLICES) -> dict[str, Column]:
    """The columns that a view can be sorted by, by the name of the order."""
    return {column.sort[view]: column for column in table if view in column.sort}


def least_wanted(shown: Iterable[Column]) -> list[str]:
    """The keys of the columns that a narrow terminal leaves out, the first one first."""
    return [each.key for each in sorted(shown, key=lambda each: each.rank) if each.rank]


def record(row: SliceUse) -> dict[str, Value]:
    """A row as the JSON of ``hami top pod`` and of the web page."""
    return {column.key: column.value(row) for column in SLICES if column.is_field}
