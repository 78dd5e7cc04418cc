"""`make demo` on a busy machine: a verdict, or the reason why there is none."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from clients import demo
from clients.demo import CLIENTS, TRIES
from clients.side_by_side import Part

GOOD, LOW, HIGH = (29.0, 69.0), (17.0, 56.0), (40.0, 60.0)
BUSY = "This machine is busy (load 28 on 2 cores)"


def parts(percents: tuple[float, float]) -> list[Part]:
    shares = zip(CLIENTS, (30, 70), percents, strict=False)
    return [Part(client, share, 2000.0, 20.0 * had, had) for client, share, had in shares]


class Measured:
    """Results, one after the other."""

    def __init__(self, *results: tuple[float, float] | Exception) -> None:
        self.left = list(results)

    def __call__(self, *_arguments: object) -> Sequence[Part]:
        result = self.left.pop(0)
        if isinstance(result, Exception):
            raise result
        return parts(result)


def test_a_program_that_does_not_end_in_time_is_no_failure_of_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late() -> bool:
        raise subprocess.TimeoutExpired("nvitop", 100.0)

    table = demo.Table(*"abcdefg")
    monkeypatch.setattr(demo, "busy", lambda: BUSY)
    assert demo._unless_late(table, "nvitop", late)
    assert [*table.columns[-1].cells] == ["not judged: no end within 100 s"]
    monkeypatch.setattr(demo, "busy", lambda: None)
    with pytest.raises(subprocess.TimeoutExpired):
        demo._unless_late(table, "nvitop", late)


@pytest.mark.parametrize(
    "case",
    [
        (0.3, GOOD, True, 0, None),
        (0.3, LOW, True, 1, None),
        (0.3, HIGH, True, 1, None),
        (28.2, GOOD, True, 0, None),
        (28.2, LOW, True, 0, BUSY),
        (28.2, TimeoutError("60 s"), True, 0, BUSY),
        (28.2, LOW, False, 1, BUSY),
    ],
)
def test_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[float, tuple[float, float] | Exception, bool, int, str | None],
) -> None:
    load, result, memory_holds, code, said = case

    def memory(*_: Any, **__: Any) -> bool:
        return memory_holds

    for name, made_up in {
        "_real_cards": list,
        "_driver_memory": lambda *_: 0,
        "_fill": memory,
        "_show_limit": memory,
        "compare": Measured(*[result] * TRIES),
    }.items():
        monkeypatch.setattr(demo, name, made_up)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert demo.main() == code
    out = capsys.readouterr().out
    assert (said or "busy") in out or said is None
    assert ("DOES NOT HOLD" in out) == (result != GOOD and said is None)
    assert ("not judged" in out) == (result == LOW and said is not None)
