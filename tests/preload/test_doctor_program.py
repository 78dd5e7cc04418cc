"""`hami doctor -- PROGRAM` predicts what happens to the program in a slice."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hami_py import config
from hami_py.cli.doctor import loading
from hami_py.cli.doctor import program as program_checks
from hami_py.errors import HamiError, UnsupportedPlatform
from hami_py.slices import elf
from support.elf import readelf
from support.running import run

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives a file away")


@pytest.fixture
def copy(program, tmp_path):
    """A copy that may be changed."""
    return Path(shutil.copy(program("is_preloaded"), tmp_path / "copy"))


@pytest.fixture
def doctor(hami):
    """The doctor's result for a program. The program is not run, so no GPU is needed."""

    def doctor(path, *, env=None):
        done = hami(None, "doctor", "--json", "--", path, "--option-of-its-own", env=env)
        checks: list[dict[str, Any]] = json.loads(done.out)
        assert done.code == (0 if all(check["ok"] for check in checks) else 1)
        assert all(check["fix"] for check in checks if not check["ok"])
        return checks

    return doctor


@pytest.fixture
def in_a_slice(gpu, hami):
    """The truth: the program is run."""
    return lambda path: hami(gpu, "run", "--", path)


def test_a_dynamic_program_is_limited(doctor, program, in_a_slice):
    checks = doctor(program("is_preloaded"))
    assert [check["name"] for check in checks if check["ok"]] == [
        "program",
        "format",
        "linking",
        "privileges",
        "loading",
    ]
    assert in_a_slice(program("is_preloaded")).lines == ["preloaded"]


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
def test_a_static_program_is_not_limited(doctor, program, in_a_slice, compiler):
    static = program("is_preloaded", "-static", compiler=compiler)
    failed = doctor(static)[-1]
    assert (failed["name"], failed["ok"]) == ("linking", False)
    assert "statically linked" in failed["detail"]
    assert in_a_slice(static).lines == ["not preloaded"]


def test_a_musl_program_does_not_start(doctor, program, in_a_slice):
    musl = program("is_preloaded", compiler="musl-gcc")
    failed = doctor(musl)[-1]
    assert (failed["name"], failed["ok"]) == ("linking", False)
    assert "musl" in failed["detail"]
    assert "127" in failed["detail"]
    done = in_a_slice(musl)
    assert (done.code, done.out) == (127, "")


@pytest.mark.parametrize("flags", [(), ("-Wl,-Bsymbolic",), ("-fvisibility=hidden",)], ids=repr)
def test_a_library_with_variables_named_like_functions_of_the_driver_is_named(
    doctor, program, gpu, in_a_slice, flags
):
    """The loader binds its pointers to our functions, and it writes into our code."""
    built = program("plugin_pointers", *flags)
    plugin = Path(shutil.copy(built, built.with_name(f"{built.name}.so")))
    user = program("plugin_user", str(plugin), f"-Wl,-rpath,{plugin.parent}")
    assert run([user], gpu.env).lines == ["plug-in: 0"]
    # A library needs no permission to execute.
    plugin.chmod(0o644)
    last, (of_plugin,) = doctor(user)[-1], doctor(plugin)
    done = in_a_slice(user)
    assert last["name"] == "loading"
    if flags:
        assert (last["ok"], of_plugin["ok"]) == (True, True)
        assert done.lines == ["plug-in: 0"]
    else:
        line = f"{plugin} exports a variable cuInit: the loader binds it to our function"
        assert (last["ok"], of_plugin["ok"]) == (False, False)
        assert line in last["detail"]
        assert line in of_plugin["detail"]
        assert done.code == -signal.SIGSEGV
        assert done.out == ""


@needs_root
@pytest.mark.parametrize(("mode", "what"), [(0o4755, "setuid"), (0o2755, "setgid")])
def test_a_setuid_program_is_not_limited(doctor, copy, in_a_slice, mode, what):
    os.chown(copy, NOBODY, NOBODY)
    copy.chmod(mode)
    failed = doctor(copy)[-1]
    assert (failed["name"], failed["ok"]) == ("privileges", False)
    assert what in failed["detail"]
    assert in_a_slice(copy).lines == ["not preloaded"]
    # A setuid program of the user that runs it gains no rights.
    os.chown(copy, 0, 0)
    copy.chmod(mode)
    assert doctor(copy)[-1]["ok"]
    assert in_a_slice(copy).lines == ["preloaded"]


