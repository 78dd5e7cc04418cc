"""Who uses what on a machine with several users, on the stub: seen, bounded and accounted."""

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from hami_py import config
from hami_py.cli import account, ps
from hami_py.errors import HamiError
from hami_py.model import parse_arguments
from hami_py.slices import SliceRequest, list_slices, open_new
from hami_py.slices.machine import Machine
from support.artifacts import ROOT
from support.console import Console
from support.launcher import until
from support.machine_users import ANNA, BERT
from support.running import Started, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the service runs as root")

MIB, GIB = 1 << 20, 1 << 30

#: Imported here: the users may not read the interpreter's files.
COMMANDS = {"account": account.account, "ps": ps.ps}


def busy_ns(gpu, program):
    rows = [each for each in gpu.ledger()["processes"] if each["pid"] == program.pid]
    return sum(row["cards"][0]["busy_ns"] for row in rows)


def settings_of(machine, user):
    home = machine.users[user].home
    return replace(machine.settings(user), runtime_directory=home / "hami")


def said(machine, user, *arguments):
    """What `hami` prints for this user; the interpreter's files need not be readable by it."""
    settings = settings_of(machine, user)

    def call():
        config.read = lambda: settings
        command = COMMANDS[arguments[0]]
        done = CliRunner().invoke(command, list(map(str, arguments[1:])))
        return done.exit_code, done.output + str(done.exception or "")

    return machine.users[user].call(call)


AS_ROOT = """
import sys
from dataclasses import replace
from pathlib import Path
from hami_py import cli, config
read, runtime = config.read, Path(sys.argv.pop(1))
config.read = lambda environment=None: replace(read(environment), node_runtime=runtime)
cli.main()
"""


def said_to_root(machine, *arguments):
    """What `hami` prints for root."""
    env = {
        **machine.gpu.charging_env,
        "PYTHONPATH": str(ROOT),
        "HAMI_RUNTIME_DIR": str(machine.place),
    }
    done = run([sys.executable, "-c", AS_ROOT, machine.runtime, *map(str, arguments)], env)
    assert done.code == 0, done
    return done.out


