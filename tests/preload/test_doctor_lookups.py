"""`hami doctor` tests each way to look up the driver's functions, and each test can fail.

In the broken setups a library is loaded before ours in every program of the slice, and makes one
lookup bypass ours.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from hami_py.gpu.linked import Linked
from support.artifacts import ROOT
from support.elf import needed, readelf
from support.running import run

TIB = 1 << 40
LOOKUPS = {
    "direct link",
    "dlsym in libcuda.so.1",
    "dlsym in libcuda.so",
    "dlvsym",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetProcAddress_v2, stream per thread",
    "RTLD_DEEPBIND",
    "NVML",
}


def doctor(hami, gpu, env=None):
    """Every check by name."""
    done = hami(gpu, "doctor", "--json", env=env)
    checks = json.loads(done.out)
    assert all(set(check) == {"name", "ok", "detail", "fix"} for check in checks)
    assert all(check["fix"] for check in checks if not check["ok"])
    assert done.code == (0 if all(check["ok"] for check in checks) else 1)
    return {check["name"]: check for check in checks}


def test_every_lookup_is_tested_and_finds_the_library(gpu, hami, artifacts):
    checks = doctor(hami, gpu)
    assert {name[7:] for name in checks if name.startswith("lookup ")} == LOOKUPS
    for lookup in LOOKUPS - {"RTLD_DEEPBIND", "NVML"}:
        [_, found] = checks[f"lookup {lookup}"]["detail"].partition(";")[0].split()
        assert Path(found).name == "libvgpu.so"
        assert found != str(artifacts.library)
    card = gpu.ledger()["cards"][0]
    assert gpu.peak() <= (card["total"] + card["reserved"]) // 4
    assert gpu.held() == 0


def test_deepbind_is_a_known_limitation_and_no_failure(gpu, hami, artifacts):
    found = doctor(hami, gpu)["lookup RTLD_DEEPBIND"]
    assert found["ok"]
    assert str(artifacts.libcuda) in found["detail"]
    assert "Taichi" in found["fix"]
    printed = hami(gpu, "doctor").lines
    assert [line[:4] for line in printed if "RTLD_DEEPBIND" in line] == ["note"]


BROKEN = {
    "-DDIRECT_LINK": {"direct link"},
    '-DBY_DLSYM="cuDeviceTotalMem_v2"': {"dlsym in libcuda.so.1", "dlsym in libcuda.so"},
    "-DBY_DLVSYM": {"dlvsym"},
    '-DBY_PROC_ADDRESS="cuGetProcAddress" -DFLAGS=0': {"cuGetProcAddress"},
    '-DBY_PROC_ADDRESS="cuGetProcAddress_v2" -DFLAGS=0': {"cuGetProcAddress_v2"},
    '-DBY_PROC_ADDRESS="cuGetProcAddress_v2" -DFLAGS=2': {"cuGetProcAddress_v2, stream per thread"},
    "-DNVML": {"NVML"},
}


@pytest.fixture
def in_front(artifacts, program, tmp_path):
    """The environment in which a library stands before ours in every program of a slice."""

    def environment(flags):
        # Ours has another name, so it stays second, and finds the slice beside the broken one.
        ours = shutil.copy(artifacts.library, tmp_path / "libours.so")
        broken = program("bypass", *flags.split())
        return {"HAMI_LIBRARY": str(broken), "LD_PRELOAD": str(ours)}

    return environment


@pytest.mark.parametrize("flags", BROKEN)
def test_a_lookup_that_bypasses_the_limit_is_reported(gpu, hami, in_front, flags):
    checks = doctor(hami, gpu, env=in_front(flags))
    broken = {name[7:] for name, check in checks.items() if "lookup" in name and not check["ok"]}
    assert broken == BROKEN[flags]
    for lookup in broken:
        assert "sees 1024GiB, not 10GiB" in checks[f"lookup {lookup}"]["detail"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("-DDIRECT_LINK_GRANTS", "returns: allocated"),
        ("-DDIRECT_LINK_REFUSES", "a page within the limit is refused: CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_a_lookup_that_returns_one_result_for_all_is_reported(gpu, hami, in_front, flags, why):
    checks = doctor(hami, gpu, env=in_front(flags))
    assert [name for name, check in checks.items() if not check["ok"]] == ["lookup direct link"]
    assert why in checks["lookup direct link"]["detail"]


def test_without_libcuda_so_that_lookup_is_not_tested(gpu, hami, artifacts, tmp_path):
    driver = tmp_path / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (driver / name).symlink_to(artifacts.stub_dir / name)
    checks = doctor(hami, gpu, env={"LD_LIBRARY_PATH": str(driver)})
    assert checks["lookup dlsym in libcuda.so"]["detail"] == "not available: there is no libcuda.so"
    assert checks["lookup dlsym in libcuda.so"]["ok"]


def test_a_lookup_that_the_driver_lacks_is_not_tested(gpu, hami, in_front):
    checks = doctor(hami, gpu, env=in_front('-DHIDE="cuGetProcAddress_v2"'))
    assert all(check["ok"] for check in checks.values())
    for lookup in ("cuGetProcAddress_v2", "cuGetProcAddress_v2, stream per thread"):
        assert (
            checks[f"lookup {lookup}"]["detail"]
            == "not available: this driver has no cuGetProcAddress_v2"
        )


def test_other_preloaded_libraries_are_listed(gpu, hami, program, tmp_path):
    other = program("lookalikes")
    missing = tmp_path / "missing.so"
    found = doctor(hami, gpu, env={"LD_PRELOAD": str(other)})["loader"]
    assert found["detail"] == f"LD_PRELOAD: libvgpu.so, then {other}"
    assert (found["ok"], found["fix"]) == (True, "")
    audit = program("named_wrapper")
    found = doctor(hami, gpu, env={"LD_AUDIT": str(audit)})["loader"]
    assert found["detail"] == f"LD_AUDIT: {audit}"
    assert found["fix"].startswith("unset LD_AUDIT")
    done = hami(gpu, "doctor", "--json", env={"LD_PRELOAD": str(missing)})
    found = {check["name"]: check for check in json.loads(done.out)}["loader"]
    assert f"missing: {missing}" in found["detail"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_library_made_without_a_compiler_is_what_binutils_expects(machine, tmp_path):
    path = tmp_path / "linked.so"
    path.write_bytes(Linked(["libone.so", "libtwo.so.1"], ["cuInit", "dlsym"]).image(machine))
    assert needed(path) == {"libone.so", "libtwo.so.1"}
    relocations = re.findall(r"R_(\w+?)_(GLOB_DAT)\s+\S+ (\w+)", readelf("-Dr", path))
    name = {"x86_64": "X86_64", "aarch64": "AARCH64"}[machine]
    assert relocations == [(name, "GLOB_DAT", "cuInit"), (name, "GLOB_DAT", "dlsym")]
    # Nothing in it can be executed, not even the stack that it asks for.
    assert re.findall(r"^ +(\w+) .* (R\w* *E?) +0x", readelf("--segments", path), re.MULTILINE) == [
        ("LOAD", "RW "),
        ("DYNAMIC", "RW "),
        ("GNU_STACK", "RW "),
    ]


@pytest.mark.parametrize("symbols", [["cuInit"], ["cuMemAlloc_v2", "cuInit", "cuMemFree_v2"]])
def test_a_library_made_without_a_compiler_is_bound_like_one_of_the_linkers(artifacts, symbols):
    """The loader's own account of what it binds: LD_DEBUG."""
    code = (
        "import sys; from hami_py.gpu.linked import Linked; from hami_py.gpu.loader import Loader; "
        "Loader().open(Linked(['libcuda.so.1'], sys.argv[1:]).write())"
    )
    variables = {
        "LD_LIBRARY_PATH": str(artifacts.stub_dir),
        "LD_DEBUG": "bindings",
        "LD_PRELOAD": str(artifacts.library),
        "PYTHONPATH": str(ROOT),
    }
    done = run([sys.executable, "-c", code, *symbols], variables)
    assert done.code == 0
    bound = [
        line
        for line in done.err.splitlines()
        if "binding file /proc/self/fd/" in line and " symbol `cu" in line
    ]
    assert len(bound) == len(symbols)
    for symbol, line in zip(symbols, bound, strict=True):
        assert f" to {artifacts.library} " in line
        assert line.endswith(f"symbol `{symbol}'")
