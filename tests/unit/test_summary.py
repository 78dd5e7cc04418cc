"""What remains of a slice after its end."""

import json
import stat
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import hami_py
from hami_py.cli.summary import line
from hami_py.errors import StateError
from hami_py.model import SliceCard, Summary
from hami_py.slices import ended, summary
from support.slices import GIB, MIB
from support.stub import StubServer
from unit.machine import Hami, refused

CARD = SliceCard(
    uuid="GPU-11111111",
    index=3,
    memory_limit=4 * GIB,
    memory_peak=3 * GIB,
    refusals=2,
    share=30,
    engine_time=28.1,
    throttled=12.0,
)


def summary_with(*cards: SliceCard) -> Summary:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Summary("5eed" * 8, "train", ("python",), now, now, 100.0, cards)


def ended_ids(hami: Hami) -> list[str]:
    done = hami("ps", "--ended", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [each["id"] for each in json.loads(done.stdout)]


def test_a_line_says_what_was_used_of_each_card() -> None:
    both = summary_with(CARD, SliceCard(uuid="GPU-22222222", memory_peak=MIB))
    assert line(both) == (
        "card 3: peak 3GiB of 4GiB, 2 refused, throttled 12.0s, used 28.1% of 30% of the time;"
        " card GPU-22222222: peak 1MiB, 0 refused"
    )
    unused = SliceCard(uuid="GPU-3", memory_limit=4 * GIB, share=30)
    assert line(summary_with(unused)) == "no GPU memory or time was used"


def test_a_run_ends_with_a_summary_where_it_is_wanted(hami: Hami) -> None:
    text = "hami: no GPU memory or time was used\n"
    assert hami("run", "--", "true").stderr == ""
    assert hami("run", "--summary", "--", "true").stderr == text
    assert hami("run", "--", "true", HAMI_SUMMARY="1").stderr == text
    assert hami("run", "--", "true", HAMI_SUMMARY="0").stderr == ""
    done = hami("run", "--summary", "--", "sh", "-c", "exit 7")
    assert (done.returncode, done.stderr) == (7, text)
    refused(hami("run", "--", "true", HAMI_SUMMARY="yes"), 125, "HAMI_SUMMARY", "write 1 or 0")


def test_slices_that_ended_are_listed_by_their_end(hami: Hami, runtime: Path) -> None:
    assert ended_ids(hami) == []
    hami("run", "--name", "first", "--gpumem", "2GiB", "--", "true", b"\xff")
    hami("run", "--name", "second", "--keep", "--", "true")
    assert len(ended_ids(hami)) == 1
    hami("rm", "second")
    heads, *rows = hami("ps", "--ended").stdout.splitlines()
    assert heads.split()[0] == "NAME"
    assert [row.split()[0] for row in rows] == ["first", "second"]
    mode = (runtime / "hami" / "ended.jsonl").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    done = hami("ps", "--ended", "--watch")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_table_of_ended_slices_has_a_screen_of_them(hami: Hami, runtime: Path) -> None:
    hami("run", "--name", "one", "--", "true")
    file = runtime / "hami" / "ended.jsonl"
    line = file.read_text()
    file.write_text("".join(line.replace('"one"', f'"slice-{i}"') for i in range(500)))
    done = hami("ps", "--ended")
    names = [row.split()[0] for row in done.stdout.splitlines()[1:]]
    assert names == [f"slice-{i}" for i in range(480, 500)]
    assert done.stderr == (
        "hami: 480 earlier slices are not shown; `hami ps --ended --json` lists all\n"
    )
    assert len(ended_ids(hami)) == 500


def test_a_summary_of_yesterday_is_not_listed_and_a_broken_line_is_ignored(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    ends = [now - timedelta(days=2), now - timedelta(hours=23), now]
    lines = [
        json.dumps({**asdict(summary_with(CARD)), "ended": when.isoformat(timespec="seconds")})
        for when in ends
    ]
    (tmp_path / "ended.jsonl").write_text("\n".join([*lines[:2], '{"id": 3', "[]", "4", lines[2]]))
    assert [each.ended for each in ended(tmp_path)] == [
        when.isoformat(timespec="seconds") for when in ends[1:]
    ]
    assert ended(tmp_path)[0].cards == (CARD,)


def test_the_file_of_ended_slices_is_bounded(hami: Hami, runtime: Path) -> None:
    hami("run", "--", "true")
    file = runtime / "hami" / "ended.jsonl"
    one = file.read_bytes()
    file.write_bytes(one * (summary.LARGEST // len(one)))
    hami("run", "--name", "last", "--", "true")
    assert file.stat().st_size < summary.LARGEST * 0.6
    found = ended(runtime / "hami")
    assert (found[-1].name, len(found)) == ("last", len(file.read_bytes().splitlines()))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["a" * 4091, "b"], ["true", "a" * 4091, "…"]),
        (["a" * 9000], ["true", "a" * 4091 + "…"]),
        ([""] * 9000, ["true", *[""] * 4091, "…"]),
        (["ä"] * 2, ["true", "ä", "ä"]),
    ],
)
def test_a_long_command_takes_no_room_of_other_slices(
    hami: Hami, runtime: Path, words: list[str], kept: list[str]
) -> None:
    hami("run", "--", "true", *words)
    assert [list(each.command) for each in ended(runtime / "hami")] == [kept]
    assert (runtime / "hami" / "ended.jsonl").stat().st_size < 32 << 10


def test_a_link_is_not_followed(hami: Hami, runtime: Path, tmp_path: Path) -> None:
    hami("run", "--", "true")
    file, other = runtime / "hami" / "ended.jsonl", tmp_path / "other"
    other.write_text("mine\n")
    file.unlink()
    file.symlink_to(other)
    done = hami("run", "--", "true")
    assert (done.returncode, done.stderr, other.read_text()) == (0, "", "mine\n")


def test_a_slice_tells_what_its_programs_have_used(
    stub: StubServer, start: Callable[..., object]
) -> None:
    with hami_py.slice(gpumem="1GiB", name="train") as s:
        start(s, "hold", "600")
        card = s.summary().cards[0]
        assert (card.memory_limit, card.memory_peak) == (GIB, 600 * MIB)
    after = s.summary()
    assert (after.name, after.cards[0].memory_peak) == ("train", 600 * MIB)
    assert after == s.summary()
    never_opened = hami_py.slice()
    never_opened.close()
    with pytest.raises(StateError):
        never_opened.summary()
