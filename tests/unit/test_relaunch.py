"""``hami.limit_this_process``: real interpreters that begin again, on a stub GPU."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.artifacts import ROOT, Artifacts
from support.running import Run, Started, run
from support.slices import GIB
from support.stub import StubServer

Python = Callable[..., Run]

HEAD = "import os, sys, hami_py as hami\n"
# Every interpreter that gets this far prints the arguments that it began with, and its limits.
TELL = """
print("begun", os.getpid(), sys.argv, flush=True)
held = hami.limit_this_process(gpumem="1GiB")
print("goes on", os.getpid(), held.source, [card.memory for card in held.cards])
assert hami.limit_this_process(gpumem="1MiB") == held
"""


@pytest.fixture
def variables(gpu: StubServer, artifacts: Artifacts, runtime: Path) -> dict[str, str]:
    return {
        **gpu.env,
        "PYTHONPATH": str(ROOT),
        "HAMI_RUNTIME_DIR": str(runtime),
        "HAMI_LIBRARY": str(artifacts.library),
    }


@pytest.fixture
def python(variables: dict[str, str], slices_of: Callable[[], list[Path]]) -> Python:
    """``python("-c", text)`` runs an interpreter to its end."""

    def start(*arguments: str | Path, **options: object) -> Run:
        return run([sys.executable, *arguments], variables, **options)  # type: ignore[arg-type]

    return start


def begins_again(done: Run, argv: list[str], memory: int = GIB) -> None:
    """Twice begun, as the same process with the same arguments; then limited."""
    assert (done.code, done.err) == (0, "")
    first, second, third = done.lines
    assert first == second
    assert first.endswith(str(argv))
    assert third == f"goes on {first.split()[1]} slice {[memory]}"


def test_a_script(python: Python, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + TELL)
    begins_again(python(script, "-x", "a b"), [str(script), "-x", "a b"])
    begins_again(python("-B", "-W", "error", "train.py", cwd=tmp_path), ["train.py"])


def test_a_module(python: Python, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(HEAD + TELL)
    begins_again(python("-m", "package", "x", cwd=tmp_path), [str(package / "__main__.py"), "x"])


@pytest.mark.parametrize("option", ["-c", "-Bc", "-uBc"])
def test_a_text(python: Python, option: str) -> None:
    begins_again(python("-X", "dev", "-W", "ignore", option, HEAD + TELL, "x"), ["-c", "x"])


def test_it_is_really_limited(python: Python, gpu: StubServer) -> None:
    """The program uses the driver itself, and takes what it can get."""
    script = HEAD + (
        "hami.limit_this_process(gpumem='64MiB')\n"
        "import runpy\n"
        "sys.argv = ['probe', 'allocate']\n"
        "runpy.run_module('hami_py.gpu.probe', run_name='__main__')"
    )
    done = python("-c", script)
    assert '"allocated": 67108864' in done.out
    assert gpu.peak() == 64 << 20


def test_the_slice_is_removed_with_the_process(
    variables: dict[str, str], slices_of: Callable[[], list[Path]], python: Python
) -> None:
    """Also where the process overwrites its environment, as daemons do to show a title."""
    script = HEAD + (
        "hami.limit_this_process(gpumem='1GiB')\n"
        "stat = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "start, end = int(stat[47]), int(stat[48])\n"
        "with open('/proc/self/mem', 'r+b', buffering=0) as memory:\n"
        "    memory.seek(start); memory.write(bytes(end - start))\n"
        "assert not open('/proc/self/environ', 'rb').read().strip(b'\\0')\n"
        "print('up', flush=True)\n"
        "input()"
    )
    other = [sys.executable, "-m", "hami_py", "run", "--", "true"]
    with Started([sys.executable, "-c", script], variables) as started:
        started.wait_for("up")
        (directory,) = slices_of()
        assert run(other, variables).code == 0
        assert slices_of() == [directory]
        listed = run([sys.executable, "-m", "hami_py", "ps"], variables).lines
        assert listed[1].split()[9:11] == ["0", "running"]
    assert run(other, variables).code == 0
    assert slices_of() == []


def test_its_child_is_in_the_slice_and_may_lower_its_limits(python: Python) -> None:
    inner = HEAD + "print([c.memory for c in hami.limit_this_process(gpumem='768MiB').cards])"
    script = HEAD + (
        "import subprocess\n"
        "hami.limit_this_process(gpumem='1GiB')\n"
        f"subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    )
    done = python("-c", script)
    assert (done.err, done.out) == ("", f"{[768 << 20]}\n")


def test_earlier_output_is_not_lost(python: Python) -> None:
    script = HEAD + (
        "print('out', end=''); print('err', end='', file=sys.stderr)\n"
        "hami.limit_this_process(gpumem='1GiB')"
    )
    done = python("-c", script)
    assert (done.out, done.err) == ("outout", "errerr")


def test_inheritable_files_are_inherited(python: Python) -> None:
    script = HEAD + (
        "if len(sys.argv) == 2 and 'HAMI_SLICE' not in os.environ:\n"
        "    for fd in map(int, ('7', '8')): os.dup2(1, fd, inheritable=fd == 7)\n"
        "hami.limit_this_process(gpumem='1GiB')\n"
        "print([os.path.exists(f'/proc/self/fd/{fd}') for fd in (7, 8)])"
    )
    assert python("-c", script, "x").out == "[True, False]\n"


def refused(done: Run, why: str, fix: str) -> None:
    """Nothing was begun again, and the error says why and how to fix it."""
    said = "hami_py.errors.CannotRelaunch: limit_this_process: "
    (line,) = [line for line in done.err.splitlines() if line.startswith(said)]
    assert why in line
    assert fix in line
    assert done.out == ""


CALL = "hami.limit_this_process(gpumem='1GiB')\n"


@pytest.mark.parametrize(
    ("before", "why", "fix"),
    [
        ("sys.ps1 = '>>> '", "an interactive interpreter", "`hami run --gpumem 4GiB -- python`"),
        ("sys.orig_argv.clear()", "embedded in another program", "`hami run` instead"),
        ("sys.executable = '/bin/sh'", "embedded in another program", "`hami run` instead"),
        ("sys.executable = ''", "embedded in another program", "`hami run` instead"),
        (
            "import threading; e = threading.Event()\n"
            "threading.Thread(target=e.wait, daemon=True).start()",
            "1 other threads run",
            "call it first, before the imports that use the GPU, or start the program",
        ),
        ("hami.devices()", "libnvidia-ml.so", "call it first"),
        (
            "from hami_py.gpu import driver; driver.Driver()",
            "libcuda.so.1 is already loaded",
            "call it first, before the imports that use the GPU",
        ),
        ("if os.fork(): os._exit(os.wait()[1] >> 8)", "is a child of", "in the first process"),
    ],
)
def test_it_is_refused_if_the_program_would_differ(
    python: Python, slices_of: Callable[[], list[Path]], before: str, why: str, fix: str
) -> None:
    refused(python("-c", HEAD + before + "\n" + CALL + "print('FAILED')"), why, fix)
    assert slices_of() == []


def test_in_an_interactive_interpreter(python: Python) -> None:
    refused(python("-i", "-q", "-c", HEAD + CALL), "an interactive interpreter", "hami run")


@pytest.mark.parametrize("arguments", [[], ["-"], ["-B", "-"]])
def test_a_program_from_standard_input(python: Python, arguments: list[str]) -> None:
    done = python(*arguments, input=HEAD + CALL)
    refused(done, "from standard input", "write the program to a file")


IPYTHON = """
import types
class Shell: pass
shell = Shell()
{kernel}
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
"""


@pytest.mark.parametrize(
    ("kernel", "why", "fix"),
    [
        ("shell.kernel = object()", "a Jupyter kernel", "`hami jupyter install --gpumem 4GiB`"),
        ("", "an interactive interpreter", "`hami run --gpumem 4GiB -- python`"),
    ],
)
def test_in_a_notebook(python: Python, kernel: str, why: str, fix: str) -> None:
    refused(python("-c", HEAD + IPYTHON.format(kernel=kernel) + CALL), why, fix)


def test_in_a_worker_of_multiprocessing(python: Python, tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(
        HEAD + "import multiprocessing\n"
        "def work():\n"
        "    hami.limit_this_process(gpumem='1GiB')\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    worker.start(); worker.join(); sys.exit(worker.exitcode)"
    )
    refused(python(script), "is a child of the process", "in the first process")


def test_after_the_directory_was_changed(python: Python, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + "os.chdir('/')\n" + CALL)
    done = python("train.py", cwd=tmp_path)
    refused(done, "train.py would not be found from /", "before changing the working directory")


def test_a_killed_interpreter_leaves_no_slice(
    python: Python, slices_of: Callable[[], list[Path]]
) -> None:
    script = HEAD + (
        "def gone(*unused): raise FileNotFoundError(2, 'No such file or directory')\n"
        "os.execve = gone\n"
    )
    refused(python("-c", script + CALL), "No such file or directory", "check that it still")
    assert slices_of() == []


def test_a_bad_size_is_refused_before_anything(python: Python) -> None:
    done = python("-c", HEAD + "hami.limit_this_process(gpumem='4')")
    assert 'InvalidValue: gpumem: "4" is refused' in done.err
