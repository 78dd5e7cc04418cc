"""Programs that have nothing to do with GPUs start and run as they do without the library.

That includes programs that define functions of the C library themselves, and look up the next ones
through dlsym before they work: sanitizers, heap profilers, allocators. The library's dlsym is
called by all of them, most often before `main`.
"""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.elf import readelf
from support.running import run
from support.slices import GIB

PYTHON = [sys.executable, "-I", "-S", "-c", "print(sum(range(1000)))"]


def same(artifacts, command, preloaded=(), env=None):
    """The run of a command, which is the same with the library and without it."""
    before = [str(path) for path in preloaded]
    bare = run(command, {**(env or {}), "LD_PRELOAD": ":".join(before)})
    with_library = ":".join([*before, str(artifacts.library)])
    assert run(command, {**(env or {}), "LD_PRELOAD": with_library}) == bare
    return bare


# Nothing is called by its name.


@pytest.fixture
def no_calls(artifacts, program):
    """`no_calls(command, …)` ends with code 99 where the library calls the C library by name."""
    if platform.machine() != "x86_64":
        pytest.skip("NOT TESTED: the trampolines are written for x86-64")
    symbols = [line.split() for line in readelf("--dyn-syms", artifacts.library).splitlines()]
    symbols = [fields for fields in symbols if len(fields) >= 8 and fields[3] in {"FUNC", "NOTYPE"}]
    names = {fields[7].split("@")[0] for fields in symbols if fields[6] == "UND"}
    assert {"memcpy", "bcmp", "strlen", "free", "pthread_setcancelstate"} <= names
    (dlsym,) = (int(fields[1], 16) for fields in symbols if fields[7] == "dlsym")
    sections = readelf("--sections", artifacts.library)
    (text,) = re.findall(r" \.text +PROGBITS +(\w+) +\w+ +(\w+)", sections)
    start, size = (int(number, 16) for number in text)
    functions = ["free", *sorted(names - {"free"})]
    oracle = program(
        "no_calls",
        f"-DFUNCTIONS={''.join(f'X({name})' for name in functions)}",
        f"-DBEFORE={dlsym - start}",
        f"-DAFTER={start + size - dlsym}",
    )

    def checked(command, env):
        return run(command, {**env, "LD_PRELOAD": f"{artifacts.library}:{oracle}"})

    return checked


@pytest.mark.parametrize(
    "command",
    [PYTHON, [shutil.which("ls"), "/"], [shutil.which("sh"), "-c", "echo a; ls /"]],
    ids=["python", "ls", "sh"],
)
def test_loading_the_library_calls_nothing(no_calls, command):
    assert no_calls(command, {}) == run(command, {})


def test_a_lookup_calls_nothing(no_calls, program):
    command = [program("early_lookups")]
    assert no_calls(command, {}) == run(command, {})


@pytest.mark.parametrize("has_driver", [False, True])
def test_a_lookup_of_a_driver_s_function_calls_nothing(
    no_calls, program, gpu, artifacts, has_driver
):
    """Without a driver there is nothing to find, with one there is: the bare program shows it."""
    driver = artifacts.libcuda if has_driver else "none"
    command = [program("early_lookups"), driver]
    assert no_calls(command, gpu.env) == run(command, gpu.env)


def test_a_lookup_by_a_driver_calls_nothing(no_calls, program, gpu, artifacts):
    """A thin driver looks its functions up before `main`."""
    env = {**gpu.env, "INNER": str(artifacts.libcuda)}
    command = [program("early_lookups"), program("thin_driver", "-DAT_LOAD")]
    assert no_calls(command, env) == run(command, env)


def test_a_call_by_name_would_be_seen(no_calls, program, gpu, artifacts):
    done = no_calls([program("early_lookups"), artifacts.libcuda, "call"], gpu.env)
    assert done.code == 99
    assert done.err.startswith("libvgpu.so called ")


# Programs with functions of their own.


def test_a_program_with_functions_of_its_own(artifacts, program):
    """The reported crash: a dl_iterate_phdr or strlen that asks dlsym for the next one."""
    done = same(artifacts, [program("own_functions")])
    assert (done.lines, done.code) == (["1 4 0 0 1", "1"], 0)


