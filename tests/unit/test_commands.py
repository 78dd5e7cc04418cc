"""``hami devices``, ``hami doctor`` and the command line around them, without a driver."""

import json
import os
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from hami_py.cli.doctor.checks import Check, checks
from hami_py.cli.doctor.proof import judge
from hami_py.config import Settings
from hami_py.errors import HamiError
from unit.machine import CARDS, DEADLINE, GIB, Hami, command, environment


def test_devices(hami: Hami) -> None:
    assert hami("devices").stdout == (
        "INDEX  UUID                                      MEMORY  NAME\n"
        "0      GPU-11111111-0000-0000-0000-000000000000  40GiB   NVIDIA A100-SXM4-40GB\n"
        "1      GPU-22222222-0000-0000-0000-000000000000  40GiB   NVIDIA A100-SXM4-40GB\n"
    )
    listed = json.loads(hami("devices", "--json").stdout)
    # There is no NVML here that could list processes.
    assert listed == [{**asdict(card), "processes": []} for card in CARDS]


def test_an_invalid_command_has_exit_code_2(hami: Hami) -> None:
    for arguments in (["frobnicate"], ["devices", "--frob"], ["--frob"]):
        done = hami(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("hami: No such")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["ps"], ["devices"], ["devices", "--json"], ["doctor"]])
def test_a_failed_write_of_output_is_reported_in_one_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments),
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    why = "standard output: No space left on device; redirect it to a file that can be written"
    assert (done.returncode, done.stderr) == (1, f"hami: {why}\n")


@pytest.mark.parametrize("arguments", [[], ["jupyter"]])
def test_no_command_is_one_line_too(hami: Hami, arguments: list[str]) -> None:
    done = hami(*arguments)
    name = " ".join(["hami", *arguments])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hami: Missing command. See `{name} --help`.\n"


def test_every_failed_check_has_a_fix(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No libcuda here, and a library that is not there."""
    missing = config_without_library(settings)
    found = {check.name: check for check in checks(missing)}
    assert found["platform"].ok
    assert not found["driver"].ok
    assert "libcuda.so.1" in found["driver"].detail
    assert found["runtime directory"].ok
    assert not found["preload library"].ok
    assert found["limit"] == Check(
        "limit", False, "not tested", "fix the failed checks above first"
    )
    assert all(bool(check.fix) != check.ok for check in found.values())
    # The name stands before the detail.
    assert found["preload library"].detail == "/nonexistent.so: the file does not exist"
    assert not any(check.detail.startswith(check.name) for check in found.values())


def config_without_library(settings: Settings) -> Settings:
    from hami_py import config

    return config.read({**settings.environment, "HAMI_LIBRARY": "/nonexistent.so"})


def test_a_library_that_cannot_be_loaded_is_reported(settings: Settings, tmp_path: Path) -> None:
    from hami_py import config

    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    settings = config.read({**settings.environment, "HAMI_LIBRARY": str(broken)})
    found = {check.name: check for check in checks(settings)}
    assert not found["preload library"].ok
    assert found["preload library"].detail.startswith(f"{broken}: ")


def test_doctor_counts_and_prints(hami: Hami) -> None:
    done = hami("doctor")
    assert done.returncode == 1
    assert done.stderr == ""
    marks = [line[:4] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert set(marks) == {"ok  ", "FAIL"}
    assert done.stdout.count("fix:") == marks.count("FAIL")
    listed = json.loads(hami("doctor", "--json").stdout)
    assert [check["ok"] for check in listed] == [mark == "ok  " for mark in marks]


WELL = {
    "total": 4 * GIB,
    "free": 4 * GIB,
    "allocated": 4 * GIB,
    "stopped_by": "CUDA_ERROR_OUT_OF_MEMORY",
}


def test_an_enforced_limit() -> None:
    assert "100.0%" in judge(WELL, 4 * GIB)


def test_memory_of_the_driver_itself_is_reported() -> None:
    left = 3 * GIB
    assert "uses 1GiB of it" in judge({**WELL, "free": left, "allocated": left}, 4 * GIB)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"total": 40 * GIB}, "a program sees 40GiB, not 4GiB"),
        ({"allocated": 4 * GIB + 1}, "4294967297B were allocated under a limit of 4GiB"),
        ({"stopped_by": "CUDA_ERROR_UNKNOWN"}, "stopped by CUDA_ERROR_UNKNOWN"),
        ({"stopped_by": None}, "stopped by no error"),
        ({"allocated": 2 * GIB}, "only 2GiB of 4GiB could be allocated"),
    ],
)
def test_a_limit_that_is_not_enforced(seen: dict[str, object], why: str) -> None:
    with pytest.raises(HamiError, match=why):
        judge({**WELL, **seen}, 4 * GIB)


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("relative", "is not an absolute path"),
        ("/nowhere/at all\x1b[31m", "cannot be used (No such file or directory)"),
        (f"/{'x' * 300}", "cannot be used (File name too long)"),
        ("/etc/passwd", "is not a directory"),
    ],
)
def test_a_runtime_directory_that_is_ignored_is_reported(hami: Hami, named: str, why: str) -> None:
    done = hami("ps", HAMI_RUNTIME_DIR=named)
    shown = json.dumps(named) if "\x1b" in named else named
    assert done.returncode == 0
    told = f"hami: HAMI_RUNTIME_DIR={shown} {why}, and is ignored; slices are in /tmp/"
    assert re.fullmatch(re.escape(told) + r"\S+\n", done.stderr)
    assert hami("--version", HAMI_RUNTIME_DIR=named).stderr == ""
    assert hami("ps").stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives a directory away")
def test_another_users_runtime_directory_is_ignored_with_a_line(hami: Hami, tmp_path: Path) -> None:
    os.chown(tmp_path, 64001, 64001)
    done = hami("ps", HAMI_RUNTIME_DIR=str(tmp_path))
    assert f"HAMI_RUNTIME_DIR={tmp_path} belongs to another user, and is ignored" in done.stderr


def test_a_missing_command_cannot_colour_the_terminal(hami: Hami) -> None:
    name = "no\x1b[31m such\nprogram"
    for arguments in (["run", "--", name], ["doctor", "--", name]):
        done = hami(*arguments)
        assert done.returncode != 0
        assert "\x1b" not in done.stdout + done.stderr
        assert json.dumps(name) in done.stdout + done.stderr


def test_a_limit_of_one_byte_is_shown_as_one(hami: Hami) -> None:
    done = hami("run", "--gpumem", "1B", "--", "true", HAMI_CONTEXT_MEMORY="413MiB")
    assert "gpumem 1B is less than the 413MiB" in done.stderr


def test_bash_completes_commands_and_options_with_the_line_of_the_docs(
    runtime: Path, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "get-started.md").read_text()
    (line,) = re.findall(r"^eval .*_HAMI_COMPLETE=bash_source.*$", page, re.MULTILINE)
    hami = tmp_path / "hami"
    hami.write_text(f'#!/bin/sh\nexec {" ".join(command())} "$@"\n')
    hami.chmod(0o755)
    script = f"""{line}
    complete -p hami
    COMP_WORDS=(hami ru) COMP_CWORD=1; _hami_completion hami; echo "${{COMPREPLY[@]}}"
    COMPREPLY=() COMP_WORDS=(hami run --gpum) COMP_CWORD=2
    _hami_completion hami; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env={**environment(runtime), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    first, *completed = done.stdout.splitlines()
    assert first.startswith("complete ")
    assert completed == ["run", "--gpumem"]
