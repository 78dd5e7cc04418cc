"""``hami`` on a stub GPU: the doctor's proof, and a limited program from end to end.

The doctor says that a limit holds; the stub's ledger says whether that is true.
"""

import json
import os
import re
import shutil
import sys

import pytest

from support import slices
from support.artifacts import ROOT
from support.running import Started, run

GIB = 1 << 30
PROBE = [sys.executable, "-m", "hami_py.gpu.probe"]


def failed(done):
    """The checks that failed, by name; each says how to fix it."""
    checks = {check["name"]: check for check in json.loads(done.out) if not check["ok"]}
    assert done.code == (1 if checks else 0)
    assert all(check["fix"] for check in checks.values())
    return checks


def test_every_check_passes(gpu, hami):
    done = hami(gpu, "doctor")
    assert (done.code, done.err) == (0, "")
    assert not any(line.startswith("FAIL") for line in done.lines)
    assert any(line.startswith("ok   limit on card 0: ") for line in done.lines)
    assert any(line.endswith(", 1 card visible") for line in done.lines)
    assert any(line.endswith(", 0 abandoned slices removed") for line in done.lines)
    (card,) = json.loads(hami(gpu, "devices", "--json").out)
    # The probe's limit is a quarter of the card, in whole pages.
    limit = card["memory_total"] // 4 // (2 << 20) * (2 << 20)
    assert 0.99 * limit <= gpu.peak() <= limit
    assert gpu.held() == 0


def test_every_card_is_tested(stub_server, hami):
    gpu = stub_server("t4,a100")
    done = hami(gpu, "doctor", "--json")
    assert failed(done) == {}
    limits = [c for c in json.loads(done.out) if c["name"].startswith("limit on card")]
    assert len(limits) == 2
    assert gpu.peak(0) > 0
    assert gpu.peak(1) > gpu.peak(0)


def test_a_mig_slice_is_a_card(stub_server, hami):
    gpu = stub_server("a100-mig-3g")
    (card,) = json.loads(hami(gpu, "devices", "--json").out)
    assert card["uuid"] == gpu.uuids()[0]
    assert card["uuid"].startswith("MIG-")
    assert failed(hami(gpu, "doctor", "--json")) == {}


@pytest.mark.parametrize(
    ("variable", "value"), [("CUDA_DEVICE_MEMORY_LIMIT", "1x"), ("CUDA_DEVICE_SM_LIMIT_0", "150")]
)
def test_a_variable_that_makes_the_library_refuse_cuda_is_reported(gpu, hami, variable, value):
    env = {variable: value}
    refused = json.loads(hami(gpu, "run", "--", *PROBE, env=env).out)
    assert refused["failed"] == "cuInit: CUDA_ERROR_NO_DEVICE"
    found = failed(hami(gpu, "doctor", "--json", env=env))
    assert found.keys() == {"HAMi's variables", "limit"}
    assert found["HAMi's variables"]["detail"] == f'{variable}: "{value}" is refused'


def test_in_a_slice_its_cards_are_counted_from_0(stub_server, hami):
    gpu = stub_server("a100,a100,a100")
    inner = [sys.executable, "-m", "hami_py"]
    listed = hami(gpu, "run", "--device", "2", "--device", "1", "--", *inner, "devices", "--json")
    cards = [(card["index"], card["uuid"]) for card in json.loads(listed.out)]
    assert cards == list(enumerate([gpu.uuids()[2], gpu.uuids()[1]]))
    shown = ["run", "--device", "0", "--", *inner, "devices", "--json"]
    nested = hami(gpu, "run", "--device", "1", "--", *inner, *shown)
    assert [card["uuid"] for card in json.loads(nested.out)] == [gpu.uuids()[1]]


def test_a_library_without_effect_is_detected(gpu, hami, program):
    """The doctor's proof must be able to fail."""
    done = hami(gpu, "doctor", "--json", env={"HAMI_LIBRARY": str(program("lookalikes"))})
    assert "a program sees" in failed(done)["limit on card 0"]["detail"]


