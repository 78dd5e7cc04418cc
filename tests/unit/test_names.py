"""Slices by name: ``--name``, ``--keep``, ``--join`` and ``hami rm``, and the same from Python."""

import gc
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hami_py
from hami_py.config import Settings
from hami_py.slices import remove
from support.launcher import until
from support.running import Started
from support.stub import StubServer
from unit import machine
from unit.machine import HOLD, Hami, listed, refused

Slices = Callable[[], list[Path]]

# Names.


@pytest.mark.parametrize("name", ["a", "0", "Train-3_b.c", "x" * 63])
def test_a_valid_name(hami: Hami, name: str) -> None:
    assert hami("run", "--name", name, "--keep", "--", "true").returncode == 0
    assert [slice_["name"] for slice_ in listed(hami)] == [name]


@pytest.mark.parametrize("name", ["", "-a", ".a", "_a", "a b", "a/b", "ä", "a\n", "x" * 64])
def test_an_invalid_name(hami: Hami, slices_of: Slices, name: str) -> None:
    refused(
        hami("run", f"--name={name}", "--", "echo", "ran"),
        125,
        "name: ",
        json.dumps(name[:64], ensure_ascii=False),
        "write 1 to 63 letters and digits",
    )
    with pytest.raises(hami_py.InvalidValue):
        hami_py.slice(name=name)
    assert slices_of() == []


def test_a_name_is_taken_while_its_slice_lives(hami: Hami, running: Callable[..., Started]) -> None:
    with running("run", "--name", "train", "--", *HOLD) as first:
        (slice_,) = listed(hami)
        done = hami("run", "--name", "train", "--", "echo", "ran")
        refused(done, 125, 'name: "train" is refused', slice_["id"][:12], "choose another")
        first.finish()
    assert hami("run", "--name", "train", "--", "true").returncode == 0


def test_of_many_at_once_one_gets_the_name(hami: Hami) -> None:
    with ThreadPoolExecutor(6) as pool:
        command = ["run", "--name", "train", "--keep", "--", "true"]
        done = list(pool.map(lambda _: hami(*command).returncode, range(12)))
    assert sorted(done) == [0] + [125] * 11
    assert [slice_["name"] for slice_ in listed(hami)] == ["train"]


# Keeping and joining.


def test_a_kept_slice_outlives_its_program_and_the_next_starts(
    hami: Hami, slices_of: Slices
) -> None:
    assert hami("run", "--name", "train", "--keep", "--", "true").returncode == 0
    assert hami("run", "--", "true").returncode == 0
    (slice_,) = listed(hami)
    assert (slice_["state"], slice_["keep"], slice_["processes"]) == ("kept", True, [])
    assert hami("rm", "train").returncode == 0
    assert slices_of() == []


REPORT = """import json, os, hami_py as hami
limits = {card.uuid: card.memory for card in hami.limits().cards}
print(json.dumps([limits, os.environ["HAMI_SLICE"]]))"""


@pytest.mark.parametrize("by", ["name", "id", "short id"])
def test_a_program_joins_by_name_or_id(hami: Hami, slices_of: Slices, by: str) -> None:
    hami("run", "--name", "train", "--keep", "--device=1", "--gpumem=1GiB", "--", "true")
    (directory,) = slices_of()
    name = {"name": "train", "id": directory.name, "short id": directory.name[:6]}[by]
    done = hami("run", "--join", name, "--", sys.executable, "-c", REPORT)
    second = machine.CARDS[1].uuid
    assert json.loads(done.stdout) == [{second: 1 << 30}, str(directory)]
    assert slices_of() == [directory]


def test_an_opened_slice_has_its_own_name_and_is_released(stub: StubServer) -> None:
    with hami_py.slice(name="train", keep=True) as made:
        opened = hami_py.open_slice(made.id[:8])
        assert (opened.name, opened.id, opened.directory) == ("train", made.id, made.directory)
    with pytest.raises(hami_py.SliceInUse):
        hami_py.remove_slice("train")
    opened.close()
    hami_py.remove_slice("train")


