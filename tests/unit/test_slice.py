"""``hami.slice``: real programs in it on a stub GPU, whose ledger says what they really hold."""

import asyncio
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hami_py as hami
from hami_py import _native
from support.programs import Programs
from support.slices import GIB, MIB
from support.stub import StubServer
from unit.machine import DEADLINE, end

Start = Callable[..., "subprocess.Popen[str]"]
Slices = Callable[[], list[Path]]


def grants(process: "subprocess.Popen[str]", mebibytes: int, ordinal: int = 0) -> bool:
    """Whether ``probe`` gets so much now."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{mebibytes} {ordinal}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer in {"0\n", "2\n"}
    return answer == "0\n"


# Programs in it.


def test_its_programs_share_its_limit(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="1GiB") as s:
        start(s, "hold", "600")
        probe = start(s, "probe")
        assert grants(probe, 424)
        assert not grants(probe, 425)
        assert stub.held() == 600 * MIB
    assert stub.peak() == GIB


def test_each_card_has_its_own_limit(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem={"0": "100MiB", stub.uuids()[1]: "200MiB"}) as s:
        probe = start(s, "probe")
        assert [grants(probe, mebibytes, 0) for mebibytes in (100, 101)] == [True, False]
        assert [grants(probe, mebibytes, 1) for mebibytes in (200, 201)] == [True, False]
        assert [card.memory for card in s.limits().cards] == [100 * MIB, 200 * MIB]
    assert (stub.peak(0), stub.peak(1)) == (100 * MIB, 200 * MIB)


def test_the_chosen_cards_are_visible_in_the_chosen_order(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="100MiB", devices=["1"]) as s:
        start(s, "hold", "64")
        assert (stub.held(0), stub.held(1)) == (0, 64 * MIB)


def test_run_is_subprocess_run(stub: StubServer) -> None:
    with hami.slice(gpumem="1GiB") as s:
        done = s.run(["sh", "-c", "echo $X; exit 7"], env={**os.environ, "X": "1"}, text=True)
        assert done.returncode == 7
        done = s.run(["sh", "-c", 'echo "$HAMI_SLICE"'], capture_output=True, text=True)
        assert done.stdout == f"{s.directory}\n"
        assert s.run(["cat"], input=b"\xff", capture_output=True).stdout == b"\xff"
        with pytest.raises(subprocess.CalledProcessError):
            s.run(["false"], check=True)


def test_programs_started_otherwise_join_by_the_environment(
    stub: StubServer, program: Programs
) -> None:
    with hami.slice(gpumem="100MiB") as s:
        environment = s.environment({**stub.env, "X": "1"})
        done = subprocess.run(
            [program("allocate"), "101"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "-> 2" in done.stdout
        assert set(environment) - set(stub.env) == {"X", "LD_PRELOAD", "HAMI_SLICE"}
        assert "X" not in s.environment()


def test_a_changed_environment_counts(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with hami.slice() as s:
        monkeypatch.setenv("LATER", "1")
        assert s.environment()["LATER"] == "1"


@pytest.mark.parametrize(
    ("asked", "field", "value", "fix"),
    [
        ({"gpumem": {0: "4GiB"}}, "gpumem", "0", "as a string, like {'0': '4GiB'}"),
        ({"devices": [0.5]}, "devices", "0.5", "as a string, like ['0']"),
        ({"devices": "01"}, "devices", "01", "write a list, like ['0']"),
        ({"devices": None}, "devices", "None", "write a list, like ['0']"),
        ({"gpumem": {}}, "gpumem", "{}", "name at least one card in it"),
        ({"gpucores": {}}, "gpucores", "{}", "name at least one card in it, like {'0': 30}"),
        ({"gpucores": {0: 30}}, "gpucores", "0", "as a string, like {'0': 30}"),
        ({"gpucores": 0.3}, "gpucores", "0.3", "write a whole number from 1 to 100, like 30"),
        ({"mode": "Soft"}, "mode", "Soft", "write hard or soft"),
        ({"priority": 0}, "priority", "0", "write low, normal or high"),
        ({"name": "a b"}, "name", "a b", "write 1 to 63 letters and digits"),
        ({"name": 7}, "name", "7", "write 1 to 63 letters and digits"),
    ],
)
def test_an_invalid_request_is_refused_before_anything_is_created(
    asked: dict[str, object], field: str, value: str, fix: str
) -> None:
    with pytest.raises(hami.InvalidValue) as caught:
        hami.slice(**asked)  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == (field, value)
    assert fix in caught.value.fix


def test_a_new_slice_has_the_share_of_hami_s_variables(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def regime(**asked: object) -> tuple[object, ...]:
        with hami.slice(**asked) as s:  # type: ignore[arg-type]
            page = s.directory / "limits"
            row = _native.LimitsPage.open(page).rows()[0]
            return row.share, row.mode, row.priority

    monkeypatch.setenv("CUDA_DEVICE_SM_LIMIT", "40")
    monkeypatch.setenv("GPU_CORE_UTILIZATION_POLICY", "force")
    monkeypatch.setenv("CUDA_TASK_PRIORITY", "0")
    assert regime() == (40, "hard", "high")
    assert regime(gpucores=30, mode="soft", priority="low") == (30, "soft", "low")
    monkeypatch.setenv("GPU_CORE_UTILIZATION_POLICY", "disable")
    assert regime() == (None, "hard", "high")


def test_a_missing_card_is_refused(stub: StubServer, slices_of: Slices) -> None:
    for asked in ({"devices": ["7"]}, {"gpumem": {"7": "1GiB"}}):
        with pytest.raises(hami.UnknownCard, match=r"7: there is no such card; choose from: 0"):
            hami.slice(**asked).directory  # type: ignore[arg-type]  # noqa: B018
    with pytest.raises(hami.UnknownCard, match=r"gpumem 0: it is not among the chosen cards; cho"):
        hami.slice(gpumem={"0": "1GiB"}, devices=["1"]).environment()
    assert slices_of() == []


# Usage.


def test_usage_is_per_card_and_process_and_the_ledger_agrees(
    stub: StubServer, start: Start
) -> None:
    with hami.slice(gpumem={"0": "1GiB", "1": "2GiB"}) as s:
        first, second = start(s, "hold", "100", "0"), start(s, "hold", "300", "1")
        refused = start(s, "probe")
        assert not grants(refused, 1000)
        cards = s.usage().cards
        assert [card.uuid for card in cards] == stub.uuids()
        assert [card.memory_used for card in cards] == [stub.held(0), stub.held(1)]
        assert [card.memory_limit for card in cards] == [GIB, 2 * GIB]
        assert [card.memory_free for card in cards] == [924 * MIB, 2048 * MIB - 300 * MIB]
        card = {"uuid": stub.uuids()[0], "alive": True}
        assert set(cards[0].processes) == {
            hami.ProcessUsage(**card, pid=first.pid, memory_used=100 * MIB),
            hami.ProcessUsage(**card, pid=refused.pid, refusals=1),
        }
        (process,) = cards[1].processes
        assert (process.pid, process.memory_used) == (second.pid, 300 * MIB)


def test_its_processes_are_listed_also_those_without_gpu_use(
    stub: StubServer, start: Start
) -> None:
    with hami.slice(gpumem="1GiB") as s:
        assert s.processes() == ()
        holder = start(s, "hold", "100")
        command = ("cat",)
        with s.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
            assert idle.stdin is not None
            assert idle.stdout is not None
            # It echoes, so it has been executed.
            idle.stdin.write(b"up\n")
            idle.stdin.flush()
            assert idle.stdout.readline() == b"up\n"
            found = {process.pid: process for process in s.processes()}
        assert set(found) == {holder.pid, idle.pid}
        user = pwd.getpwuid(os.getuid()).pw_name
        assert found[idle.pid] == hami.SliceProcess(idle.pid, command, (), user=user)
        held = hami.Use(uuid=stub.uuids()[0], memory_used=100 * MIB)
        assert found[holder.pid].cards == (held,)


def test_memory_of_a_dead_process_is_not_counted(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="1GiB") as s:
        process = start(s, "hold", "100")
        process.kill()
        process.communicate(timeout=DEADLINE)
        card = s.usage().cards[0]
        assert (card.memory_used, card.memory_free) == (0, GIB)
        # It is listed until the grace period has passed: counted by looks, not by the clock.
        looks = 0
        while s.usage().cards[0].processes:
            looks += 1
            assert looks < 100_000


# Resizing.


def test_shrinking_below_the_use_frees_nothing_and_stops_allocation(
    stub: StubServer, start: Start
) -> None:
    with hami.slice(gpumem="1GiB") as s:
        holder, probe = start(s, "hold", "600"), start(s, "probe")
        with pytest.warns(UserWarning, match="in use"):
            s.resize(gpumem="500MiB")
        assert stub.held() == 600 * MIB
        assert not grants(probe, 1)
        end(holder)
        stub.wait_until(lambda server: server.held() == 0)
        assert grants(probe, 500)
        assert not grants(probe, 501)


def test_refusals_of_ended_processes_are_counted(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="100MiB") as s:
        probe = start(s, "probe")
        assert not grants(probe, 101)
        (process,) = s.usage().cards[0].processes
        assert (process.refusals, s.usage().cards[0].refusals) == (1, 1)
        end(probe)
        assert [card.refusals for card in s.usage().cards] == [1, 0]


def test_an_invalid_resize_is_reported_and_nothing_changes(stub: StubServer) -> None:
    with hami.slice(gpumem="100MiB", devices=["1"]) as s:
        with pytest.raises(hami.InvalidValue) as bad:
            s.resize(gpumem="4 gigs")
        assert (bad.value.field, bad.value.value) == ("gpumem", "4 gigs")
        with pytest.raises(hami.InvalidValue, match=r'gpumem: "None" is refused: write a size'):
            s.resize(gpumem=None)  # type: ignore[arg-type]
        with pytest.raises(hami.InvalidValue, match=r'gpumem: "{}" is refused: name at least one'):
            s.resize(gpumem={})
        with pytest.raises(hami.UnknownCard, match=r"gpumem 7: there is no such card; choose"):
            s.resize(gpumem={"1": "10MiB", "7": "1GiB"})
        with pytest.raises(hami.UnknownCard, match=r"gpumem 0: the slice does not have it; leave"):
            s.resize(gpumem={"1": "10MiB", "0": "1GiB"})
        assert [card.memory for card in s.limits().cards] == [100 * MIB]


def test_a_process_in_a_slice_can_resize_another_slice(stub: StubServer) -> None:
    """There NVML shows the own slice's cards alone, and as large as its limit."""
    resize = (
        "import hami_py as hami, warnings\n"
        "warnings.simplefilter('error')\n"
        "with hami.open_slice('other') as other:\n"
        "    other.resize('3GiB')\n"
        "    print([card.memory for card in hami.limits().cards])\n"
    )
    with hami.slice(gpumem="4GiB", name="other") as other:
        done = hami.run(
            [sys.executable, "-c", resize],
            gpumem="1GiB",
            devices=["1"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"[{1024 * MIB}]\n"
        assert [card.memory for card in other.limits().cards] == [3072 * MIB] * 2


def test_a_size_above_the_card_is_lowered_and_reported(stub: StubServer) -> None:
    total = stub.ledger()["cards"][0]["total"]
    with hami.slice(gpumem="100MiB", devices=["0"]) as s:
        with pytest.warns(UserWarning, match="gpumem 1TiB is more than card 0") as caught:
            s.resize(gpumem="1TiB")
        assert caught[0].filename == __file__
        assert [card.memory for card in s.limits().cards] == [total]
    lower = hami.slice(gpumem="1TiB", devices=["0"])
    with pytest.warns(UserWarning, match="is more than card 0") as caught, lower:
        pass
    assert [warning.filename for warning in caught] == [__file__]


# Its life.


def test_nothing_is_created_before_it_is_entered_or_used(
    stub: StubServer, slices_of: Slices
) -> None:
    s = hami.slice(gpumem="1GiB", name="later")
    assert (s.name, repr(s), slices_of()) == ("later", "<hami slice later (not created yet)>", [])
    assert s.directory == slices_of()[0]
    assert s.id == s.directory.name
    s.close()
    assert slices_of() == []


def test_a_closed_slice_is_removed_and_raises(stub: StubServer, slices_of: Slices) -> None:
    with hami.slice(gpumem="1GiB", name="train") as s:
        assert slices_of() == [s.directory]
    assert slices_of() == []
    s.close()
    for call in (
        s.environment,
        s.limits,
        s.usage,
        s.processes,
        s.events,
        lambda: s.run(["true"]),
        lambda: s.popen(["true"]),
        lambda: s.resize("1GiB"),
        lambda: asyncio.run(s.create_subprocess_exec("true")),
    ):
        with pytest.raises(
            hami.StateError, match="slice train: it is closed; create or open anoth"
        ):
            call()


def test_it_is_removed_after_an_error(stub: StubServer, slices_of: Slices) -> None:
    with pytest.raises(ZeroDivisionError), hami.slice():
        raise ZeroDivisionError
    assert slices_of() == []


def test_a_closed_slice_exists_until_its_last_program_ends(
    stub: StubServer, start: Start, slices_of: Slices
) -> None:
    with hami.slice(gpumem="100MiB") as s:
        probe = start(s, "probe")
    assert slices_of() == [s.directory]
    assert not grants(probe, 101)
    assert [info.state for info in hami.list_slices()] == ["ending"]
    end(probe)
    with hami.slice() as other:
        assert slices_of() == [other.directory]


def test_a_slice_without_its_files_starts_nothing(stub: StubServer) -> None:
    with hami.slice(name="gone") as s:
        for path in s.directory.iterdir():
            path.unlink()
        s.directory.rmdir()
        with pytest.raises(
            hami.StateError, match="slice gone: its directory was removed; create an"
        ):
            s.run(["true"])
        with pytest.raises(hami.StateError, match="No such file"):
            s.usage()
        assert list(s.events(timeout=0)) == []


def test_a_forked_child_does_not_remove_it(stub: StubServer, slices_of: Slices) -> None:
    with hami.slice() as s:
        child = os.fork()
        if child == 0:
            s.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert slices_of() == [s.directory]
        assert s.run(["true"]).returncode == 0


def test_a_slice_that_was_never_closed_is_removed_by_the_next_start(
    stub: StubServer, slices_of: Slices
) -> None:
    script = (
        "import sys, hami_py as hami\n"
        "from hami_py import gpu\n"
        "gpu.cards = lambda: [hami.Card(0, 'GPU-1', 'A100', 1 << 40)]\n"
        "print(hami.slice().directory)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True
    )
    assert slices_of() == [Path(done.stdout.strip())]
    with hami.slice() as s:
        assert slices_of() == [s.directory]


def test_in_a_slice_another_can_only_lower(stub: StubServer) -> None:
    inner = (
        "import hami_py as hami\n"
        "asked = dict(gpumem='2GiB', gpucores=50, mode='soft', priority='high')\n"
        "with hami.slice(**asked) as s:\n"
        "    (card,) = s.limits().cards\n"
        "    print(card.memory, card.share, card.mode, card.priority, len(hami.list_slices()))\n"
    )
    with hami.slice(gpumem="1GiB", gpucores={"0": 30}, devices=["0"]) as outer:
        done = outer.run([sys.executable, "-c", inner], capture_output=True, text=True, check=True)
        assert done.stdout == f"{GIB} 30 hard normal 2\n"
