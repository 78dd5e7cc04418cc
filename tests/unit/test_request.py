"""From options to the rows of a limits page."""

import json

import pytest

from hami_py import Card, CardLimit, InvalidValue, UnknownCard
from hami_py.model import parse_gpumem, plan, visible
from unit.machine import CARDS, GIB

FIRST, SECOND = CARDS


def test_one_size_is_every_cards() -> None:
    assert plan(CARDS, 4 * GIB).limits == (
        CardLimit(FIRST.uuid, 4 * GIB),
        CardLimit(SECOND.uuid, 4 * GIB),
    )


@pytest.mark.parametrize("name", ["1", SECOND.uuid])
def test_a_size_by_card_leaves_the_others_without_a_limit(name: str) -> None:
    memory = parse_gpumem([f"{name}=4GiB"])
    assert plan(CARDS, memory).limits == (
        CardLimit(FIRST.uuid, None),
        CardLimit(SECOND.uuid, 4 * GIB),
    )


def test_no_size_is_a_slice_without_limits() -> None:
    assert parse_gpumem([]) is None
    assert [limit.memory for limit in plan(CARDS, None).limits] == [None, None]


@pytest.mark.parametrize(
    "options",
    [["4GiB", "2GiB"], ["4GiB", "0=2GiB"], ["0=2GiB", "4GiB"], ["0=2GiB", "0=3GiB"]],
)
def test_sizes_that_contradict_each_other_are_refused(options: list[str]) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_gpumem(options)
    assert caught.value.field == "gpumem"
    assert caught.value.value == options[1]


@pytest.mark.parametrize("option", ["=4GiB", "\n=4GiB", "0\n=4GiB", "="])
def test_a_size_for_a_card_without_a_name_is_refused(option: str) -> None:
    with pytest.raises(InvalidValue, match="write CARD=SIZE") as caught:
        parse_gpumem([option])
    assert caught.value.value == option


@pytest.mark.parametrize("name", ["", "a\nb", "\udcff"])
def test_an_odd_name_is_shown_on_one_line(name: str) -> None:
    with pytest.raises(UnknownCard) as caught:
        plan(CARDS, None, [name])
    assert caught.value.what == f"device {json.dumps(name)}"


def test_one_card_under_two_names_is_refused() -> None:
    memory = parse_gpumem(["0=2GiB", f"{FIRST.uuid}=3GiB"])
    with pytest.raises(InvalidValue, match="keep one"):
        plan(CARDS, memory)


def test_chosen_cards_come_in_the_chosen_order_and_once() -> None:
    planned = plan(CARDS, 4 * GIB, ["1", FIRST.uuid, "1"])
    assert planned.devices == (SECOND.uuid, FIRST.uuid)
    assert [limit.uuid for limit in planned.limits] == [SECOND.uuid, FIRST.uuid]


def test_without_a_choice_the_visible_cards_are_left_alone() -> None:
    assert plan(CARDS, 4 * GIB).devices is None


def test_a_card_that_was_not_chosen_has_no_row() -> None:
    assert [limit.uuid for limit in plan(CARDS, None, ["1"]).limits] == [SECOND.uuid]


def test_a_limit_on_a_card_that_was_not_chosen_is_refused() -> None:
    with pytest.raises(UnknownCard, match="not among the chosen"):
        plan(CARDS, {"0": GIB}, ["1"])


@pytest.mark.parametrize("name", ["2", "-1", "00", "", "GPU-1", "all"])
def test_an_unknown_card_is_refused_with_those_there_are(name: str) -> None:
    for call in (lambda: plan(CARDS, None, [name]), lambda: plan(CARDS, {name: GIB})):
        with pytest.raises(UnknownCard) as caught:
            call()
        assert name in caught.value.what
        assert FIRST.uuid in caught.value.mend
        assert SECOND.uuid in caught.value.mend


def test_a_hidden_card_cannot_be_chosen() -> None:
    with pytest.raises(UnknownCard, match="CUDA_VISIBLE_DEVICES hides it"):
        plan(CARDS, None, ["0"], shown=[SECOND])


def test_a_limit_above_the_card_is_the_card_and_is_said() -> None:
    planned = plan(CARDS, {"1": 41 * GIB})
    assert planned.limits[1].memory == 40 * GIB
    assert len(planned.notes) == 1
    assert all(text in planned.notes[0] for text in ("41GiB", "40GiB", SECOND.uuid))
    assert plan(CARDS, 40 * GIB).notes == ()


def test_more_cards_than_a_page_has_rows_are_refused() -> None:
    many = [Card(i, f"MIG-{i}", "A100 MIG 1g.5gb", 5 * GIB) for i in range(17)]
    with pytest.raises(InvalidValue, match="at most 16"):
        plan(many, None)
    assert len(plan(many, None, [str(i) for i in range(16)]).limits) == 16


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
