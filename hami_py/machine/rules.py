"""The limits of a slice: the user's request, checked against the policy and other slices.

Pure functions. A limit that is not requested is all that the user has left of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TypeAlias

from hami_py._native import format_memory
from hami_py.errors import InvalidValue, StateError, UnknownCard
from hami_py.machine.policy import Grant
from hami_py.machine.slice_slots import run_of, uid_of
from hami_py.model import PRIORITIES, WHOLE, Card, CardLimit, LimitRequest, Plan, plan
from hami_py.model.cards import find
from hami_py.node.ledger import Entry

NO_MEMORY = 1
"""Bytes in which nothing fits: the least limit that a slice can have."""

_FIX = "request less, or end a slice; `hami ps` lists yours"

_Text: TypeAlias = Callable[[int], str]

_LIMITS: tuple[tuple[str, str, int, _Text], ...] = (
    ("gpumem", "memory", NO_MEMORY, format_memory),
    ("gpucores", "share", 1, "{}%".format),
)
"""The option, the field of a `CardLimit`, the least value, and how a value is written."""

Sums: TypeAlias = Mapping[tuple[str, str], int]
"""By UUID of the card and field, the sum of the limits: bytes, and percent of its time."""


@dataclass(frozen=True)
class Use:
    """The sums of the limits of slices.

    Attributes:
        own: the slices of the user.
        all: the slices of all users.
        slices: the number of the user's slices.
    """

    own: Sums = field(default_factory=Counter)
    all: Sums = field(default_factory=Counter)
    slices: int = 0


def allowed(
    grant: Grant,
    cards: Sequence[Card],
    request: LimitRequest,
    devices: Sequence[str],
    use: Use,
    *,
    is_strict: bool,
) -> Plan:
    """The slice that a user gets.

    Args:
        grant: what the user may have.
        cards: the cards of the machine.
        request: the limits that the user requests.
        devices: the cards that the user chooses; empty = all that are granted.
        use: what slices have now.
        is_strict: what slices have of a card together fits on it.

    Raises:
        InvalidValue: it is more than what is left.
        StateError: nothing is left, or the user may have no card or no further slice.
        UnknownCard: there is no such card, or the user may not use it.
    """
    if use.slices >= grant.slices:
        why = f"{grant.why} allows {grant.slices}"
        raise StateError("one more slice", why, "end one; `hami ps` lists yours")
    mine = _granted(grant, cards)
    if not mine:
        raise StateError("cards", f"{grant.why} grants none", "ask the administrator for one")
    for name in devices:
        # One that the machine does not have is reported as such.
        if find(cards, name, "device") not in mine:
            fix = f"choose from: {', '.join(str(card.index) for card in mine)}"
            raise UnknownCard(f"device {name}", f"{grant.why} does not grant it", fix)
    # Without cards of its own choice, a slice numbers those that its user may use.
    found = plan(mine, request, devices or _chosen(grant, mine))
    limits = within(grant, cards, found.limits, request, use, is_strict=is_strict)
    return replace(found, limits=limits)


def within(
    grant: Grant,
    cards: Sequence[Card],
    rows: Sequence[CardLimit],
    request: LimitRequest,
    use: Use,
    *,
    is_strict: bool,
    before: Sequence[CardLimit] = (),
) -> tuple[CardLimit, ...]:
    """The limits of a slice, checked; what is not limited has all that is left.

    ``before`` are the limits until now: only those that grow are checked.

    Raises:
        InvalidValue: it is more than what is left.
        StateError: nothing is left.
    """
    most, found = _most(grant, cards), {card.uuid: card for card in cards}
    limits = []
    for row, old in zip_longest(rows, before):
        card, limit = found.get(row.uuid), _ordered(grant, row, request, is_new=old is None)
        for option, name, _, text in _LIMITS:
            key, wanted = (row.uuid, name), getattr(row, name)
            if old is not None and not _grows(getattr(old, name), wanted):
                continue
            bound = most.get(key, 0)
            if bound is not None:
                left = max(0, bound - use.own[key])
                if left == 0 or (wanted or 0) > left:
                    asked = getattr(request, name)
                    value = asked if isinstance(asked, int) else wanted
                    is_asked = asked is not None and wanted is not None
                    _refuse(grant, option, text(left), card, text(value) if is_asked else "")
                wanted = left if wanted is None else wanted
                limit = _with(limit, name, wanted)
            if is_strict and card is not None:
                _check_room(card, option, wanted, use.all[key], text)
        limits.append(limit)
    return tuple(limits)


def use_of(
    entries: Iterable[Entry],
    uid: int,
    sizes: Mapping[str, int],
    held: Callable[[Entry], Mapping[str, int]],
    without: str = "",
) -> Use:
    """The sums of the limits of slices; those of a user are summed, too.

    A slice of the user that was lowered counts with what it holds. Default slices have what others
    leave, so they count with that alone. Slices inside another have a part of that one. Jobs are
    not the user's: the batch system limits them.

    Args:
        entries: the slices.
        uid: the user.
        sizes: bytes of each card, by UUID: a slice without a limit has them.
        held: what a slice holds.
        without: a slice that is left out.
    """
    own, all_, count = Counter[tuple[str, str]](), Counter[tuple[str, str]](), 0
    for entry in entries:
        run, is_own = run_of(entry), uid_of(entry) == uid
        if run.kind == "slice" and is_own:
            count += entry.slot != without
        if run.is_inside or entry.slot == without:
            continue
        if run.kind != "default":
            all_.update(taken_by(run.limits, sizes))
        if is_own and run.kind != "job":
            limits = () if run.kind == "default" else run.limits
            own.update(taken_by(limits, sizes, held(entry)))
    return Use(own, all_, count)


def taken_by(
    rows: Iterable[CardLimit], sizes: Mapping[str, int], held: Mapping[str, int] | None = None
) -> Counter[tuple[str, str]]:
    """The sums of limits, or of what is held where that is more; no limit counts as the card."""
    taken = Counter({(uuid, "memory"): size for uuid, size in (held or {}).items()})
    for row in rows:
        key, size = (row.uuid, "memory"), sizes.get(row.uuid, 0)
        taken[key] = max(taken[key], size if row.memory is None else row.memory)
        taken[row.uuid, "share"] += row.share or 0
    return taken


def remaining(grant: Grant, cards: Sequence[Card], own: Sums) -> Plan:
    """A user's default slice: the grant, less the user's other slices.

    It has a row for each card of the machine, so that a changed policy only changes limits.

    Args:
        grant: what the user may have.
        cards: the cards of the machine.
        own: the sums of the limits of the user's slices.
    """
    mine = _granted(grant, cards)
    rows = plan(cards, replace(grant.limits, memory=None, share=None)).limits
    return replace(
        plan(mine, LimitRequest(), _chosen(grant, mine)), limits=lowered(grant, cards, rows, own)
    )


def lowered(
    grant: Grant, cards: Sequence[Card], rows: Iterable[CardLimit], own: Sums
) -> tuple[CardLimit, ...]:
    """These limits, or what others leave of the grant where that is less, but more than nothing.

    A lost card keeps its limits. A time limit of 1 percent stops no program.
    """
    most = _most(grant, cards)

    def cut(row: CardLimit) -> CardLimit:
        for _, name, least, _ in _LIMITS:
            bound, value = most.get((row.uuid, name)), getattr(row, name)
            if bound is not None:
                left = max(least, bound - own[row.uuid, name])
                row = _with(row, name, left if value is None else min(left, value))
        return _ordered(grant, row, LimitRequest(), is_new=False)

    return tuple(map(cut, rows))


def part_of(card: Card, count: int, total: int) -> CardLimit:
    """The limits of a job that has so many parts of a card: rounded down, but not to nothing.

    Raises:
        InvalidValue: it is no part of a card.
    """
    if not 0 < count <= total:
        raise InvalidValue(f"card {card.index}", f"{count} of {total}", "write n of N, at least 1")
    if count == total:
        return CardLimit(card.uuid)
    memory, share = (max(1, whole * count // total) for whole in (card.memory_total, WHOLE))
    return CardLimit(card.uuid, memory, share)


def _granted(grant: Grant, cards: Sequence[Card]) -> list[Card]:
    """The granted cards of this machine; a lost card is left out."""
    if grant.cards is None:
        return list(cards)
    named = {card.uuid: card for card in cards} | {str(card.index): card for card in cards}
    return list(dict.fromkeys(named[name] for name in grant.cards if name in named))


def _chosen(grant: Grant, mine: Iterable[Card]) -> list[str]:
    return [] if grant.cards is None else [card.uuid for card in mine]


def _most(grant: Grant, cards: Sequence[Card]) -> dict[tuple[str, str], int | None]:
    """The most that a user may have of each card, by UUID and field; None = the whole card."""
    mine = {card.uuid for card in _granted(grant, cards)}
    return {
        (row.uuid, name): getattr(row, name) if row.uuid in mine else 0
        for row in plan(cards, grant.limits).limits
        for _, name, _, _ in _LIMITS
    }


def _with(row: CardLimit, name: str, value: int) -> CardLimit:
    return replace(row, memory=value) if name == "memory" else replace(row, share=value)


def _grows(before: int | None, after: int | None) -> bool:
    return before is not None and (after is None or after > before)


def _ordered(grant: Grant, row: CardLimit, request: LimitRequest, *, is_new: bool) -> CardLimit:
    """The row with a mode and a priority that the grant allows; a request of more is refused."""
    limits = grant.limits
    mode = limits.mode or (None if limits.share in (None, WHOLE) else "hard")
    if mode == "hard" and request.mode == "soft":
        raise InvalidValue("mode", "soft", f"{grant.why} has hard shares: leave it out")
    if mode == "hard" or (is_new and request.mode is None and mode is not None):
        row = replace(row, mode=mode)
    top = limits.priority or ("high" if limits.is_empty else "normal")
    if PRIORITIES.index(row.priority) > PRIORITIES.index(top):
        if request.priority is not None:
            fix = f"{grant.why} allows {top} at most: leave it out"
            raise InvalidValue("priority", request.priority, fix)
        row = replace(row, priority=top)
    return row


def _refuse(grant: Grant, option: str, left: str, card: Card | None, value: str) -> None:
    of = "a lost card" if card is None else f"card {card.index}"
    if not value:
        raise StateError(option, f"{grant.why} leaves you {left} of {of}", _FIX)
    raise InvalidValue(option, value, f"{grant.why} leaves you {left} of {of}: {_FIX}")


def _check_room(card: Card, option: str, wanted: int | None, taken: int, text: _Text) -> None:
    """Shares count where there are some; a slice without a memory limit has the whole card."""
    whole, least = (card.memory_total, card.memory_total) if option == "gpumem" else (WHOLE, 0)
    wanted, left = least if wanted is None else wanted, max(0, whole - taken)
    if wanted > left:
        fix = f"card {card.index} has {text(left)} left beside all users: request less"
        raise InvalidValue(option, text(wanted), fix)
