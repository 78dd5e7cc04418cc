"""dlsym, dlvsym and cuGetProcAddress return the same as without the library.

Programs without CUDA use these functions, too.
"""

import re

import pytest

from support import drivers, elf
from support.artifacts import ROOT
from support.console import NOT_SUPPORTED
from support.running import run
from support.slices import GIB, MIB, environment
from support.traces import comparable


def anonymous(lines):
    """Without the object that dlerror says it looked from.

    Where our own export is the only function of a name, the program must find none. glibc then
    names us, who asked, instead of the program.
    """
    hooked = re.compile(
        r"\S+: (undefined symbol: (?:cuInit|cuMemAlloc_v2|cuGetProcAddress_v2|nvml))"
    )
    return [hooked.sub(r"#: \1", line) for line in lines]


versions = pytest.mark.parametrize("version", [drivers.NEWEST, *drivers.OLDER])


@versions
def test_cu_get_proc_address_returns_the_requested_version(artifacts, trace_pair, version):
    names = [*drivers.names(), "cuNoSuchThing", "cuMemAlloc_v2", "curl_easy_init"]
    env = drivers.environment(artifacts, version)
    bare, limited = trace_pair("proc_address_table", GIB, env=env, input="\n".join(names))
    assert len(bare) > 10_000
    assert limited == bare


@pytest.mark.parametrize("version", [v for v in [drivers.NEWEST, *drivers.OLDER] if v != "11.8"])
def test_cu_get_proc_address_is_as_strict_as_the_driver(artifacts, trace_pair, version):
    env = drivers.environment(artifacts, version)
    bare, limited = trace_pair("proc_address_edges", GIB, env=env)
    assert len(bare) > 500
    assert limited == bare


def test_functions_that_an_older_driver_lacks_are_missing_in_cu_get_proc_address(
    stub_server, program, preload, slice_dir, tmp_path
):
    """A driver of CUDA 11.4 has no later functions, for any requested version."""
    profile = tmp_path / "old.toml"
    text = (ROOT / "tests" / "stub" / "profiles" / "a100.toml").read_text()
    profile.write_text(f"cuda_version = 11040\n{text}")
    names = "\n".join(drivers.names())
    gpu = stub_server(str(profile))
    command = [program("proc_address_table")]
    slice_path = slice_dir({gpu.uuids()[0]: GIB})
    bare = run(command, gpu.env, input=names)
    limited = run(command, preload(gpu, slice_path), input=names)
    assert bare.out.count(" NULL status=") > 100
    assert limited.lines == bare.lines


@pytest.fixture
def old_driver(program, tmp_path):
    """The folder of a libcuda.so.1 that lacks nearly everything."""
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "libcuda.so.1").write_bytes(program("old_driver").read_bytes())
    return folder


def symbols():
    """Every symbol of any driver."""
    return sorted({*drivers.signatures("cuda"), *drivers.since()})


def test_dlsym_finds_no_symbol_that_a_very_old_driver_lacks(artifacts, program, old_driver):
    env, names = {"LD_LIBRARY_PATH": str(old_driver)}, "\n".join(symbols())
    bare = run([program("missing_symbols")], env, input=names)
    preloaded = {**env, "LD_PRELOAD": str(artifacts.library)}
    limited = run([program("missing_symbols")], preloaded, input=names)
    assert "cuMemAlloc_v2: by handle 0" in bare.out
    assert limited == bare


@versions
def test_dlsym_finds_no_symbol_that_the_driver_lacks(artifacts, trace_pair, version):
    env = drivers.environment(artifacts, version)
    bare, limited = trace_pair("missing_symbols", GIB, env=env, input="\n".join(symbols()))
    later = [n for n, since in drivers.since().items() if since > drivers.OLDER.get(version, 99000)]
    absent = ": by handle 0, by version 0, in the global scope 0, next 0"
    assert {line.partition(":")[0] for line in bare if line.endswith(absent)} >= {*later}
    assert sum(" 1" in line for line in bare) > 500
    assert limited == bare


