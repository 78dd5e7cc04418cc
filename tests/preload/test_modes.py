"""How the library finds its limit: beside itself, or in HAMi's variables."""

import os
import shutil
from pathlib import Path

import pytest

from hami_py._native import FORMAT, Account, LimitRow, LimitsPage
from support import slices
from support.running import Started, run
from support.slices import GIB, MIB
from support.traces import value

REFUSED = [
    "cuInit(0) -> 100",
    "cuDeviceGetCount(&count) -> 3 count=-1",
    "cuDeviceGet(&device, 0) -> 3 device=-1",
    "cuDeviceTotalMem_v2(&total, 0) -> 3 total=untouched",
    "cuInit(0) -> 100",
]


@pytest.fixture
def assert_limit(program, probe):
    """`assert_limit(env, bytes)`: device 0 is told to have so much, has it, and not more."""

    def check(env, limit):
        done = run([program("memory_info")], env)
        assert done.err == ""
        assert value(done.lines[0], "total") == limit
        slice_probe = probe(env)
        assert slice_probe.grants(limit // MIB)
        assert not slice_probe.grants(limit // MIB + 1)

    return check


def assert_refused(program, env, *words):
    """CUDA is refused, and one line on standard error says all of this."""
    done = run([program("initialise")], env)
    assert done.lines == REFUSED
    assert done.code == 0
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("hami: ")
    for word in words:
        assert str(word) in done.err


# No page, no variable.


def test_without_page_and_variable_the_library_is_idle(artifacts, gpu, program):
    env = {**gpu.env, "LD_PRELOAD": str(artifacts.library)}
    for name in ("memory_info", "nvml_memory", "initialise"):
        assert run([program(name)], env) == run([program(name)], gpu.env)


# managed: the page beside the library.


@pytest.fixture
def managed(artifacts, slice_env, gpu):
    """`managed(limit)` is the environment of a container with the page beside the library."""

    def environment(limit):
        env = slice_env(gpu, limit)
        library = Path(env.pop("HAMI_SLICE")) / "libvgpu.so"
        library.unlink()
        shutil.copy(artifacts.library, library)
        return {**env, "LD_PRELOAD": str(library)}

    return environment


def test_managed_the_page_beside_the_library_is_the_limit(managed, assert_limit):
    assert_limit(managed(GIB), GIB)


def test_managed_the_library_may_be_reached_through_a_link(managed, assert_limit, tmp_path):
    env = managed(GIB)
    link = tmp_path / "link"
    link.symlink_to(Path(env["LD_PRELOAD"]).parent)
    assert_limit({**env, "LD_PRELOAD": str(link / "libvgpu.so")}, GIB)


@pytest.mark.parametrize("mode", ["managed", "env-only"])
def test_processes_share_the_limit(gpu, program, managed, by_variables, *, probe, mode):
    is_managed = mode == "managed"
    env = managed(GIB) if is_managed else by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g")
    with Started([program("hold"), "700"], env) as holder:
        holder.wait_for("holding")
        slice_probe = probe(env)
        assert slice_probe.grants(324)
        assert not slice_probe.grants(325)
    assert gpu.peak() == GIB


@pytest.mark.parametrize(
    ("variable", "limit"),
    [("512m", 512 * MIB), ("2g", GIB), ("0", GIB), ("536870912", 512 * MIB)],
)
def test_managed_the_environment_may_lower_and_not_raise(managed, assert_limit, variable, limit):
    assert_limit({**managed(GIB), "CUDA_DEVICE_MEMORY_LIMIT": variable}, limit)


@pytest.mark.parametrize("inner", [GIB, 3 * GIB])
def test_managed_a_slice_inside_may_lower_and_not_raise(
    gpu, managed, slice_env, assert_limit, inner
):
    env = managed(2 * GIB)
    slice = slice_env(gpu, inner)["HAMI_SLICE"]
    (Path(slice) / "libvgpu.so").unlink()
    inside = slices.environment(Path(env["LD_PRELOAD"]), slice)
    assert_limit({**env, **inside}, min(inner, 2 * GIB))


def test_managed_the_limit_was_left_by_a_link_to_the_library_elsewhere(
    managed, assert_limit, tmp_path
):
    """The loader takes a file once, under the first path by which it is named."""
    env = managed(GIB)
    link = tmp_path / "elsewhere"
    link.mkdir()
    (link / "libvgpu.so").symlink_to(env["LD_PRELOAD"])
    assert_limit({**env, "LD_PRELOAD": f"{link}/libvgpu.so:{env['LD_PRELOAD']}"}, GIB)


@pytest.mark.parametrize("name", ["libvgpu.so", "libother.so"])
def test_managed_the_limit_was_left_by_a_copy_of_the_library(
    managed, artifacts, assert_limit, tmp_path, name
):
    """The loader takes it first, and its hooks call the driver, not the container's library."""
    env = managed(GIB)
    copy = tmp_path / name
    shutil.copy(artifacts.library, copy)
    assert_limit({**env, "LD_PRELOAD": f"{copy}:{env['LD_PRELOAD']}"}, GIB)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root and its user")
@pytest.mark.parametrize("gives_up", ["chroot", "setuid"])
def test_managed_the_limit_cannot_be_left_before_the_first_call(
    managed, program, tmp_path, gives_up
):
    """The library cannot find its slice any more; that is not the same as having none."""
    env = managed(GIB)
    del env["STUB_GPU_SOCKET"]
    directory = Path(env["LD_PRELOAD"]).parent
    directory.chmod(0o700)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run([program("give_up"), gives_up], {**env, "EMPTY": str(empty)})
    assert done.lines == ["cuInit(0) -> 100"]
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith(f"hami: {directory}/")
    assert "limits beside the library cannot be found" in done.err


def test_a_library_of_a_relative_path_needs_no_slice(artifacts, gpu, program, tmp_path):
    """The program may have changed its directory since."""
    library = tmp_path / artifacts.library.name
    shutil.copy(artifacts.library, library)
    command = ["sh", "-c", f"cd / && exec {program('initialise')}"]
    env = {**gpu.env, "LD_PRELOAD": f"./{library.name}"}
    bare = run([program("initialise")], gpu.env)
    assert run(["env", *command], env, cwd=tmp_path).lines == bare.lines


# slice: the path by which the library was loaded.


@pytest.mark.parametrize("launcher", [("env", "-u", "HAMI_SLICE"), ("env", "-i", "LD_PRELOAD")])
def test_a_launcher_that_kept_only_ld_preload_left_the_limit(slice_env, gpu, program, launcher):
    env = slice_env(gpu, GIB)
    words = list(launcher)
    if words[1] == "-i":
        kept = {**gpu.env, "LD_PRELOAD": env["LD_PRELOAD"]}
        words[2:] = [f"{name}={text}" for name, text in kept.items()]
    done = run([*words, program("memory_info")], env)
    assert value(done.lines[0], "total") == GIB


def test_a_program_that_cleared_its_environment_left_the_limit(slice_env, gpu, program):
    """Before its first call. The page is found by the path by which the library was loaded."""
    done = run([program("clear_environment")], slice_env(gpu, GIB))
    assert value(done.lines[0], "total") == GIB


def test_a_program_whose_slice_was_removed_has_no_cuda_and_is_told_why(
    artifacts, slice_env, gpu, program, tmp_path
):
    """As by a cleaner of /tmp: a kept copy of the library is loaded instead."""
    kept = tmp_path / "kept" / "libvgpu.so"
    kept.parent.mkdir()
    shutil.copy(artifacts.library, kept)
    (kept.parent / "kept-for-slices").touch()
    env = slice_env(gpu, GIB)
    link = Path(env["LD_PRELOAD"])
    link.unlink()
    link.symlink_to(kept)
    env["LD_PRELOAD"] += f":{kept}"
    assert value(run([program("memory_info")], env).lines[0], "total") == GIB
    shutil.rmtree(link.parent)
    done = run([program("initialise")], env)
    assert done.lines == REFUSED
    assert "the slice of this program cannot be found: it was removed" in done.err


@pytest.mark.parametrize("name", ["limits", "account"])
def test_a_slice_of_another_format_is_refused(gpu, program, preload, tmp_path, name):
    """Its own library uses it: processes with libraries of two formats never share an account."""
    LimitsPage.create(tmp_path / "limits", [LimitRow(gpu.uuids()[0], GIB)])
    Account.create(tmp_path / "account")
    with (tmp_path / name).open("r+b") as file:
        file.seek(8)
        file.write((FORMAT + 1).to_bytes(4, "little"))
    words = (tmp_path / name, f"its version is not {FORMAT}", "make the slice again")
    assert_refused(program, preload(gpu, tmp_path), *words)


def test_the_limits_of_nested_slices_apply_together(gpu, program, preload, slice_dir, probe):
    """Two inner slices of 2 GiB in an outer one of 3: both limits hold, and the sum's too."""
    uuid = gpu.uuids()[0]
    outer = slice_dir({uuid: 3 * GIB})
    first, second = slice_dir({uuid: 2 * GIB}), slice_dir({uuid: 2 * GIB})
    env = [preload(gpu, f"{outer}:{inner}") for inner in (first, second)]
    assert not probe(env[0]).grants(2049)
    with Started([program("hold"), "1536"], env[0]) as holder:
        holder.wait_for("holding")
        assert not probe(env[0]).grants(513)
        assert probe(env[0]).grants(512)
        assert probe(env[1]).grants(1536)
        assert not probe(env[1]).grants(1537)
        assert value(run([program("memory_info")], env[1]).lines[0], "free") == 1536 * MIB
        assert probe(preload(gpu, outer)).grants(1536)
        assert not probe(preload(gpu, outer)).grants(1537)
    assert gpu.peak() == 3 * GIB


def test_a_refusal_by_an_inner_slice_is_not_charged_to_the_outer(
    gpu, program, preload, slice_dir, probe
):
    uuid = gpu.uuids()[0]
    outer, inner = slice_dir({uuid: 2 * GIB}), slice_dir({uuid: GIB})
    with Started(
        [program("allocate_too_much"), "1025"], preload(gpu, f"{outer}:{inner}")
    ) as requester:
        requester.wait_for("requesting")
        outer_probe = probe(preload(gpu, outer))
        assert all(outer_probe.grants(2048) for _ in range(3000))
        assert requester.finish(input="end").lines[-1] == "refused 1"


def test_the_environment_may_lower_a_slice(gpu, slice_env, assert_limit):
    assert_limit({**slice_env(gpu, GIB), "CUDA_DEVICE_MEMORY_LIMIT": "256m"}, 256 * MIB)


def test_a_card_without_a_row_has_no_memory(stub_server, program, slice_env, probe):
    gpu = stub_server("a100,a100")
    env = slice_env(gpu, {gpu.uuids()[0]: GIB})
    slice_probe = probe(env)
    assert slice_probe.grants(1024, 0)
    assert not slice_probe.grants(1, 1)
    info = run([program("memory_info")], env).lines[4]
    assert (value(info, "total"), value(info, "free")) == (0, 0)
    nvml = run([program("nvml_memory")], env).lines
    assert [value(line, "device") for line in nvml[:-1]] == [0, 0]
    assert gpu.peak(1) == 0


def test_a_device_number_outside_the_slice_is_explained(stub_server, program, slice_env):
    """CUDA counts the machine's cards, NVML in a slice the slice's: easily confused."""
    gpu = stub_server("a100,a100")
    env = {**slice_env(gpu, {gpu.uuids()[1]: GIB}), "CUDA_VISIBLE_DEVICES": "0"}
    done = run([program("probe")], env, input="1 0\n1 0\n")
    assert done.lines == ["ready", "2", "2"]
    assert done.err.count("\n") == 1
    assert "device 0 is a card outside this slice" in done.err
    assert "CUDA_VISIBLE_DEVICES" in done.err
    assert "by UUID" in done.err


def test_a_resize_takes_effect_in_a_running_program(gpu, program, preload, slice_dir):
    from hami_py._native import LimitsPage

    uuid = gpu.uuids()[0]
    ours = slice_dir({uuid: GIB})
    with Started([program("allocate_until"), "1536"], preload(gpu, ours)) as requester:
        requester.wait_for("ready").tell("go")
        assert requester.next_line() == "refused"
        LimitsPage.open(ours / "limits").set_memory_limits({uuid: 2 * GIB})
        assert requester.next_line().startswith("granted")


# env-only: HAMi's variables.


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1g", GIB),
        ("1G", GIB),
        ("512m", 512 * MIB),
        ("524288k", 512 * MIB),
        ("1073741824", GIB),
        ("1Gi", GIB),
        ("1024MiB", GIB),
    ],
)
def test_env_only_hami_s_variable_is_the_limit(gpu, by_variables, assert_limit, text, limit):
    assert_limit(by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT=text), limit)


