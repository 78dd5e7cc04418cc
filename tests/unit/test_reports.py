"""What users ran into with the command line and with Python."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hami_py
from hami_py.errors import UnknownCard
from hami_py.model import Card, LimitRequest, parse_options, plan
from hami_py.model.cards import find
from support.launcher import until
from support.running import Started
from support.slices import GIB
from support.stub import StubServer
from unit.machine import CARDS, HOLD, Hami, listed, refused


def test_help_printed_a_control_sequence_of_its_source(hami: Hami) -> None:
    done = hami("run", "--help")
    assert "\\b" not in done.stdout
    assert "\n      hami run --gpumem 4GiB" in done.stdout


def test_the_usual_ways_to_ask_for_help_and_the_version(hami: Hami) -> None:
    for command in ((), ("run",), ("ps",)):
        shown = {hami(*words).stdout for words in ((*command, "--help"), (*command, "-h"))}
        shown.add(hami("help", *command).stdout)
        assert len(shown) == 1
        assert shown.pop().startswith(f"Usage: hami{''.join(f' {word}' for word in command)} ")
    assert hami("version").stdout == hami("--version").stdout
    refused(hami("help", "nothing"), 2, "No such command 'nothing'")


def test_a_slice_that_ps_does_not_show_was_changed(
    hami: Hami, running: Callable[..., Started], slices_of: Callable[[], list[Path]]
) -> None:
    """Its `hami run` was killed, and nothing is left in it."""
    with running("run", "--name", "train", "--", *HOLD) as program:
        (directory,) = slices_of()
        os.kill(program.pid, signal.SIGKILL)
        program.finish()
    until(lambda: not listed(hami), "the slice is listed")
    assert slices_of() == [directory]
    refused(hami("set", "train", "--gpumem", "1GiB"), 1, "you have no slice")
    refused(hami("run", "--join", "train", "--", "true"), 125, "you have no slice")


def test_memory_without_a_limit_can_be_written(hami: Hami) -> None:
    hami(
        "run", "--name", "train", "--keep", "--gpumem", "0=none", "--gpumem", "1=1GiB", "--", "true"
    )
    (slice_,) = listed(hami)
    assert [card["memory_limit"] for card in slice_["cards"]] == [None, GIB]
    assert hami("set", "train", "--gpumem", "none").returncode == 0
    (slice_,) = listed(hami)
    assert [card["memory_limit"] for card in slice_["cards"]] == [None, None]


def test_a_card_can_be_named_as_ps_shows_it() -> None:
    assert find(CARDS, CARDS[1].uuid[:12], "device") == CARDS[1]
    for name in ("GPU-", "GPU-3", "", "11111111"):
        with pytest.raises(UnknownCard):
            find(CARDS, name, "device")


def test_python_refused_what_it_had_returned(stub: StubServer) -> None:
    with hami_py.slice(gpumem="1GiB", devices=[1]) as s:
        (limit,) = s.limits().cards
        assert limit.uuid == stub.uuids()[1]
        s.resize(gpumem=limit.memory)
        s.resize(gpumem=f"{limit.memory}B")
        assert s.limits().cards == (limit,)
        for wrong in (True, 0, -1, 1.5, [1]):
            with pytest.raises(hami_py.InvalidValue):
                s.resize(gpumem=wrong)  # type: ignore[arg-type]


def limits_of(opened: "hami_py.Slice") -> list[int | None]:
    with opened:
        return [card.memory for card in opened.limits().cards]


def test_a_slice_could_not_be_passed_to_another_process(stub: StubServer) -> None:
    with hami_py.slice(gpumem="1GiB", name="train") as s:
        assert repr(s) == f"<hami slice train {s.id} (open)>"
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(limits_of, [s]) == [GIB, GIB]
        assert s.processes() == ()


@pytest.mark.parametrize("name", ["./script", "script"])
def test_a_script_without_a_first_line_runs_as_in_a_shell(
    hami: Hami, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0" "$@"; exit 3\n')
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    done = hami("run", "--", name, "a b", PATH=f"{tmp_path}:/usr/bin:/bin")
    path = name if name.startswith(".") else str(script)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{path} a b\n", "")
    script.write_bytes(b"\x00\x01")
    refused(hami("run", "--", "./script"), 126, "Exec format error")


def planned(size: str, *cards: Card) -> tuple[str, ...]:
    return plan(cards, parse_options([size], [])).notes


def test_one_line_is_enough_for_eight_cards_that_are_alike() -> None:
    cards = [Card(i, f"GPU-{i}", "NVIDIA A100", 40 * GIB) for i in range(8)]
    (note,) = planned("41GiB", *cards)
    assert note.startswith("gpumem 41GiB is more than cards 0, 1, 2, 3, 4, 5, 6 and 7 have: ")
    assert planned("none", *cards) == ()


def test_a_limit_below_one_context_was_set_without_a_word(hami: Hami) -> None:
    context = {"HAMI_CONTEXT_MEMORY": "480MiB"}
    note = (
        "hami: gpumem 256MiB is less than the 480MiB that the driver takes for a context on card 0:"
        " requests are refused\n"
    )
    limits = ["--gpumem", "0=256MiB", "--gpumem", "1=480MiB"]
    assert hami("run", *limits, "--", "true", **context).stderr == note
    assert hami("run", *limits, "--", "true", HAMI_CONTEXT_MEMORY="0").stderr == ""
    hami("run", "--name", "train", "--keep", "--", "true", **context)
    assert hami("set", "train", *limits).stderr == note


def test_a_limit_below_the_use_was_set_without_a_word(
    stub: StubServer, start: Callable[..., object]
) -> None:
    with hami_py.slice(gpumem="1GiB") as s:
        start(s, "hold", "600")
        with pytest.warns(
            UserWarning, match="500MiB is less than the 600MiB that is in use on card 0"
        ):
            s.resize(gpumem="500MiB")


def test_no_limit_is_not_a_size_of_a_pod() -> None:
    from hami_py.cli.kubernetes.resize import _changed
    from hami_py.model.pods.wire import CardAllocation

    card = CardAllocation(card="GPU-1", memory_mib=1024, cores=0)
    with pytest.raises(hami_py.InvalidValue, match="a part of a card"):
        _changed(card, LimitRequest(memory=parse_options(["none"], []).memory))


def test_the_doctor_says_that_a_script_is_not_executable(hami: Hami, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"#!{sys.executable}\n")
    done = hami("doctor", "--", str(script))
    assert f"{script} is not executable" in done.stdout
    assert f"chmod +x {script}" in done.stdout
