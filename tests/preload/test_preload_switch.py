"""Limits for all programs of a machine: the loader's own list names the library."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.launcher import until
from support.requirements import skip_or_fail
from support.running import Started
from support.tiers import amount
from support.whole_machine import WholeMachine, memory_in

GIB = 1 << 30

#: What an administrator may have written, without a last end of line.
OTHERS = "# /usr/lib/hami/libvgpu.so was off\n/usr/lib/libother.so"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root switches it")


@pytest.fixture
def machine(artifacts, hami, program):
    with contextlib.closing(WholeMachine(artifacts, hami, program)) as made:
        yield made


def test_a_user_s_programs_are_limited_however_they_start(machine):
    before = machine.sees("/run/memory")
    machine.serve()
    # Under an administrator's umask, users must be able to read the library all the same.
    script = f"umask 077 && exec {sys.executable} -m hami_py machine preload on"
    on = machine.starts("sh", "-c", script, env=machine.env)
    assert (on.code, on.out, on.err) == (0, "", "")
    assert machine.hami("machine", "status").out == (
        "service: runs\n"
        "preload on: all programs are limited\n"
        "slices: 0; `hami ps --all` lists those that you may see\n"
    )
    as_anna = ["setpriv", "--reuid=anna", "--regid=anna", "--init-groups"]
    for words in (
        ["su", "-", "anna", "-c", "/run/memory"],
        [*as_anna, "env", "-i", "/run/memory"],
        [*as_anna, "setsid", "--wait", "/run/memory"],
        [*as_anna, "unshare", "--user", "--map-root-user", "/run/memory"],
        ["su", "anna", "-c", "LD_PRELOAD= exec sh -c 'exec /run/memory'"],
    ):
        assert machine.sees(*words) == 4 * GIB, words
    assert "grants you no card" in machine.sees("su", "-", "bert", "-c", "/run/memory")
    assert machine.sees("/run/memory") == before, "root"
    # What a user can do about it, as docs/security.md says.
    covered = "mount --bind /dev/null /etc/ld.so.preload && exec /run/memory"
    free = machine.sees(*as_anna, "unshare", "-Urm", "sh", "-c", covered)
    assert free == before
    lower = machine.sees(*as_anna, "env", "CUDA_DEVICE_MEMORY_LIMIT=1g", "/run/memory")
    higher = machine.sees(*as_anna, "env", "CUDA_DEVICE_MEMORY_LIMIT=9g", "/run/memory")
    assert (lower, higher) == (GIB, 4 * GIB)
    limited = machine.hami("run", "--gpumem", "1GiB", "--", "/run/memory")
    assert (memory_in(limited.out), limited.err) == (GIB, ""), (
        "both copies of the library are there"
    )
    off = machine.hami("machine", "preload", "off")
    assert (off.code, off.err) == (0, "")
    assert not (machine.root / "etc/ld.so.preload").exists()
    assert machine.sees("su", "-", "bert", "-c", "/run/memory") == before
    assert "preload off" in machine.hami("machine", "status").out


def test_switching_it_on_without_the_service_says_who_is_limited(machine):
    on = machine.hami("machine", "preload", "on")
    assert (on.code, "no user is limited until the service runs" in on.out) == (0, True), on
    machine.serve()
    machine.service.kill()
    on = machine.hami("machine", "preload", "on")
    assert (on.code, "keep their limits, and others get no card" in on.out) == (0, True), on
    refused = machine.sees("su", "-", "anna", "-c", "/run/memory")
    assert "hami machine does not say" in str(refused)


def test_nothing_is_left_when_it_is_uninstalled(machine):
    machine.serve()
    assert machine.hami("machine", "preload", "on").code == 0
    assert machine.sees("su", "-", "anna", "-c", "/run/memory") == 4 * GIB
    running = machine.hami("machine", "uninstall")
    assert (running.code, "end it first" in running.err) == (1, True), running
    machine.service.kill()
    done = machine.hami("machine", "uninstall")
    assert (done.code, done.err) == (0, ""), done
    for path in ("etc/ld.so.preload", "run/hami", "var/lib/hami", "usr/lib/hami/machine"):
        assert not (machine.root / path).exists(), path
    assert (machine.root / "etc/hami/machine.toml").exists()
    assert machine.sees("su", "-", "bert", "-c", "/run/memory") == machine.sees("/run/memory")


@pytest.mark.tier("ci")
def test_a_job_of_cron_is_limited(machine):
    """Takes up to a minute: cron starts jobs at its beginning."""
    if shutil.which("cron") is None:
        skip_or_fail("cron is not here")
    machine.serve()
    assert machine.hami("machine", "preload", "on").code == 0
    (machine.root / "etc/cron.d/memory").write_text(
        "* * * * * anna /run/memory >/tmp/memory-of-cron 2>&1; mv /tmp/memory-of-cron /run/lock/\n"
    )
    (machine.root / "run/lock").mkdir(mode=0o777)
    (machine.root / "run/lock").chmod(0o777)
    found = machine.root / "run/lock/memory-of-cron"
    with Started(machine.enter("cron", "-f"), {}):
        until(found.exists, "cron has started the job")
    assert memory_in(found.read_text()) == 4 * GIB, found.read_text()


@pytest.mark.timeout(1200)
def test_switching_disturbs_no_program_that_starts(machine):
    """Programs start all the time while it is switched."""
    loop = "while [ -e /run/on ]; do /bin/true && ls / && id -u; done >/dev/null && echo clean"
    (machine.root / "run/on").touch()
    other = machine.root / "etc/ld.so.preload"
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(Started(machine.enter("sh", "-c", loop), {})) for _ in range(2)]
        for _ in range(amount("times that all programs' limits are switched")):
            for switch in ("on", "off"):
                done = machine.hami("machine", "preload", switch)
                assert (done.code, done.err) == (0, ""), done
        (machine.root / "run/on").unlink()
        for each in busy:
            done = each.finish()
            assert (done.code, done.out, done.err) == (0, "clean\n", "")
    assert not other.exists()


def test_lines_of_others_stay(machine, artifacts):
    mine = shutil.copy(artifacts.clock, machine.root / "usr/lib/libother.so")
    Path(mine).chmod(0o755)
    preload = machine.root / "etc/ld.so.preload"
    preload.symlink_to("preload.real")
    preload.write_text(OTHERS)
    preload.chmod(0o640)
    assert machine.hami("machine", "preload", "on").code == 0
    for _ in range(2):
        assert preload.read_text() == f"{OTHERS}\n/usr/lib/hami/libvgpu.so\n"
        assert machine.hami("machine", "preload", "on").code == 0
    assert machine.hami("machine", "preload", "off").code == 0
    assert preload.read_text() == f"{OTHERS}\n"
    assert preload.is_symlink()


@pytest.mark.parametrize("damage", ["a dependency", "a symbol", "all of it", "half of it"])
def test_a_library_that_stops_programs_is_refused(machine, artifacts, program, tmp_path, damage):
    bad = tmp_path / "bad.so"
    if damage == "a dependency":
        needed = tmp_path / "libneeded.so"
        shutil.copy(program("empty"), needed)
        shutil.copy(program("empty", f"-L{tmp_path}", "-Wl,--no-as-needed", "-l:libneeded.so"), bad)
        needed.unlink()
    elif damage == "a symbol":
        shutil.copy(program("missing_function"), bad)
    else:
        content = artifacts.library.read_bytes()
        bad.write_bytes(content[: len(content) // 2] if damage == "half of it" else b"no library")
    done = machine.hami("machine", "preload", "on", env={"HAMI_LIBRARY": str(bad)})
    assert done.code == 1, done
    refused = "not a whole library" if "of it" in damage else "programs do not start with it"
    assert refused in done.err
    assert not (machine.root / "etc/ld.so.preload").exists()
    assert not (machine.root / "usr/lib/hami/libvgpu.so").exists()
    assert machine.starts("true").err == ""


def test_the_doctor_says_what_the_service_lets_its_user_have(machine):
    policy = machine.root / "etc/hami/machine.toml"
    policy.write_text('[user.anna]\ngpumem = "4GiB"\ngpucores = 50\n')
    machine.serve()
    assert machine.hami("machine", "preload", "on").code == 0
    # Python may be there.
    assert machine.starts("chmod", "711", "/root").code == 0
    as_anna = ["setpriv", "--reuid=anna", "--regid=anna", "--init-groups"]

    def hami(*words):
        command = [*as_anna, sys.executable, "-m", "hami_py", *words]
        return machine.starts(*command, env={**machine.env, "HAMI_RUNTIME_DIR": "/run/anna"})

    assert machine.sees(*as_anna, "/run/memory") == 4 * GIB
    done = hami("doctor")
    has = "your default slice has 4GiB, 50% of card 0"
    assert (done.code, done.lines[0]) == (0, f"ok   hami machine: it runs; {has}"), done
    assert "ok   coordinator: the service hami machine runs it" in done.lines
    assert any(line.startswith("ok   limit on card 0: ") for line in done.lines), done
    kept = hami("run", "--keep", "--name", "all", "--", "true")
    assert kept.code == 0, kept
    done = hami("doctor")
    assert (done.code, done.lines[0].endswith("has 1B, 1% of card 0")) == (0, True), done
    assert any(line.startswith("note limit on card 0: not tested: ") for line in done.lines), done
    assert hami("rm", "all").code == 0
    policy.write_text('[user.anna]\ncards = "none"\n')
    until(lambda: "grants you no card" in str(machine.sees(*as_anna, "/run/memory")), "no card")
    done = hami("doctor")
    assert (done.code, "FAIL hami machine: [user.anna]" in done.lines[0]) == (1, True), done
    assert [line.partition(":")[0].strip() for line in done.lines] == ["FAIL hami machine", "fix"]
