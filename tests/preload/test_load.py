"""Loading the library into a program without CUDA does nothing.

It is preloaded into every program of a container, so what it does there, it does thousands of times
to programs that know nothing of GPUs.
"""

import shutil
import sys
from pathlib import Path

import pytest

from support import syscalls
from support.elf import needed
from support.running import run
from support.slices import environment

PYTHON = Path(sys.executable).resolve()
PROGRAMS = {
    "sh": [shutil.which("sh"), "-c", "true"],
    "ls": [shutil.which("ls"), "/"],
    "python": [PYTHON, "-I", "-S", "-c", "pass"],
    "sh that starts a program": [shutil.which("sh"), "-c", "ls /; true"],
}


@pytest.mark.parametrize("command", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_no_system_call_beyond_mapping_the_library(artifacts, program, tmp_path, command):
    """An empty preloaded library shows the dynamic linker's own calls for any library.

    It has the same requirements as ours and a path of the same length, because the size of the
    environment can matter.
    """
    needs = needed(artifacts.library)
    ours, empty = tmp_path / "ours.so", tmp_path / "none.so"
    shutil.copy(artifacts.library, ours)
    shutil.copy(program("empty", *(f"-l:{name}" for name in sorted(needs))), empty)

    def calls(preloaded, name):
        trace = syscalls.trace(command, {"LD_PRELOAD": str(preloaded)}, tmp_path / name)
        assert any(f'"{preloaded}"' in call for call in trace)
        return syscalls.names(syscalls.without_loading(trace, {preloaded.name, *needs}))

    assert calls(empty, "once") == calls(empty, "again"), "this program is not reproducible"
    assert calls(ours, "ours") == calls(empty, "empty")


@pytest.mark.parametrize("command", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_output_and_exit_code_are_the_program_s_own(artifacts, command):
    assert run(command, {"LD_PRELOAD": str(artifacts.library)}) == run(command, {})


def test_a_failing_program_fails_in_the_same_way(artifacts):
    command = ["sh", "-c", "echo out; echo err >&2; kill -TERM $$"]
    assert run(command, {"LD_PRELOAD": str(artifacts.library)}) == run(command, {})


def test_nothing_of_the_process_is_changed(artifacts, program):
    """Threads, signals, umask, environment, descriptors, mappings, and the exit code."""
    bare = run([program("state")], {})
    preloaded = run([program("state")], {"LD_PRELOAD": str(artifacts.library)})
    assert (preloaded.code, preloaded.err) == (bare.code, bare.err) == (3, "")
    ours = {str(artifacts.library), *needed_paths(artifacts)}

    def others(done):
        mapped = [line for line in done.lines if line.startswith("mapped: ")]
        files = {line.removeprefix("mapped: ") for line in mapped} - ours
        return [line for line in done.lines if line not in mapped], files

    bare_state, bare_files = others(bare)
    state, files = others(preloaded)
    variable = f"environment: LD_PRELOAD={artifacts.library}"
    assert variable in state
    assert [line for line in state if line != variable] == bare_state
    assert files == bare_files


def needed_paths(artifacts):
    """Where the dynamic linker finds what the library needs."""
    done = run(["ldd", artifacts.library], {})
    words = [word for line in done.lines for word in line.split()]
    return [str(Path(word).resolve()) for word in words if word.startswith("/")]


def test_nothing_is_loaded_beside_the_library_and_what_it_needs(artifacts, program):
    """No driver, no library of the compiler: they would have to be in every container."""
    c_library = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    bare = mapped_libraries(run([program("state")], {}))
    preloaded = mapped_libraries(run([program("state")], {"LD_PRELOAD": str(artifacts.library)}))
    assert artifacts.library.name in preloaded
    assert preloaded <= bare | c_library | {artifacts.library.name}


def mapped_libraries(done):
    """The names of the libraries among what `state` says is mapped."""
    names = {Path(line).name for line in done.lines if line.startswith("mapped: /")}
    return {name for name in names if ".so" in name}


def test_a_slice_that_cannot_be_read_is_no_concern_of_a_program_without_cuda(artifacts, tmp_path):
    (tmp_path / "limits").touch()
    env = environment(artifacts.library, tmp_path)
    assert run(["ls", "/"], env) == run(["ls", "/"], {})