@pytest.mark.parametrize("version", drivers.OLDER)
def test_a_direct_call_of_a_function_that_the_driver_lacks_is_not_supported(
    artifacts, program, slice_env, gpu, version
):
    """The dynamic linker binds weak references to our exports, whatever the driver has."""
    hooked = elf.exported(artifacts.library) & set(drivers.signatures("cuda"))
    lacking = hooked - elf.exported(artifacts.older_driver(version) / "libcuda.so.1")
    functions = "".join(f"X({name})" for name in sorted(lacking))
    caller = program("missing_symbol_calls", f"-DFUNCTIONS={functions}")
    done = run([caller], {**slice_env(gpu, GIB), **drivers.environment(artifacts, version)})
    expected = {f"{name} -> {NOT_SUPPORTED} {NOT_SUPPORTED} written=0" for name in lacking}
    assert {*done.lines} == expected
    assert (len(done.lines), done.code) == (3 * len(lacking), 0)


def test_a_direct_call_of_a_missing_function_is_not_supported(artifacts, program, old_driver):
    env = {"LD_LIBRARY_PATH": str(old_driver), "LD_PRELOAD": str(artifacts.library)}
    done = run([program("missing_symbol_call")], env)
    assert done.lines[-1].endswith(" -> 801 pointer=untouched")
    assert done.code == 0


def test_without_a_driver_a_program_finds_no_cuda(artifacts, program):
    bare = run([program("lookup_without_driver")], {})
    limited = run([program("lookup_without_driver")], {"LD_PRELOAD": str(artifacts.library)})
    assert bare.out.count("-> NULL") == 8
    assert anonymous(limited.lines) == anonymous(bare.lines)


def test_a_weak_reference_without_a_driver_returns_an_error(artifacts, program):
    """The dynamic linker binds it to our export; the call must not pretend that there is a GPU."""
    done = run([program("weak_reference")], {"LD_PRELOAD": str(artifacts.library)})
    assert done.code == 0
    assert done.lines
    assert not any(" -> 0" in line for line in done.lines)


def test_dlerror_returns_the_same_as_without_us(trace_pair):
    bare, limited = trace_pair("lookup_errors", GIB)
    assert "undefined symbol: cuNoSuchThing" in "\n".join(bare)
    assert anonymous(limited) == anonymous(bare)


def test_the_next_definition_after_a_program_is_that_of_libc(artifacts, program):
    bare = run([program("next_in_libc")], {})
    limited = run([program("next_in_libc")], {"LD_PRELOAD": str(artifacts.library)})
    assert bare.lines[0] == bare.lines[1] == "open in libc.so.6, no error"
    assert limited == bare


def subject(program, *preloaded):
    """The results of the two calls of `wrapped` below these preload libraries."""
    return run([program("wrapped")], {"LD_PRELOAD": ":".join(map(str, preloaded))})


@pytest.mark.parametrize("ours", [0, 1, 2])
def test_another_preload_library_finds_what_comes_after_itself(artifacts, program, ours):
    """RTLD_NEXT means next after the caller; from our place it would find the caller itself."""
    chain = [program("named_wrapper"), program("named_base")]
    bare = subject(program, *chain)
    limited = subject(program, *chain[:ours], artifacts.library, *chain[ours:])
    assert bare.lines == ["subject() = 11", "subject() = 11"]
    assert limited == bare


def test_two_wrappers_in_a_chain_each_find_the_next(artifacts, program, tmp_path):
    first, second = tmp_path / "first.so", tmp_path / "second.so"
    for copy in (first, second):
        copy.write_bytes(program("named_wrapper").read_bytes())
    done = subject(program, artifacts.library, first, second, program("named_base"))
    assert done.lines == ["subject() = 21", "subject() = 21"]


