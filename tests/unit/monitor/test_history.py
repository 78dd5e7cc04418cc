"""The last hour of a node: its steps, its gaps and its bounds."""

from hami_py.model import NodeCard
from hami_py.monitor import (
    Histories,
    NodeFigures,
    Reading,
    readings_of,
)
from hami_py.monitor.history import STEP_S, STEPS, decode_history
from support.slice_uses import container

CARD = ("", "", "", "GPU-a")
POD = ("team", "train", "main", "GPU-a")


def test_it_keeps_an_hour() -> None:
    histories = Histories()
    for step in range(STEPS + 20):
        histories.take([Reading(CARD, step, step / 1000)], step * STEP_S)
    (series,) = histories.history((STEPS + 19) * STEP_S + 7).series
    assert series.memory == tuple(range(20, STEPS + 20))
    assert (len(series.share), series.share[-1]) == (STEPS, 0.199)
    assert histories.history((STEPS + 19) * STEP_S + 7).age_s == 7


def test_missed_steps_are_unknown() -> None:
    histories = Histories()
    histories.take([Reading(CARD, 1, 0.5)], 0)
    histories.take([Reading(CARD, None, None)], STEP_S)
    histories.take([Reading(CARD, 4, 0.25)], 4 * STEP_S)
    (series,) = histories.history(4 * STEP_S).series
    assert series.memory == (1, None, None, None, 4)
    assert series.share == (0.5, None, None, None, 0.25)
    histories.take([Reading(CARD, 5, 0.0)], 4 * STEP_S + 100 * 3600)
    assert histories.history(0).series[0].memory == (None,) * (STEPS - 1) + (5,)


def test_what_has_gone_is_forgotten() -> None:
    histories = Histories()
    histories.take([Reading(CARD, 1, 0.5), Reading(POD, 1, 0.5)], 0)
    histories.take([Reading(CARD, 1, 0.5)], STEP_S)
    assert [each.pod for each in histories.history(STEP_S).series] == [""]


def test_a_key_that_is_there_twice_is_summed() -> None:
    """As after a pod was created again before its first processes have ended."""
    histories = Histories()
    twice = [Reading(POD, 100, 0.5), Reading(POD, 1, None)]
    for step in range(3):
        histories.take(twice, step * STEP_S)
    (series,) = histories.history(2 * STEP_S).series
    assert (series.memory, series.share) == ((101,) * 3, (0.5,) * 3)


def test_it_is_due_once_a_step() -> None:
    histories = Histories()
    assert histories.is_due(5)
    histories.take([], 5)
    assert not histories.is_due(5 + STEP_S - 1)
    assert histories.is_due(5 + STEP_S)


def test_a_cards_share_is_that_of_its_containers() -> None:
    card = NodeCard("GPU-a", 0, "A100", 100, 50, 0, 0.0, 0, True)
    containers = [
        container(*POD, limit=10, share=50, share_used=0.25, memory_used=3),
        container("team", "other", "main", "GPU-a", limit=10, share_used=0.5),
    ]
    found = readings_of(NodeFigures("n", (card,), containers))
    assert found[0] == Reading(CARD, 50, 0.75)
    assert found[1] == Reading(POD, 3, 0.25)


def test_it_survives_the_way_to_the_view() -> None:
    import msgspec

    histories = Histories()
    histories.take([Reading(POD, None, 0.5)], 0)
    history = histories.history(3)
    assert history.age_s == 3
    assert decode_history(msgspec.json.encode(history)) == history
