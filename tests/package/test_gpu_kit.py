"""The GPU kit runs in any directory, with the system's Python and nothing else.

Here it runs on the stub, and as with a real GPU on a stub that is installed like a driver.
tests/gpu documents the tests in the kit.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from support.artifacts import ROOT
from support.elf import readelf
from support.running import Run, run

#: Seconds for a run of the kit's tests or measures on the stub, on a busy machine.
DEADLINE = 240.0

#: Why a test may be left out on the stub. Anything else must run.
LEFT_OUT = re.compile(
    r"not installed: \w+|needs NVIDIA's own NVML"
    r"|\w+ is installed, but NVIDIA's runtime works with NVIDIA's driver alone"
)

PRETENDED = Path(__file__).with_name("pretended")

pytestmark = pytest.mark.timeout(2 * DEADLINE)


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> Path:
    """The last result of `make gpu-kit`, copied to another directory."""
    built = ROOT / "build" / "gpu-kit"
    if not (built / "kit.json").is_file():
        raise FileNotFoundError(f"{built}: not built; run `make gpu-kit`")
    copied = tmp_path_factory.mktemp("elsewhere") / "gpu-kit"
    return Path(shutil.copytree(built, copied, copy_function=_without_modes))


def _without_modes(source: str, target: str) -> None:
    """Some ways of copying remove the executable bits."""
    shutil.copyfile(source, target)


@pytest.fixture
def run_kit(kit, tmp_path):
    """`run_kit("test", "--stub")`, by the system's Python; results are in `tmp_path / "out"`."""
    python = Path(sys.base_prefix) / "bin" / "python3"

    def started(*arguments: str, **variables: str) -> Run:
        # `env -i`: not even a PATH.
        clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        command = [*clean, python, kit / "run.py", *arguments, "--out", tmp_path / "out"]
        return run(command, {}, cwd=tmp_path, deadline=DEADLINE)

    return started


@pytest.fixture
def result(tmp_path):
    """`result("tests")` is a result file."""

    def read(name: str) -> dict:
        return json.loads((tmp_path / "out" / f"gpu-{name}.json").read_text())

    return read


@pytest.fixture
def machine(gpu):
    """A machine whose driver is the stub: its variables."""
    return gpu.env


def test_every_python_has_its_wheels_and_every_wheel_is_needed(kit):
    named = json.loads((kit / "kit.json").read_text())["wheels"]
    assert sorted(named) == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert {name for names in named.values() for name in names} == {
        path.name for path in (kit / "wheels").iterdir()
    }
    for version, names in named.items():
        tag = "cp" + version.replace(".", "")
        assert any(name.startswith("cffi-") and f"-{tag}-" in name for name in names)
        assert any(name.startswith("hami_py-") for name in names)


def test_its_programs_run_on_every_glibc_from_2_17(kit):
    for program in (kit / "programs").iterdir():
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", program))
        assert max((int(major), int(minor)) for major, minor in versions) <= (2, 17), program


def test_its_kernels_assemble_for_old_and_new_cards(kit, tmp_path):
    from cuda.bindings import nvjitlink

    load = shutil.copy(kit / "programs" / "load", tmp_path)
    Path(load).chmod(0o755)
    made = []
    for work in ("async", "meet"):
        made.append(tmp_path / f"{work}.ptx")
        options = ["--print-ptx", "--work", work, "--kernel-us", "20,500,50000"]
        made[-1].write_text(run([load, *options], {}).out)
    for source in [*made, *sorted((kit / "tests" / "gpu" / "programs").glob("*.ptx"))]:
        text = source.read_bytes()
        for architecture in ("sm_75", "sm_90", "sm_100"):
            linker = nvjitlink.create(1, [f"-arch={architecture}"])
            nvjitlink.add_data(linker, nvjitlink.InputType.PTX, text, len(text), source.name)
            nvjitlink.complete(linker)
            assert nvjitlink.get_linked_cubin_size(linker) > 0


def test_all_its_tests_pass_on_the_stub(run_kit, result):
    """Runs the whole kit: it is copied to machines without access to missing files."""
    done = run_kit("test", "--stub")
    tests = result("tests")
    wrong = [test for test in tests["tests"] if test["outcome"] not in {"passed", "skipped"}]
    assert wrong == []
    assert done.code == 0, done.out + done.err
    assert tests["counts"]["passed"] > 40
    reasons = {test["reason"] for test in tests["tests"] if test["outcome"] == "skipped"}
    assert [reason for reason in reasons if not LEFT_OUT.fullmatch(reason)] == []


@pytest.mark.tier("torture")
@pytest.mark.alone
def test_all_its_measures_work_on_the_stub(run_kit, result):
    """Runs every measure, on the real clock: a broken one would only show on a rented GPU."""
    done = run_kit("bench", "--stub")
    assert done.code == 0, done.out + done.err
    for suite, least in (("memory", 50), ("calls", 16), ("share", 20), ("interactive", 50)):
        found = result(suite)
        assert "failures" not in found
        assert len(found["rows"]) >= least
        assert found["card"].startswith("stub of ")
        assert (found["driver"], found["command"]) == ("610.43.02", "python3 run.py bench --stub")


def test_without_a_gpu_it_reports_that(run_kit, tmp_path):
    # A file that no loader accepts is found before the driver of this machine.
    (tmp_path / "libcuda.so.1").touch()
    done = run_kit("all", LD_LIBRARY_PATH=str(tmp_path))
    assert done.out.startswith("no GPU: ")
    assert done.code == 3
    assert not (tmp_path / "out").exists()


def test_on_a_machine_with_a_driver_it_tests_that_and_the_installed_frameworks(
    run_kit, result, machine, gpu
):
    """Takes the way of a machine with a GPU, with a stub that is installed like a driver."""
    done = run_kit("test", **machine, PYTHONPATH=str(PRETENDED))
    tests = result("tests")
    assert not tests["card"].startswith("stub")
    assert gpu.peak() > 0, "the programs ran somewhere else"
    by_name = {test["name"]: test for test in tests["tests"]}
    frameworks = "test_frameworks.py::test_"
    for job in ("fill", "fill_async"):
        name = f"{frameworks}cupy_sees_the_limit_and_stops_at_it[{job}]"
        assert by_name[name]["outcome"] == "passed", by_name[name]
    assert by_name[f"{frameworks}jax_sees_the_limit_and_stops_at_it"]["outcome"] == "skipped"
    # The pretended package cannot compute: this is the only failure, and it is reported.
    failed = [name for name, test in by_name.items() if test["outcome"] != "passed"]
    failed = [name for name in failed if by_name[name]["outcome"] != "skipped"]
    assert failed == [f"{frameworks}below_the_limit_it_computes_the_same[cupy-matmul]"]
    assert done.code == 1


def test_a_run_that_times_out_leaves_its_results_and_no_process(
    run_kit, result, machine, kit, tmp_path
):
    """Waits for the kit's own deadline, which must keep the results so far."""
    hanging = {"PYTHONPATH": str(PRETENDED), "PRETENDED_CUPY": "hangs"}
    done = run_kit("test", "--deadline", "8", **machine, **hanging)
    assert done.code == 1
    assert result("summary")["parts"][0]["ended"] == "out of time"
    tests = result("tests")
    assert tests["ended"] == "out of time"
    assert tests["counts"]["passed"] > 0
    assert (tmp_path / "out" / "gpu-tests.md").read_text().count("\n|") > 2
    left = [
        command
        for process in Path("/proc").glob("[0-9]*")
        if str(kit) in (command := _command_line(process))
    ]
    assert left == []


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