def test_env_only_processes_share_the_limit_through_hami_s_cache_file(
    gpu, program, by_variables, tmp_path, probe
):
    cache = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g", **{cache: str(tmp_path / "one.cache")})
    other = {**env, cache: str(tmp_path / "other.cache")}
    with Started([program("hold"), "700"], env) as holder:
        holder.wait_for("holding")
        assert not probe(env).grants(325)
        assert probe(other).grants(1024)


def test_env_only_zero_is_no_limit(gpu, program, by_variables):
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="0")
    assert run([program("memory_info")], env) == run([program("memory_info")], gpu.env)


def test_env_only_each_card_may_have_its_own_limit(stub_server, program, by_variables, probe):
    gpu = stub_server("a100,a100,a100")
    memory = "CUDA_DEVICE_MEMORY_LIMIT"
    env = by_variables(gpu, **{memory: "1g", f"{memory}_1": "2g", f"{memory}_2": "0"})
    card = gpu.ledger()["cards"][2]["total"]
    told = [value(line, "total") for line in run([program("memory_info")], env).lines[::4]]
    assert told == [GIB, 2 * GIB, card]
    slice_probe = probe(env)
    assert not slice_probe.grants(1025, 0)
    assert slice_probe.grants(2048, 1)
    assert not slice_probe.grants(2049, 1)
    assert slice_probe.grants(4096, 2)