def lines_of(machine):
    """The lines that the service has written, read as root."""
    files = sorted((machine.place / "state" / "usage").glob("????-??.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_those_whom_the_policy_names_see_the_slices_of_all(users):
    machine = users(f'see = ["{BERT}"]\n')
    env = machine.slice(ANNA, gpumem="2GiB", gpucores=40)
    program = machine.computes(ANNA, env, 60)
    until(lambda: busy_ns(machine.gpu, program), "it computes")
    directory = Path(env["HAMI_SLICE"])

    def seen(user, everyone):
        settings = settings_of(machine, user)
        return machine.users[user].call(lambda: list_slices(settings, everyone=everyone))

    until(lambda: seen(BERT, True)[0].cards[0].engine_time > 0, "Bert sees the time")
    (slice_,) = seen(BERT, True)
    assert (slice_.id, slice_.owner, slice_.user) == (directory.name, str(ANNA), str(ANNA))
    (card,) = slice_.cards
    assert (card.memory_limit, card.share, card.index) == (2 * GIB, 40, 0)
    assert card.memory_used > 0
    (process,) = [each for each in slice_.processes if each.pid == program.pid]
    assert "async" in process.command
    assert [(use.uuid, use.memory_used) for use in process.cards] == [(card.uuid, card.memory_used)]
    assert [each.id for each in seen(ANNA, True)] == [slice_.id]
    assert [each.id for each in seen(ANNA, False)] == [slice_.id]
    assert seen(BERT, False) == []
    code, out = said(machine, BERT, "ps", "--all", "--processes")
    assert (code, str(ANNA) in out, str(program.pid) in out) == (0, True, True), out
    assert said(machine, BERT, "ps")[1].count("\n") == 1
    out = said_to_root(machine, "top", "--interval", "0.1")
    assert out.count(directory.name[:12]) == 2, "the slice, and that of its process"

    def tries():
        service = Machine(machine.runtime)
        for ask, more in (("set", {"limits": {"memory": GIB}}), ("remove", {}), ("hold", {})):
            with contextlib.suppress(HamiError):
                return service.ask(ask, slice=directory.name, **more)
        return None

    assert machine.users[BERT].call(tries) is None


def reserve(file, where, size):
    """Reserve blocks behind the end of a file, which its size does not show."""
    keep_size = 1
    call = ctypes.CDLL(None, use_errno=True).fallocate
    assert call(file, keep_size, ctypes.c_long(where), ctypes.c_long(size)) == 0, ctypes.get_errno()


def kept(machine, user, **limits):
    """The environment of the programs in a slice of this user, which is kept."""
    settings = settings_of(machine, user)

    def create():
        request = SliceRequest(["load"], parse_arguments(**limits), name="kept", keep=True)
        with contextlib.closing(open_new(settings, request)) as opened:
            return opened.environment(settings.environment)

    return machine.users[user].call(create)


def slot(env):
    return Path(env["HAMI_SLICE"])


def remove(machine, user):
    machine.users[user].call(lambda: Machine(machine.runtime).ask("remove", slice="kept"))


@pytest.mark.parametrize("how", ["written", "reserved"])
def test_a_user_who_fills_an_account_ends_only_the_own_slice(users, how):
    machine = users()
    account = slot(kept(machine, BERT)) / "account"

    def free():
        status = os.statvfs(machine.runtime)
        return status.f_bavail * status.f_frsize

    before = free()
    # Its user can send the open file to programs of others, as to the system bus.
    other = machine.users[ANNA].command("sleep", "60")
    script = f'exec 9<>{account} && echo open && exec "$@"'
    has_it = Started(["sh", "-c", script, "sh", *other], {})
    has_it.wait_for("open")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(BERT)
            os.setuid(BERT)
            file = os.open(account, os.O_RDWR)
            while how == "written":
                os.lseek(file, 0, os.SEEK_END)
                with contextlib.suppress(OSError):
                    os.write(file, bytes(MIB))
            reserve(file, MIB, free() - MIB)
            time.sleep(60)
        os._exit(0)
    until(lambda: not account.exists(), "the service has ended the slice")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert slot(kept(machine, ANNA)).is_dir()
    with has_it:
        assert Path(f"/proc/{has_it.pid}/fd/9").exists(), "programs of others go on"
        until(lambda: free() > before - 8 * MIB, "the memory is free again")
    with pytest.raises(AssertionError, match="wait for 60 s"):
        kept(machine, BERT)


class Integral:
    """What the ledger of the stub says of a card's memory, over time."""

    def __init__(self, gpu):
        self.byte_seconds, self.peak, self._gpu = 0.0, 0, gpu
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()

    def _run(self):
        before, at = 0, time.monotonic()
        while not self._stop.wait(0.01):
            now, used = time.monotonic(), self._gpu.ledger()["cards"][0]["used"]
            self.byte_seconds += (before + used) / 2 * (now - at)
            self.peak = max(self.peak, used)
            before, at = used, now


@pytest.mark.tier("ci")
def test_the_account_is_what_the_ledger_says(users, program):
    """It takes 20 s: the service looks at what processes hold up to ten times a second."""
    machine = users()
    shutil.copy(program("console"), machine.place / "console")
    env = kept(machine, ANNA, gpumem="4GiB", gpucores=60)
    with Integral(machine.gpu) as integral:
        load = machine.computes(ANNA, env, 60)
        prefix = machine.users[ANNA].command()
        with Console(machine.place / "console", env, prefix=prefix) as console:
            console.do("init", "device 0", "alloc a 1G")
            until(lambda: integral.byte_seconds > 50 * GIB, "50 GiB-seconds")
        load.kill()
        machine.gpu.wait_until(lambda gpu: gpu.ledger()["cards"][0]["used"] == 0)
    remove(machine, ANNA)
    until(lambda: lines_of(machine), "the line of the slice is written")
    (line,) = lines_of(machine)
    busy_s = machine.gpu.ledger()["cards"][0]["busy_ns"] / 1e9
    # Within 1 %, and half of a second between two sweeps, in which all of it ends.
    most = 0.01 * integral.byte_seconds + 0.25 * integral.peak
    held = line["held_gib_hours"] * 3600 * GIB
    assert held == pytest.approx(integral.byte_seconds, abs=most)
    assert line["held_peak_bytes"] == integral.peak
    assert line["engine_seconds"] == pytest.approx(busy_s, rel=0.01)
    times = [datetime.fromisoformat(line[end]) for end in ("from", "to")]
    hours = (times[1] - times[0]).total_seconds() / 3600
    assert line["reserved_gib_hours"] == pytest.approx(4 * hours, rel=0.001)
    assert line["reserved_card_hours"] == pytest.approx(0.6 * hours, rel=0.001)
    shown = said(machine, ANNA, "account", "--by", "slice", "--format", "json")[1]
    (row,) = json.loads(shown)
    assert row["slice"] == line["slice"]
    assert row["held_gib_hours"] == line["held_gib_hours"]
    assert row["held_peak_bytes"] == integral.peak
    assert f'"held_peak_bytes": {integral.peak},' in shown, "bytes are whole"
    table = said(machine, ANNA, "account", "--by", "slice")[1]
    assert f" {line['slice'][:12]} " in table, table
    assert said(machine, BERT, "account", "--format", "csv")[1].count("\n") == 1, "only the heads"
    code, out = said(machine, BERT, "account", "--user", str(ANNA))
    assert (code, "you see none of this user" in out) == (1, True), out
    assert said(machine, BERT, "account", "--user", str(BERT))[0] == 0
    assert f"{ANNA} " in said_to_root(machine, "account")
    assert f"{ANNA} " not in said_to_root(machine, "account", "--user", "root")


def test_a_user_sees_the_own_slices_that_have_ended(users):
    machine = users()
    env = kept(machine, ANNA, gpumem="2GiB", gpucores=50)
    with machine.computes(ANNA, env, 60) as load:
        until(lambda: busy_ns(machine.gpu, load), "it computes")
    peak = machine.gpu.peak()
    remove(machine, ANNA)
    code, out = said(machine, ANNA, "ps", "--ended", "--json")
    (summary,) = json.loads(out)
    assert (code, summary["name"], summary["cards"][0]["memory_limit"]) == (0, "kept", 2 * GIB)
    assert summary["cards"][0]["memory_peak"] >= peak
    assert said(machine, BERT, "ps", "--ended", "--json") == (0, "[]\n")
    mine = machine.runtime / f"ended-{ANNA}.jsonl"

    def tries():
        with contextlib.suppress(PermissionError):
            return mine.read_text()
        return None

    def writes():
        with contextlib.suppress(PermissionError):
            return mine.write_text("")
        return None

    assert machine.users[BERT].call(tries) is None
    assert machine.users[ANNA].call(writes) is None


def test_metrics_have_the_user_of_each_slice(users):
    machine = users()
    env = kept(machine, ANNA, gpumem="2GiB", gpucores=50)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (machine.place / "machine.toml").write_text(f'metrics = "127.0.0.1:{port}"\n[default]\n')
        machine.service.kill()
        machine.start()
        assert "no metrics are served" in machine.log, "the service runs"
    machine.service.kill()
    machine.start()

    def value(name, **labels):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            text = page.read().decode()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        return [float(line.split()[-1]) for line in lines if all(x in line for x in wanted)]

    mine = {"user": ANNA, "slice": "kept", "kind": "slice"}
    assert value("hami_slice_memory_limit_bytes", **mine) == [2 * GIB]
    assert value("hami_slice_share_limit_ratio", **mine) == [0.5]
    with machine.computes(ANNA, env, 60):
        until(lambda: value("hami_slice_engine_seconds_total", **mine)[0] > 0, "it computes")
        used = value("hami_slice_memory_used_bytes", **mine)
        assert used == [machine.gpu.ledger()["cards"][0]["used"]]
        until(lambda: value("hami_user_held_byte_seconds_total", user=ANNA)[0] > 0, "it holds")
    until(lambda: value("hami_user_reserved_card_seconds_total", user=ANNA)[0] > 0, "reserved")
    remove(machine, ANNA)
    assert value("hami_slice_memory_limit_bytes", **mine) == []


@pytest.mark.tier("ci")
def test_lines_of_a_service_that_is_killed_do_not_overlap(users):
    """It takes 30 s: the service saves what has no line yet every 10 s."""
    machine = users()
    env = kept(machine, ANNA, gpumem="2GiB", gpucores=50)
    saved = machine.place / "state" / "usage" / "open.json"
    for _ in range(2):
        with machine.computes(ANNA, env, 60) as load:
            at = busy_ns(machine.gpu, load)
            until(lambda load=load, at=at: busy_ns(machine.gpu, load) > at, "it computes")
            saved.unlink(missing_ok=True)
            until(saved.exists, "the open lines are saved")
            machine.service.kill()
            machine.start()
    remove(machine, ANNA)
    until(lambda: len(lines_of(machine)) > 2, "the lines are written")
    spans = sorted((line["from"], line["to"]) for line in lines_of(machine))
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), spans
    busy_s = machine.gpu.ledger()["cards"][0]["busy_ns"] / 1e9
    assert 0 < sum(line["engine_seconds"] for line in lines_of(machine)) <= busy_s * 1.01