def test_an_unreferenced_slice_is_released(stub: StubServer, slices_of: Slices) -> None:
    with pytest.warns(ResourceWarning, match=r"slice\.json"):
        assert hami_py.slice().directory.exists()
        gc.collect()
    with hami_py.slice() as s:
        assert slices_of() == [s.directory]


def test_a_joined_program_keeps_the_slice_after_its_creator(
    hami: Hami, running: Callable[..., Started], slices_of: Slices
) -> None:
    with running("run", "--name", "train", "--", *HOLD) as maker:
        with running("run", "--join", "train", "--", *HOLD) as other:
            maker.finish()
            assert [slice_["state"] for slice_ in listed(hami)] == ["running"]
            other.finish()
        assert slices_of() == []


def test_joining_can_only_lower_limits(hami: Hami, slices_of: Slices) -> None:
    """A program that joins from another slice stays in that one, and in those around the other."""
    me = [sys.executable, str(Path(machine.__file__))]
    inner = ["run", "--name", "inner", "--keep", "--gpumem", "8GiB", "--", "true"]
    hami("run", "--name", "outer", "--keep", "--gpumem", "4GiB", "--", *me, *inner)
    by_name = {slice_["name"]: slice_["directory"] for slice_ in listed(hami)}
    report = ["--", sys.executable, "-c", REPORT]
    done = hami("run", "--join", "inner", *report)
    limits, inside = json.loads(done.stdout)
    assert set(limits.values()) == {4 << 30}
    assert inside == f"{by_name['outer']}:{by_name['inner']}"
    done = hami("run", "--gpumem", "1GiB", "--", *me, "run", "--join", "inner", *report)
    limits, inside = json.loads(done.stdout)
    assert set(limits.values()) == {1 << 30}
    assert inside.endswith(f":{by_name['outer']}:{by_name['inner']}")
    assert hami("rm", "outer").returncode == 0
    done = hami("run", "--join", "inner", "--", "echo", "ran")
    refused(done, 125, "slice inner", f"{by_name['outer']} around it was removed", "hami rm")


@pytest.mark.parametrize(
    "options",
    [
        ["--gpumem=1GiB"],
        ["--gpucores=30", "--mode=soft", "--priority=low"],
        ["--device=0"],
        ["--keep", "--name=x"],
    ],
)
def test_joining_takes_no_other_options(hami: Hami, options: list[str]) -> None:
    hami("run", "--name", "train", "--keep", "--", "true")
    done = hami("run", "--join", "train", *options, "--", "echo", "ran")
    refused(done, 125, 'join: "train" is refused', "leave out --join for a new slice")
    for option in options:
        assert option.partition("=")[0] in done.stderr


def test_the_name_of_a_slice_without_one_names_no_slice(stub: StubServer) -> None:
    with hami_py.slice() as s:
        for call in (hami_py.open_slice, hami_py.remove_slice):
            with pytest.raises(hami_py.InvalidValue, match=r'name_or_id: "None" is refused: write'):
                call(s.name)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [["run", "--join", "{}", "--", "true"], ["rm", "{}"]])
def test_a_missing_slice(hami: Hami, arguments: list[str]) -> None:
    code = 125 if arguments[0] == "run" else 1
    for name, shown in (("nope", "nope"), ("", '""'), ("a\nb", '"a\\nb"'), ("..", "..")):
        done = hami(*(argument.format(name) for argument in arguments))
        refused(
            done, code, f"slice {shown}: you have no slice with this name or id", "`hami ps` lists"
        )


def test_the_start_of_an_id_that_means_several_is_refused(
    settings: Settings, hami: Hami, slices_of: Slices
) -> None:
    """Makes 17 slices, so that two ids begin with the same digit."""
    for _ in range(17):
        hami("run", "--keep", "--", "true")
    by_digit: dict[str, list[str]] = {}
    for directory in slices_of():
        by_digit.setdefault(directory.name[0], []).append(directory.name)
    digit, ids = next(item for item in by_digit.items() if len(item[1]) > 1)
    with pytest.raises(hami_py.UnknownSlice, match="several ids start with it: ") as caught:
        remove(settings, digit)
    assert all(id_[:12] in caught.value.why for id_ in ids)
    assert caught.value.fix == "write more of the id"
    assert len(slices_of()) == 17


