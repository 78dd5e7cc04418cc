"""``hami run`` is out of the way: exit codes, arguments, standard input."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.running import run
from unit import machine
from unit.machine import DEADLINE, Hami


@pytest.mark.parametrize("code", [0, 1, 2, 7, 125, 126, 127, 255])
def test_the_exit_code_is_the_programs(hami: Hami, code: int) -> None:
    done = hami("run", "--", "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "ABRT", "INT", "PIPE", "HUP", "USR1"])
def test_a_death_by_signal_is_passed_on_as_one(
    hami: Hami, slices_of: Callable[[], list[Path]], name: str
) -> None:
    done = hami("run", "--", "sh", "-c", f"kill -{name} $$")
    assert done.returncode == -signal.Signals[f"SIG{name}"]
    assert slices_of() == []


def test_a_shell_sees_the_signal(hami: Hami) -> None:
    shell = ["sh", "-c", '"$@"; echo $?', "sh"]
    done = hami("run", "--", "sh", "-c", "kill -9 $$", around=shell)
    assert done.stdout == "137\n"


def test_a_death_by_signal_leaves_no_core_file_of_ours(runtime: Path, tmp_path: Path) -> None:
    """The kernel says whether it dumped one, to a file or to a program."""
    raised = 'ulimit -S -c "$(ulimit -H -c)" && exec "$@"'
    program = ["sh", "-c", "ulimit -c 0; kill -SEGV $$"]
    with subprocess.Popen(
        ["sh", "-c", raised, "sh", *machine.command("run", "--", *program)],
        env=machine.environment(runtime),
        cwd=tmp_path,
    ) as process:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert (ended.si_code, ended.si_status) == (os.CLD_KILLED, signal.SIGSEGV)


def test_a_missing_program_is_127(hami: Hami) -> None:
    for name in ("no-such-program", "/no/such/program"):
        done = hami("run", "--", name)
        assert done.returncode == 127
        assert done.stderr.startswith(f"hami: {name}: program not found")
        assert done.stderr.count("\n") == 1


def test_a_program_that_cannot_be_executed_is_126(hami: Hami, tmp_path: Path) -> None:
    plain, empty = tmp_path / "plain", tmp_path / "empty"
    plain.write_text("#!/bin/sh\n")
    empty.touch()
    empty.chmod(0o755)
    for path, why in [
        (plain, "Permission denied"),
        (tmp_path, "Permission denied"),
        (empty, "Exec format error"),
        ("", "posix_spawnp: argv first element cannot be empty"),
    ]:
        done = hami("run", "--", str(path))
        assert done.returncode == 126
        shown = path or '""'
        assert done.stderr.startswith(f"hami: {shown}: {why}")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["--gpumem"], ["--no-such-option", "true"], ["--device", "7", "true"], ["--gpumem", "x"]],
)
def test_an_invalid_command_line_is_125(hami: Hami, arguments: list[str]) -> None:
    done = hami("run", *arguments)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("hami: ")
    assert done.stderr.count("\n") == 1


def test_without_a_driver_it_is_125(runtime: Path) -> None:
    """The real NVML, looked for where there is none."""
    command = [sys.executable, "-c", NO_NVML, "run", "--", "echo", "ran"]
    done = run(command, machine.environment(runtime))
    assert (done.code, done.out) == (125, "")
    assert done.err.startswith("hami: NVML: libnvidia-ml.so.1 was not found; install the NVIDIA")


NO_NVML = """import pynvml
def missing(name): raise OSError(name)
pynvml.CDLL = missing
from hami_py.cli import main
main()"""


def test_bytes_that_are_no_text_reach_the_program(runtime: Path) -> None:
    done = subprocess.run(
        [*machine.command("run", "--", "printf", "%s"), b"\xff"],
        env=machine.environment(runtime),
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == b"\xff"


def test_options_after_the_program_are_the_programs(hami: Hami) -> None:
    for separator in ([], ["--"]):
        done = hami("run", *separator, "echo", "--gpumem", "1", "--", "-x", "")
        assert (done.returncode, done.stdout) == (0, "--gpumem 1 -- -x \n")


def test_standard_input_and_output_are_the_programs(runtime: Path) -> None:
    data = bytes(range(256)) * 1000
    done = subprocess.run(
        machine.command("run", "--", "cat"),
        env=machine.environment(runtime),
        input=data,
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == data


STATE = """import json, os, signal
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
ignored = [s for s in signal.valid_signals()
    if int(open('/proc/self/status').read().split('SigIgn:')[1].split()[0], 16) >> (s - 1) & 1]
print(sorted(map(int, blocked)), sorted(map(int, ignored)))
print(sorted(os.listdir('/proc/self/fd')), os.getpgid(0) == os.getpgid(os.getppid()))"""


def test_a_program_starts_as_it_would_without_us(runtime: Path) -> None:
    """Signal mask, ignored signals, open files, process group; Python ignores SIGPIPE by itself."""
    program = [sys.executable, "-c", STATE]
    bare, limited = (
        subprocess.run(
            ["sh", "-c", 'trap "" USR1; "$@"; exit', "sh", *command],
            env=machine.environment(runtime),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        ).stdout
        for command in (program, machine.command("run", "--", *program))
    )
    assert limited == bare