@pytest.mark.parametrize("mebibytes", [960, 961])
@pytest.mark.parametrize("lookup", ["lookup_by_link", "lookup_by_soname"])
def test_a_user_s_library_before_ours_sees_the_driver_s_calls(
    program, stub_server, slice_env, *, lookup, mebibytes
):
    """It sees the calls that it sees without us, and the limit of 1 GiB is exact."""
    counter, command = program("count_allocations"), [program(lookup), str(mebibytes)]
    bare_gpu, gpu = stub_server(), stub_server()
    bare = run(command, {**bare_gpu.env, "LD_PRELOAD": str(counter)})
    env = slice_env(gpu, GIB)
    env["LD_PRELOAD"] = f"{counter}:{env['LD_PRELOAD']}"
    limited = run(command, env)
    assert bare.lines[-1] == ("counted 2" if lookup == "lookup_by_link" else "counted 0")
    assert limited.lines[-1] == bare.lines[-1]
    assert (" -> 2 pointer=untouched" in limited.out) == (mebibytes == 961)
    assert gpu.peak() == (GIB if mebibytes == 960 else 64 * MIB)


def test_a_limit_holds_with_a_user_s_library_behind_ours(program, gpu, slice_env):
    """It sees no calls. docs/tested-programs.md names the order in which it does."""
    env = slice_env(gpu, GIB)
    env["LD_PRELOAD"] += f":{program('count_allocations')}"
    done = run([program("lookup_by_link"), "961"], env)
    assert done.out.count(" -> 2 pointer=untouched") == 1
    assert done.lines[-1] == "counted 0"


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_malloc_wrapper_can_look_up_malloc(artifacts, program, gpu, slice_env, ours_first):
    """dlsym of a name that is not ours allocates nothing, in programs with and without CUDA."""
    chain = [artifacts.library, program("malloc_wrapper")]
    preload = ":".join(map(str, chain if ours_first else reversed(chain)))
    done = run(["ls", "/"], {"LD_PRELOAD": preload})
    assert done == run(["ls", "/"], {})
    env = {**slice_env(gpu, GIB), "LD_PRELOAD": preload}
    bare = run([program("lookup_by_soname")], gpu.env)
    limited = run([program("lookup_by_soname")], env)
    assert comparable(limited.out) == comparable(bare.out)


def test_a_library_keeps_its_own_runpath(artifacts, program, tmp_path):
    (tmp_path / "libsibling.so").write_bytes(program("sibling").read_bytes())
    library = tmp_path / "runpath.so"
    library.write_bytes(program("runpath").read_bytes())
    env = {"RUNPATH_LIBRARY": str(library)}
    bare = run([program("runpath_user")], env)
    limited = run([program("runpath_user")], {**env, "LD_PRELOAD": str(artifacts.library)})
    assert bare.lines == ["call_sibling() = 7"]
    assert limited == bare


def test_a_library_that_only_looks_like_the_driver_keeps_its_functions(trace_pair, program):
    env = {"LOOKALIKES": str(program("lookalikes"))}
    bare, limited = trace_pair("lookalike_names", GIB, env=env)
    assert bare[1:7] == [
        "curl_easy_init() = 1",
        "custom_fn() = 2",
        "cuInit() = 3",
        "cuMemAlloc_v2() = 4",
        "nvmlDeviceGetMemoryInfo() = 5",
        "cuNotOfTheDriver() = 6",
    ]
    assert limited == bare


def test_a_program_may_have_a_cu_init_of_its_own(trace_pair):
    bare, limited = trace_pair("own_cuinit", GIB)
    assert [line.rsplit(" -> ")[1] for line in bare[:3]] == ["1001", "1002", "0"]
    assert limited == bare


def test_lookups_of_a_program_without_cuda_open_no_slice(artifacts, program, tmp_path):
    """The slice is damaged: only a CUDA call may care."""
    (tmp_path / "limits").touch()
    bare = run([program("next_in_libc")], {})
    limited = run([program("next_in_libc")], environment(artifacts.library, tmp_path))
    assert comparable(limited.out) == comparable(bare.out)
    assert limited.err == ""