def test_a_name_wins_over_the_start_of_an_id(hami: Hami, slices_of: Slices) -> None:
    hami("run", "--keep", "--", "true")
    (first,) = slices_of()
    hami("run", "--keep", "--name", first.name[0], "--", "true")
    assert hami("rm", first.name[0]).returncode == 0
    assert slices_of() == [first]


# Removing.


def names(hami: Hami) -> list[str]:
    return [slice_["name"] for slice_ in listed(hami)]


def test_a_slice_in_use_is_not_removed_and_all_others_are(
    hami: Hami, running: Callable[..., Started]
) -> None:
    hami("run", "--name", "a", "--keep", "--", "true")
    hami("run", "--name", "b", "--keep", "--", "true")
    with running("run", "--name", "busy", "--", *HOLD) as busy:
        (pid,) = (p["pid"] for s in listed(hami) for p in s["processes"])
        done = hami("rm", "a", "busy", "b")
        pids = ", ".join(map(str, sorted([pid, busy.pid])))
        assert done.returncode == 1
        assert f"slice busy: it is in use by process {pids}; end them (`kill " in done.stderr
        # A program of another test that has the library may be in the others.
        until(lambda: names(hami) == ["busy"] or not hami("rm", "a", "b"))
        busy.finish()


def test_a_slice_that_python_has_open_is_in_use(stub: StubServer) -> None:
    with hami_py.slice(name="mine", keep=True):
        with pytest.raises(hami_py.SliceInUse) as caught:
            hami_py.remove_slice("mine")
        assert caught.value.pids == (os.getpid(),)
    assert [slice_.state for slice_ in hami_py.list_slices()] == ["kept"]
    hami_py.remove_slice("mine")
    assert hami_py.list_slices() == []


def test_a_slice_without_its_creator_is_in_use_while_a_process_is_in_it(
    stub: StubServer, start: Callable[..., Any]
) -> None:
    with hami_py.slice(keep=True) as s:
        process = start(s, "hold", "1")
    with pytest.raises(
        hami_py.SliceInUse, match=f"it is in use by process {process.pid}; end"
    ) as e:
        hami_py.remove_slice(s.id)
    assert e.value.pids == (process.pid,)
    assert [slice_.state for slice_ in hami_py.list_slices()] == ["running"]


@pytest.mark.parametrize("damage", ["limits", "account", "slice.json"])
def test_a_damaged_slice_is_shown_as_such_and_can_be_removed(
    hami: Hami, running: Callable[..., Started], slices_of: Slices, damage: str
) -> None:
    with running("run", "--name", "train", "--", *HOLD) as program:
        (directory,) = slices_of()
        # In place: the lock of the record is the file's.
        os.truncate(directory / damage, 1)
        (slice_,) = listed(hami)
        assert slice_["state"] == "damaged"
        assert damage in slice_["damage"] or "bytes" in slice_["damage"]
        assert "damaged" in hami("ps").stdout
        refused(hami("rm", directory.name), 1, "it is in use by process")
        program.kill()
        # A program of another test that has the library may be in it.
        until(lambda: hami("rm", directory.name).returncode == 0)
    assert slices_of() == []


def test_a_damaged_record_cannot_be_joined(
    hami: Hami, running: Callable[..., Started], slices_of: Slices
) -> None:
    with running("run", "--", *HOLD):
        (directory,) = slices_of()
        os.truncate(directory / "slice.json", 1)
        done = hami("run", "--join", directory.name, "--", "echo", "ran")
        refused(done, 125, "its slice.json cannot be read", f"hami rm {directory.name}")


def test_a_failed_removal_is_reported(hami: Hami, slices_of: Slices) -> None:
    hami("run", "--keep", "--name", "odd", "--", "true")
    (directory,) = slices_of()
    (directory / "folder").mkdir()
    refused(hami("rm", "odd"), 1, "slice odd: a file in it cannot be removed", "rm -r")