#: Compiler and flags. clang links its sanitizers statically. The Makefile does not install it,
#: because it takes 500 MB.
SANITIZERS = {
    "gcc, tsan": ["gcc", "-fsanitize=thread"],
    "gcc, static tsan": ["gcc", "-fsanitize=thread", "-static-libtsan"],
    "gcc, asan": ["gcc", "-fsanitize=address"],
    "gcc, static asan": ["gcc", "-fsanitize=address", "-static-libasan"],
    "gcc, ubsan": ["gcc", "-fsanitize=undefined"],
    "gcc, lsan": ["gcc", "-fsanitize=leak"],
    "gcc, asan and ubsan": ["gcc", "-fsanitize=address,undefined"],
    "clang, tsan": ["clang", "-fsanitize=thread"],
    "clang, asan": ["clang", "-fsanitize=address"],
    "clang, ubsan": ["clang", "-fsanitize=undefined"],
}
SANITIZERS = {name: build for name, build in SANITIZERS.items() if shutil.which(build[0])}
#: gcc's shared ASan otherwise refuses to run behind any preloaded library.
SANITIZED = {"ASAN_OPTIONS": "verify_asan_link_order=0"}
#: TSan needs addresses that a kernel with much randomization does not leave free.
AT_FIXED_ADDRESSES = ["setarch", "--addr-no-randomize"]


@pytest.fixture(params=SANITIZERS.values(), ids=SANITIZERS.keys())
def sanitized(request, program):
    """`sanitized(name)` is the command of a program with a sanitizer."""
    compiler, *flags = request.param
    return lambda name: [*AT_FIXED_ADDRESSES, program(name, *flags, compiler=compiler)]


def test_a_program_with_a_sanitizer(artifacts, sanitized):
    """The reported crash: an empty program with TSan."""
    done = same(artifacts, sanitized("hello"), env=SANITIZED)
    assert (done.lines, done.code) == (["hello"], 3)


def test_a_limited_program_with_a_sanitizer(gpu, sanitized, slice_env, tmp_path):
    """The sanitizer reports no race and no leak of ours either."""
    suppressions = tmp_path / "suppressions"
    suppressions.write_text("leak:libcuda.so.1\n")  # it does not see the stub's pointers
    env = {**slice_env(gpu, GIB), **SANITIZED, "LSAN_OPTIONS": f"suppressions={suppressions}"}
    command = sanitized("take_and_leave")
    assert [run([*command, size], env).code for size in ("1024", "1025")] == [0, 2]
    assert gpu.peak() == GIB


@pytest.mark.parametrize("sanitizer", ["asan", "tsan", "ubsan"])
def test_a_sanitizer_s_library_before_ours(artifacts, sanitizer):
    """The reported crash: `LD_PRELOAD=libasan.so:libvgpu.so python3`."""
    found = subprocess.run(
        ["gcc", f"-print-file-name=lib{sanitizer}.so"], capture_output=True, text=True, check=True
    )
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = same(artifacts, [*AT_FIXED_ADDRESSES, *PYTHON], [found.stdout.strip()], env)
    assert (done.lines, done.code) == (["499500"], 0)


@pytest.mark.parametrize("name", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"])
def test_another_allocator(artifacts, program, gpu, slice_env, name):
    library = installed_library(name)
    same(artifacts, PYTHON, [library])
    env = slice_env(gpu, GIB)
    ours = env["LD_PRELOAD"]
    for preloaded in (f"{library}:{ours}", f"{ours}:{library}"):
        env["LD_PRELOAD"] = preloaded
        assert run(PYTHON, env) == run(PYTHON, {})
        codes = [run([program("take_and_leave"), size], env).code for size in ("1024", "1025")]
        assert codes == [0, 2]
    assert gpu.peak() == GIB


def installed_library(name):
    """The path of a shared library of this machine."""
    shown = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    paths = re.findall(rf"^\s+{re.escape(name)} .* => (.*)$", shown.stdout, re.MULTILINE)
    if not paths:
        pytest.fail(f"{name} is missing; install it with: make test-tools")
    return Path(paths[0])


@pytest.mark.parametrize("tool", [["valgrind", "--quiet"], ["heaptrack"]], ids=lambda tool: tool[0])
def test_a_tool_that_watches_a_program(artifacts, program, gpu, tmp_path, tool):
    """The program looks functions up, also a driver's, and calls none: the stub takes minutes under
    valgrind.
    """
    if not shutil.which(tool[0]):
        pytest.fail(f"{tool[0]} is missing; install it with: make test-tools")
    command = [program("early_lookups"), artifacts.libcuda]
    bare = run(command, gpu.env)
    env = {**gpu.env, "LD_PRELOAD": str(artifacts.library)}
    watched = run([*tool, *command], env, cwd=tmp_path)
    assert (watched.code, "ERROR" in watched.err) == (bare.code, False)
    assert set(bare.lines) <= set(watched.lines)
