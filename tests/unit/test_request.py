"""From options to the rows of a limits page."""

import json
from dataclasses import replace

import pytest

from hami_py import Card, CardLimit, InvalidValue, UnknownCard
from hami_py.model import (
    LimitRequest,
    ineffective,
    parse_arguments,
    parse_options,
    plan,
    resized,
    visible,
)
from unit.machine import CARDS, GIB

FIRST, SECOND = CARDS
NOTHING = LimitRequest()


def test_one_size_is_every_cards() -> None:
    assert plan(CARDS, LimitRequest(4 * GIB)).limits == (
        CardLimit(FIRST.uuid, 4 * GIB),
        CardLimit(SECOND.uuid, 4 * GIB),
    )


@pytest.mark.parametrize("name", ["1", SECOND.uuid])
def test_a_size_by_card_leaves_the_others_without_a_limit(name: str) -> None:
    asked = parse_options([f"{name}=4GiB"], [])
    assert plan(CARDS, asked).limits == (
        CardLimit(FIRST.uuid, None),
        CardLimit(SECOND.uuid, 4 * GIB),
    )


def test_no_size_is_a_slice_without_limits() -> None:
    assert parse_options([], []) == LimitRequest()
    assert plan(CARDS, NOTHING).limits == (CardLimit(FIRST.uuid), CardLimit(SECOND.uuid))


@pytest.mark.parametrize(
    "options",
    [["4GiB", "2GiB"], ["4GiB", "0=2GiB"], ["0=2GiB", "4GiB"], ["0=2GiB", "0=3GiB"]],
)
def test_sizes_that_contradict_each_other_are_refused(options: list[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_options(options, [])
    assert caught.value.field == "gpumem"
    assert caught.value.value == options[1]


@pytest.mark.parametrize("option", ["=4GiB", "\n=4GiB", "0\n=4GiB", "="])
def test_a_size_for_a_card_without_a_name_is_refused(option: str) -> None:
    with pytest.raises(InvalidValue, match="write CARD=SIZE") as caught:
        parse_options([option], [])
    assert caught.value.value == option


@pytest.mark.parametrize("name", ["", "a\nb", "\udcff"])
def test_an_odd_name_is_shown_on_one_line(name: str) -> None:
    with pytest.raises(UnknownCard) as caught:
        plan(CARDS, NOTHING, [name])
    assert caught.value.what == f"device {json.dumps(name)}"


def test_one_card_under_two_names_is_refused() -> None:
    asked = parse_options(["0=2GiB", f"{FIRST.uuid}=3GiB"], [])
    with pytest.raises(InvalidValue, match="keep one"):
        plan(CARDS, asked)


def test_chosen_cards_come_in_the_chosen_order_and_once() -> None:
    planned = plan(CARDS, LimitRequest(4 * GIB), ["1", FIRST.uuid, "1"])
    assert planned.devices == (SECOND.uuid, FIRST.uuid)
    assert [limit.uuid for limit in planned.limits] == [SECOND.uuid, FIRST.uuid]


def test_without_a_choice_the_visible_cards_are_unchanged() -> None:
    assert plan(CARDS, LimitRequest(4 * GIB)).devices is None


def test_a_card_that_was_not_chosen_has_no_row() -> None:
    assert [limit.uuid for limit in plan(CARDS, NOTHING, ["1"]).limits] == [SECOND.uuid]


def test_a_limit_on_a_card_that_was_not_chosen_is_refused() -> None:
    with pytest.raises(UnknownCard, match="not among the chosen"):
        plan(CARDS, LimitRequest({"0": GIB}), ["1"])


@pytest.mark.parametrize("name", ["2", "-1", "00", "", "GPU-7", "GPU-", "all"])
def test_an_unknown_card_is_refused_with_the_existing_ones(name: str) -> None:
    for call in (
        lambda: plan(CARDS, NOTHING, [name]),
        lambda: plan(CARDS, LimitRequest({name: GIB})),
    ):
        with pytest.raises(UnknownCard) as caught:
            call()
        assert name in caught.value.what
        assert FIRST.uuid in caught.value.fix
        assert SECOND.uuid in caught.value.fix


def test_a_hidden_card_cannot_be_chosen() -> None:
    with pytest.raises(UnknownCard, match="CUDA_VISIBLE_DEVICES hides it"):
        plan(CARDS, NOTHING, ["0"], shown=[SECOND])


def test_a_limit_above_the_card_is_lowered_to_it_and_reported() -> None:
    planned = plan(CARDS, LimitRequest({"1": 41 * GIB}))
    assert planned.limits[1].memory == 40 * GIB
    assert len(planned.notes) == 1
    assert all(text in planned.notes[0] for text in ("41GiB", "40GiB", "card 1 has"))
    assert plan(CARDS, LimitRequest(40 * GIB)).notes == ()


def test_more_cards_than_a_page_has_rows_are_refused() -> None:
    many = [Card(i, f"MIG-{i}", "A100 MIG 1g.5gb", 5 * GIB) for i in range(17)]
    with pytest.raises(InvalidValue, match="at most 16"):
        plan(many, NOTHING)
    assert len(plan(many, NOTHING, [str(i) for i in range(16)]).limits) == 16


# Shares.


def test_a_share_is_every_cards_or_by_card() -> None:
    every = parse_options(["4GiB"], ["30%"], "soft", "high")
    assert plan(CARDS, every).limits == (
        CardLimit(FIRST.uuid, 4 * GIB, 30, "soft", "high"),
        CardLimit(SECOND.uuid, 4 * GIB, 30, "soft", "high"),
    )
    by_card = parse_options([], [f"{SECOND.uuid}=30"])
    assert plan(CARDS, by_card).limits == (CardLimit(FIRST.uuid), CardLimit(SECOND.uuid, share=30))


def test_the_whole_card_is_no_limit() -> None:
    for whole in (parse_options([], ["100"]), parse_options([], ["none"])):
        assert plan(CARDS, whole) == plan(CARDS, NOTHING)


def test_a_mode_and_a_priority_may_be_set_before_the_share() -> None:
    asked = parse_arguments(mode="soft", priority="low")
    assert plan(CARDS, asked, ["0"]).limits == (CardLimit(FIRST.uuid, None, None, "soft", "low"),)


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (["30", "20"], "write one PERCENT for every card, or CARD=PERCENT for each"),
        (["30", "0=20"], "write one PERCENT for every card, or CARD=PERCENT for each"),
        (["0=20", "0=30"], "card 0 is named twice; keep one"),
        (["0=20", "=30"], "write CARD=PERCENT with a card's UUID or index"),
    ],
)
def test_shares_that_contradict_each_other_are_refused(options: list[str], fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_options([], options)
    assert (caught.value.field, caught.value.value) == ("gpucores", options[1])
    assert caught.value.fix.startswith(fix)


def test_a_share_of_a_card_that_cannot_have_one_is_refused() -> None:
    with pytest.raises(UnknownCard, match=r"gpucores 7: there is no such card; choose from: 0"):
        plan(CARDS, LimitRequest(share={"7": 30}))
    with pytest.raises(UnknownCard, match=r"gpucores 0: it is not among the chosen cards"):
        plan(CARDS, LimitRequest(share={"0": 30}), ["1"])
    with pytest.raises(InvalidValue, match=r"gpucores: .* card 0 is .*; keep one"):
        plan(CARDS, LimitRequest(share={"0": 30, FIRST.uuid: 20}))


def test_limits_that_a_resize_does_not_name_stay() -> None:
    rows = (
        CardLimit(FIRST.uuid, 4 * GIB, 30, "soft", "high"),
        CardLimit(SECOND.uuid, None, None, "hard", "low"),
    )

    def after(asked: LimitRequest) -> tuple[CardLimit, ...]:
        changed, notes = resized(CARDS, rows, asked, whole=True)
        assert notes == ()
        return changed

    first, second = rows
    assert after(parse_arguments("2GiB")) == (
        replace(first, memory=2 * GIB),
        replace(second, memory=2 * GIB),
    )
    assert after(parse_arguments(gpucores={"1": 50})) == (first, replace(second, share=50))
    assert after(parse_arguments(gpucores=100)) == (replace(first, share=None), second)
    assert after(parse_arguments(mode="hard")) == (replace(first, mode="hard"), second)
    assert [row.priority for row in after(parse_arguments(priority="low"))] == ["low", "low"]
    with pytest.raises(InvalidValue, match=r'"None" is refused: write a size, .* or set gpucores'):
        after(NOTHING)
    with pytest.raises(UnknownCard, match=r"gpucores 1: the slice does not have it; leave it out"):
        resized(CARDS, rows[:1], parse_arguments(gpucores={"1": 50}), whole=True)


# Cards.


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, [FIRST, SECOND]),
        ("1,0", [SECOND, FIRST]),
        (" 1 , 0 ", [SECOND, FIRST]),
        (f"{SECOND.uuid},0", [SECOND, FIRST]),
        ("GPU-2", [SECOND]),
        ("GPU-", []),
        ("", []),
        ("-1", []),
        ("1,-1,0", [SECOND]),
        ("0,7,1", [FIRST]),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(text: str | None, shown: list[Card]) -> None:
    assert visible(CARDS, text, "FASTEST_FIRST") == shown