@needs_root
def test_file_capabilities_count_as_setuid_except_for_root(copy, monkeypatch):
    # Version 2, effective; permitted: CAP_NET_RAW. See linux/capability.h.
    capabilities = (0x02000001, 1 << 13, 0, 0, 0)
    try:
        os.setxattr(
            copy,
            "security.capability",
            b"".join(part.to_bytes(4, "little") for part in capabilities),
        )
    except OSError as error:
        pytest.skip(f"file capabilities cannot be set here: {error}")
    assert "none gained" in program_checks.privileges(copy)
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    with pytest.raises(HamiError, match="file capabilities"):
        program_checks.privileges(copy)


@pytest.mark.parametrize(
    ("offset", "value", "what"), [(4, 1, "32-bit"), (18, 8, "another processor")]
)
def test_a_program_of_another_architecture_is_not_limited(doctor, copy, offset, value, what):
    """Another class, and another machine (MIPS), in the header."""
    image = bytearray(copy.read_bytes())
    image[offset] = value
    copy.write_bytes(image)
    failed = doctor(copy)[-1]
    assert (failed["name"], failed["ok"]) == ("format", False)
    assert what in failed["detail"]


@pytest.mark.parametrize("first_line", ["#!{program} -x", "#!/usr/bin/env {name}"])
def test_a_script_is_judged_by_its_interpreter(doctor, program, tmp_path, first_line):
    static = program("is_preloaded", "-static")
    script = tmp_path / "script"
    script.write_text(first_line.format(program=static, name=static.name) + "\n")
    script.chmod(0o755)
    checks = doctor(script, env={"PATH": f"{static.parent}:{os.environ['PATH']}"})
    assert checks[0]["name"] == "script"
    assert [check["name"] for check in checks if not check["ok"]] == ["linking"]


def test_a_program_that_a_loader_starts_is_judged(hami, gpu, program):
    path = program("is_preloaded")
    file = elf.read(path)
    assert file is not None
    assert file.interpreter is not None
    assert hami(gpu, "run", "--", file.interpreter, path).out == "preloaded\n"
    done = hami(None, "doctor", "--json", "--", file.interpreter, "--library-path", "/lib", path)
    checks = json.loads(done.out)
    assert all(check["ok"] for check in checks), checks
    assert checks[0]["detail"] == f"{file.interpreter} starts {path}"
    assert checks[-1]["name"] == "loading"
    alone = json.loads(hami(None, "doctor", "--json", "--", file.interpreter).out)
    assert [(check["ok"], check["detail"]) for check in alone] == [
        (False, f"{file.interpreter} is a loader")
    ]


@pytest.mark.parametrize(
    ("content", "name"), [(None, "program"), (b"\x7fELF\x02", "program"), (b"text", "format")]
)
def test_a_file_that_is_no_program_is_reported(doctor, tmp_path, content, name):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o755)
    failed = doctor(path)[-1]
    assert (failed["name"], failed["ok"]) == (name, False)


def test_a_loader_that_skips_the_library_is_detected(program, tmp_path, artifacts):
    """A library that is none: the loader says so and goes on without it."""
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF and no more")
    settings = config.read({"PATH": os.environ["PATH"], "HAMI_LIBRARY": str(broken)})
    checks = dict(program_checks.checks([str(program("is_preloaded"))], settings))
    with pytest.raises(HamiError, match=r"broken\.so is not loaded"):
        checks["loading"]()


def test_the_loader_is_read_as_binutils_reads_it(program):
    path = program("is_preloaded")
    file = elf.read(path)
    assert file is not None
    assert f"[Requesting program interpreter: {file.interpreter}]" in readelf("--segments", path)


def test_a_musl_python_is_reported(program, monkeypatch):
    settings = config.read({})
    assert loading.c_library(settings).startswith("glibc 2.")
    monkeypatch.setattr(sys, "executable", str(program("hello", compiler="musl-gcc")))
    with pytest.raises(UnsupportedPlatform, match="it is musl"):
        loading.c_library(settings)


@pytest.mark.parametrize("version", ["2.12", "2.16.90", "1.99"])
def test_a_glibc_that_is_too_old_is_reported(version):
    assert loading.judge_glibc("2.17") == "glibc 2.17 (2.17 or newer is required)"
    with pytest.raises(UnsupportedPlatform, match=rf"glibc {version} is older than 2\.17"):
        loading.judge_glibc(version)