def test_a_missing_visible_card_is_reported(gpu, hami):
    checks = failed(hami(gpu, "doctor", "--json", env={"CUDA_VISIBLE_DEVICES": ""}))
    assert "limit" in checks
    assert "driver" in checks


def test_on_a_busy_card_the_free_memory_is_tested(gpu, hami, program):
    total = gpu.ledger()["cards"][0]["total"]
    taken = total * 9 // 10 // (1 << 20)
    with Started([program("hold"), str(taken)], gpu.env) as other:
        other.wait_for("holding")
        assert failed(hami(gpu, "doctor", "--json")) == {}
        assert gpu.held() == taken << 20


def test_in_a_slice_its_free_memory_is_tested(gpu, hami):
    inner = [sys.executable, "-m", "hami_py", "doctor", "--json"]
    done = hami(gpu, "run", "--gpumem", "2GiB", "--", *inner)
    assert failed(done) == {}
    assert gpu.peak() <= 2 * GIB


def test_in_a_tiny_slice_the_limit_is_reported_and_not_other_programs(gpu, hami):
    inner = [sys.executable, "-m", "hami_py", "doctor", "--json"]
    found = failed(hami(gpu, "run", "--gpumem", "6MiB", "--", *inner))["limit on card 0"]
    assert "this slice is too small to test: 6MiB of 6MiB are free" in found["detail"]
    assert found["fix"] == "run `hami doctor` outside of it, or raise its limit"


def test_a_slice_that_refuses_cuda_is_reported_and_not_the_driver(gpu, hami):
    damaged = 'echo > "$HAMI_SLICE/limits"; exec "$@"'
    inner = [sys.executable, "-m", "hami_py", "doctor", "--json"]
    found = failed(hami(gpu, "run", "--", "sh", "-c", damaged, "sh", *inner))["driver"]
    assert "the slice refuses CUDA: limits page " in found["detail"]
    assert "preload library" in found["fix"]
    done = hami(gpu, "run", "--", "sh", "-c", damaged, "sh", *PROBE)
    assert "standard error" in json.loads(done.out)["fix"]
    assert done.err.startswith("hami: limits page ")


def test_the_largest_allowed_number_of_nested_slices_works(gpu, hami, artifacts, slice_dir):
    """`hami run` and the library agree about how many that is."""
    around = [slice_dir({gpu.uuids()[0]: None}) for _ in range(8)]
    within = slices.environment(artifacts.library, *around[1:])
    done = hami(gpu, "run", "--", *PROBE, env=within)
    assert (done.err, json.loads(done.out)["failed"]) == ("", None)
    within = slices.environment(artifacts.library, *around)
    done = hami(gpu, "run", "--", *PROBE, env=within)
    assert (done.code, done.out) == (125, "")


def test_hamis_variables_do_not_change_the_result(gpu, hami):
    done = hami(gpu, "doctor", "--json", env={"CUDA_DEVICE_MEMORY_LIMIT": "64m"})
    assert failed(done) == {}