def test_a_number_is_not_guessed_where_cuda_may_count_differently() -> None:
    unlike = [FIRST, Card(1, "GPU-3", "NVIDIA T4", 16 * GIB)]
    assert visible(unlike, "1", "PCI_BUS_ID") == [unlike[1]]
    assert visible(unlike, "GPU-3", "FASTEST_FIRST") == [unlike[1]]
    with pytest.raises(UnknownCard, match="PCI_BUS_ID"):
        visible(unlike, "1", "FASTEST_FIRST")


def test_a_number_counts_the_cards_that_were_chosen() -> None:
    unlike = [Card(0, "GPU-3", "NVIDIA T4", 16 * GIB), Card(1, FIRST.uuid, FIRST.name, 40 * GIB)]
    assert visible(unlike, "1", "FASTEST_FIRST", counted=True) == [unlike[1]]


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_mode_without_a_share_is_reported(mode: str) -> None:
    said = (
        f"mode {mode} has no effect yet: the slice has no share of a card's time;"
        " set one with gpucores, like 30"
    )
    rows = plan(CARDS, NOTHING).limits
    asked = parse_options([], [], mode)
    assert ineffective(rows, asked) == (said,)
    assert resized(CARDS, rows, asked, whole=True)[1] == (said,)


@pytest.mark.parametrize(
    ("shares", "options"),
    [
        ([], {"priority": "high"}),
        (["0=30"], {"mode": "soft"}),
        # A user who removes the share knows that there is none.
        (["none"], {"mode": "hard"}),
    ],
)
def test_a_mode_with_effect_is_not_reported(shares: list[str], options: dict[str, str]) -> None:
    asked = parse_options([], shares, **options)
    assert ineffective(plan(CARDS, asked).limits, asked) == ()