@pytest.mark.parametrize("field", ["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0"])
@pytest.mark.parametrize(
    "text", ["", "abc", "-1", "1.5g", "1gg", "g", "0x10", "010g", "99999999999g", " 1g", "1g "]
)
def test_env_only_a_bad_value_refuses_cuda_with_a_reason(gpu, program, by_variables, field, text):
    assert_refused(program, by_variables(gpu, **{field: text}), field, f'"{text}"')


def test_a_bad_value_is_bad_with_a_page_too(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    env["CUDA_DEVICE_MEMORY_LIMIT"] = "lots"
    assert_refused(program, env, "CUDA_DEVICE_MEMORY_LIMIT", '"lots"')


# A file-size limit (`ulimit -f`). A write beyond it is a signal, and not an error.


def under_size_limit(size, *command):
    return ["prlimit", f"--fsize={size}", "--", *command]


@pytest.mark.parametrize("size", [0, 4096, 100 * 1024])
def test_env_only_a_limit_on_file_sizes_refuses_cuda_with_a_reason(
    gpu, program, by_variables, size
):
    """The program did not get an error but was killed with SIGXFSZ."""
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g")
    done = run(under_size_limit(size, program("initialise")), env)
    assert (done.code, done.lines) == (0, REFUSED), done
    assert done.err.count("\n") == 1, done.err
    for words in ("hami: ", f"RLIMIT_FSIZE of this process is {size}", "ulimit -f"):
        assert words in done.err


def test_env_only_an_account_that_exists_may_be_larger_than_the_limit(
    gpu, program, by_variables, probe
):
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g")
    assert probe(env).grants(1024)
    done = run(under_size_limit(100 * 1024, program("memory_info")), env)
    assert (done.err, value(done.lines[0], "total")) == ("", GIB)


# Pages and accounts that are not what they should be.


def overwrite(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


#: What is done to a page or an account.
DAMAGES = {
    "magic": lambda path: overwrite(path, 0, b"NOTALIMI"),
    "version": lambda path: overwrite(path, 8, (99).to_bytes(4, "little")),
    "both copies": lambda path: [overwrite(path, at + 8, b"\xff" * 8) for at in (64, 4128)],
    "truncated": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "missing": lambda path: path.unlink(),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


#: An account has one copy of its header.
DAMAGED = [("limits", damage) for damage in DAMAGES]
DAMAGED += [("account", damage) for damage in DAMAGES if damage != "both copies"]


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_a_bad_file_refuses_cuda_with_a_reason(gpu, program, slice_env, name, damage):
    env = slice_env(gpu, GIB)
    file = Path(env["HAMI_SLICE"]) / name
    DAMAGES[damage](file)
    assert_refused(program, env, file)


@pytest.mark.parametrize("damage", [how for how in DAMAGES if how != "missing"])
def test_managed_a_bad_page_refuses_cuda_with_a_reason(gpu, program, managed, damage):
    env = managed({gpu.uuids()[0]: GIB})
    limits = Path(env["LD_PRELOAD"]).parent / "limits"
    DAMAGES[damage](limits)
    assert_refused(program, env, limits)


def test_a_bad_outer_page_refuses_cuda_too(gpu, program, preload, slice_dir):
    uuid = gpu.uuids()[0]
    outer, inner = slice_dir({uuid: GIB}), slice_dir({uuid: GIB})
    DAMAGES["magic"](outer / "limits")
    assert_refused(program, preload(gpu, f"{outer}:{inner}"), outer / "limits")


def test_the_inactive_copy_of_the_page_may_be_damaged(gpu, preload, slice_dir, assert_limit):
    """A writer that was killed leaves half a copy behind; the other one holds."""
    ours = slice_dir({gpu.uuids()[0]: GIB})
    page = ours / "limits"
    active = int.from_bytes(page.read_bytes()[32:36], "little")
    overwrite(page, 4128 if active == 0 else 64, b"\xff" * 500)
    assert_limit(preload(gpu, ours), GIB)


def test_a_refused_program_can_still_look_at_the_cards(gpu, program, slice_env):
    """NVML answers on: monitors and nvidia-smi must be able to show why."""
    env = slice_env(gpu, GIB)
    (Path(env["HAMI_SLICE"]) / "account").unlink()
    done = run([program("nvml_memory")], env)
    assert "nvmlShutdown() -> 0" in done.out
