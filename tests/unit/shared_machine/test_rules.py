"""What a user's slice gets, within what the policy and other slices leave."""

from collections import Counter
from dataclasses import replace

import pytest

from hami_py.errors import HamiError, InvalidValue, StateError, UnknownCard
from hami_py.machine.policy import Grant
from hami_py.machine.rules import NO_MEMORY, Sums, Use, allowed, remaining, within
from hami_py.model import Card, CardLimit, LimitRequest

GIB = 1 << 30
CARDS = [Card(0, "GPU-a", "A100", 40 * GIB), Card(1, "GPU-b", "A100", 40 * GIB)]
STUDENT = Grant(LimitRequest(8 * GIB, 30), ("0",), 2, "[group.students]")


NOTHING, UNUSED = LimitRequest(), Use()


def get(
    grant: Grant = STUDENT,
    request: LimitRequest = NOTHING,
    *devices: str,
    use: Use = UNUSED,
    is_strict: bool = False,
) -> tuple[CardLimit, ...]:
    return allowed(grant, CARDS, request, devices, use, is_strict=is_strict).limits


def of_a(memory: int, share: int = 0) -> Sums:
    return Counter({("GPU-a", "memory"): memory, ("GPU-a", "share"): share})


def test_a_request_without_limits_gets_what_is_left() -> None:
    assert get() == (CardLimit("GPU-a", 8 * GIB, 30),)
    assert get(use=Use(own=of_a(3 * GIB, 20))) == (CardLimit("GPU-a", 5 * GIB, 10),)
    assert get(Grant()) == (CardLimit("GPU-a"), CardLimit("GPU-b"))


def test_a_request_within_the_grant_is_given() -> None:
    wanted = LimitRequest(2 * GIB, 10, priority="low")
    assert get(STUDENT, wanted) == (CardLimit("GPU-a", 2 * GIB, 10, "hard", "low"),)


@pytest.mark.parametrize(
    ("request_", "use", "field"),
    [
        (LimitRequest(9 * GIB), Use(), "gpumem"),
        (LimitRequest(6 * GIB), Use(own=of_a(3 * GIB)), "gpumem"),
        (LimitRequest(share=31), Use(), "gpucores"),
        (LimitRequest(GIB), Use(own=of_a(8 * GIB)), "gpumem"),
        (LimitRequest(mode="soft"), Use(), "mode"),
        (LimitRequest(priority="high"), Use(), "priority"),
    ],
)
def test_more_than_the_grant_is_refused(request_: LimitRequest, use: Use, field: str) -> None:
    with pytest.raises(InvalidValue, match=r"\[group.students\]") as error:
        get(STUDENT, request_, use=use)
    assert error.value.field == field


@pytest.mark.parametrize(("own", "left"), [(of_a(8 * GIB), "0 bytes"), (of_a(0, 30), "0%")])
def test_a_request_without_limits_is_told_that_nothing_is_left(own: Sums, left: str) -> None:
    with pytest.raises(StateError, match=f"leaves you {left} of card 0"):
        get(use=Use(own=own))


def test_only_what_grows_is_checked() -> None:
    """The policy was lowered below what the slice has."""
    before = (CardLimit("GPU-a", 12 * GIB, 50), CardLimit("GPU-b", 12 * GIB, 50))

    def changed(**limits: int) -> tuple[CardLimit, ...]:
        rows = tuple(replace(row, **limits) for row in before)  # type: ignore[arg-type]
        request = LimitRequest(**limits)
        return within(STUDENT, CARDS, rows, request, Use(), is_strict=True, before=before)

    assert changed(share=40)[0] == CardLimit("GPU-a", 12 * GIB, 40)
    assert changed(memory=10 * GIB)[1] == CardLimit("GPU-b", 10 * GIB, 50)
    for limits in ({"share": 60}, {"memory": 13 * GIB}):
        with pytest.raises(InvalidValue, match="leaves you"):
            changed(**limits)
    lost = (CardLimit("GPU-lost", GIB, 10),)
    rows = (CardLimit("GPU-lost", 2 * GIB, 10),)
    with pytest.raises(InvalidValue, match="a lost card"):
        within(STUDENT, CARDS, rows, LimitRequest(2 * GIB), Use(), is_strict=True, before=lost)


def test_a_default_slice_has_a_row_for_each_card() -> None:
    """Another number of rows would be another slot, beside which programs keep what they hold."""
    planned = remaining(STUDENT, CARDS, of_a(5 * GIB, 10))
    assert planned.limits == (
        CardLimit("GPU-a", 3 * GIB, 20),
        CardLimit("GPU-b", NO_MEMORY, 1),
    )
    assert (planned.devices, planned.indices) == (("GPU-a",), {"GPU-a": 0})
    assert remaining(Grant(), CARDS, {}).limits == (CardLimit("GPU-a"), CardLimit("GPU-b"))


def test_a_mode_without_a_share_holds_for_the_shares_that_users_choose() -> None:
    grant = Grant(LimitRequest(mode="soft"))
    assert get(grant, LimitRequest(share=20), "0")[0].mode == "soft"
    assert get(grant, LimitRequest(share=20, mode="hard"), "0")[0].mode == "hard"


def test_a_grant_with_soft_shares_gives_soft_shares() -> None:
    soft = Grant(LimitRequest(None, 30, "soft", "low"))
    assert get(soft, LimitRequest(), "1") == (CardLimit("GPU-b", None, 30, "soft", "low"),)
    assert get(soft, LimitRequest(mode="hard"), "1")[0].mode == "hard"


def test_only_granted_cards_are_given() -> None:
    for devices, error in ((("1",), UnknownCard), (("GPU-b",), UnknownCard), (("7",), UnknownCard)):
        with pytest.raises(error):
            get(STUDENT, LimitRequest(), *devices)
    none: list[tuple[str, ...]] = [(), ("5",)]
    for cards in none:
        with pytest.raises(StateError, match="grants none"):
            get(Grant(cards=cards))


def test_a_user_has_so_many_slices() -> None:
    with pytest.raises(StateError, match="allows 2"):
        get(use=Use(slices=2))


@pytest.mark.parametrize(
    ("request_", "taken", "fits"),
    [
        (LimitRequest(8 * GIB, 30), of_a(32 * GIB, 70), True),
        (LimitRequest(8 * GIB, 30), of_a(33 * GIB, 0), False),
        (LimitRequest(8 * GIB, 30), of_a(0, 71), False),
        (LimitRequest(8 * GIB), of_a(0, 100), True),
        (LimitRequest(), of_a(0), True),
        (LimitRequest(), of_a(1), False),
    ],
)
def test_all_users_fit_on_a_card_where_the_policy_is_strict(
    request_: LimitRequest, taken: Sums, fits: bool
) -> None:
    use = Use(all=taken)
    assert get(Grant(), request_, "0", use=use)
    try:
        get(Grant(), request_, "0", use=use, is_strict=True)
    except HamiError as error:
        assert not fits, error
    else:
        assert fits