def test_a_program_gets_exactly_its_limit(gpu, hami):
    done = hami(gpu, "run", "--gpumem", "1536MiB", "--", *PROBE, "allocate")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["total"] == 1536 << 20
    assert report["stopped_by"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert 0.99 * report["total"] <= report["allocated"] == gpu.peak() <= report["total"]


def test_limits_by_card_follow_the_uuid_and_not_the_index(stub_server, hami):
    gpu = stub_server("a100,a100")
    options = ["--gpumem", "0=1GiB", "--gpumem", f"{gpu.uuids()[1]}=2GiB"]
    done = hami(gpu, "run", *options, "--device", 1, "--device", 0, "--", *PROBE, "allocate")
    assert json.loads(done.out)["total"] == 2 * GIB
    assert (gpu.peak(0), gpu.peak(1)) == (0, 2 * GIB)


def test_a_card_that_was_not_chosen_is_invisible(stub_server, hami):
    gpu = stub_server("a100,a100")
    done = hami(gpu, "run", "--device", "1", "--", *PROBE)
    assert json.loads(done.out)["count"] == 1


def test_an_inner_limit_can_only_lower(gpu, hami):
    def nested(outer, inner):
        command = [sys.executable, "-m", "hami_py", "run", "--gpumem", inner]
        return hami(gpu, "run", "--gpumem", outer, "--", *command, "--", *PROBE, "allocate")

    done = nested("2GiB", "1GiB")
    assert (json.loads(done.out)["total"], done.err) == (GIB, "")
    done = nested("1GiB", "2GiB")
    assert json.loads(done.out)["total"] == GIB
    assert "is more than card 0" in done.err
    assert gpu.peak() <= GIB


USAGE = """import json
import hami_py as hami
from hami_py.gpu.driver import Driver
driver = Driver()
driver.use(0)
assert driver.allocate(256 << 20) is None
assert driver.allocate(4 << 30) is not None
(card,) = hami.usage().cards
(process,) = card.processes
import os
assert process.pid == os.getpid() and process.alive
print(json.dumps([hami.limits().level, card.memory_limit, card.memory_used, process.memory_used,
                  process.refusals, card.memory_free, driver.free(), driver.total(0),
                  hami.devices()[0].memory_total]))"""


def test_a_program_sees_its_own_usage(gpu, hami):
    """`usage()`, cuMemGetInfo and NVML agree, and so does the ledger."""
    done = hami(gpu, "run", "--gpumem", "1GiB", "--", sys.executable, "-c", USAGE)
    assert (done.code, done.err) == (0, "")
    level, limit, used, own, refusals, free, cuda_free, *totals = json.loads(done.out)
    assert level == "preload"
    assert used == own == gpu.peak() == 256 << 20
    assert refusals == 1
    assert free == cuda_free == limit - used
    assert totals == [limit, limit] == [GIB, GIB]


def test_a_program_sees_its_containers_limit(gpu, hami, artifacts, slice_dir):
    """The page lies beside the library, and no variable of ours is set."""
    directory = slice_dir({gpu.uuids()[0]: GIB})
    library = shutil.copy(artifacts.library, directory / "libvgpu.so")
    variables = {**gpu.env, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library)}
    done = run([sys.executable, "-c", USAGE], variables)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)[:3] == ["preload", GIB, 256 << 20]


@pytest.mark.parametrize("card", ["a100", "a100-mig-1g"])
def test_a_program_sees_the_limits_of_hamis_variables(stub_server, hami, card):
    """Without `hami run`, with the library and a variable of HAMi's alone.

    The driver does not say that a card is a MIG device: the library writes the row as if it was
    not.
    """
    gpu = stub_server(card)
    plain = [sys.executable, "-c", USAGE]
    limited = 'LD_PRELOAD=$HAMI_LIBRARY CUDA_DEVICE_MEMORY_LIMIT_0=1g exec "$@"'
    done = hami(gpu, "run", "--", "sh", "-c", "unset HAMI_SLICE; " + limited, "sh", *plain)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)[:3] == ["preload", GIB, 256 << 20]


def test_the_examples_of_the_documentation_run(stub_server, artifacts, tmp_path):
    """Every example of the page runs as a reader would run it; each starts several programs."""
    gpu = stub_server("a100,a100")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in {"hami": f"{sys.executable} -m hami_py", "python": sys.executable}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    variables = {
        **gpu.env,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HAMI_RUNTIME_DIR": str(tmp_path),
        "HAMI_LIBRARY": str(artifacts.library),
    }
    text = (ROOT / "docs" / "configuration.md").read_text()
    examples = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 3
    for example in examples:
        done = run(["sh", "-e", "-c", example], variables)
        assert (done.code, done.err) == (0, ""), example
