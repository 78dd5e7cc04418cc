"""Refusals of the library: limits that it cannot enforce, directories that it cannot trust.

Each refusal is CUDA's "no device", and one line on standard error with the reason and the fix.
"""

import os
import shutil
from pathlib import Path

import pytest

from support.running import run
from support.slices import GIB


@pytest.fixture
def refusal(program):
    """The program's one line on standard error; CUDA was refused."""

    def of(env):
        done = run([program("initialise")], env)
        assert done.lines[0] == "cuInit(0) -> 100"
        (line,) = done.err.splitlines()
        assert line.startswith("hami: ")
        return line

    return of


@pytest.fixture
def hami_env(gpu, by_variables):
    """A limit by HAMi's variable alone; the account's place is the test's."""
    return by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g")


@pytest.mark.parametrize("field", ["CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT_3"])
@pytest.mark.parametrize("value", ["101", "abc", ""])
def test_an_invalid_compute_share_is_refused(hami_env, refusal, field, value):
    line = refusal({**hami_env, field: value})
    assert f'{field}: "{value}" is refused' in line


@pytest.mark.parametrize("value", ["0", "100"])
def test_values_without_a_compute_limit_are_accepted(hami_env, program, value):
    done = run([program("memory_info")], {**hami_env, "CUDA_DEVICE_SM_LIMIT": value})
    assert f"total={GIB}" in done.out


def test_eight_nested_slices_work_and_nine_are_refused(gpu, preload, slice_dir, program, refusal):
    uuid = gpu.uuids()[0]
    slices = [str(slice_dir({uuid: (9 - depth) * GIB})) for depth in range(9)]
    eight = run([program("memory_info")], preload(gpu, ":".join(slices[:8])))
    assert f"total={2 * GIB}" in eight.out
    assert "at most 8" in refusal(preload(gpu, ":".join(slices)))


def test_a_run_time_directory_that_others_can_write_is_refused(hami_env, tmp_path, refusal):
    runtime = tmp_path / "hami"
    runtime.mkdir()
    runtime.chmod(0o777)
    line = refusal(hami_env)
    assert f"{runtime}: others can write it" in line
    assert "CUDA_DEVICE_MEMORY_SHARED_CACHE" in line


def test_a_run_time_directory_that_is_a_link_is_refused(hami_env, tmp_path, refusal):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "hami").symlink_to(tmp_path / "elsewhere")
    assert f"{tmp_path / 'hami'}: it is not a directory" in refusal(hami_env)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_run_time_directory_of_another_user_is_refused(hami_env, tmp_path, refusal):
    runtime = tmp_path / "hami"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, 65534, 65534)
    assert f"{runtime}: it belongs to another user" in refusal(hami_env)


def test_a_directory_that_cannot_be_created_is_refused(hami_env, refusal):
    """/proc takes no directory, not even root's."""
    line = refusal({**hami_env, "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/proc/nowhere/cache"})
    assert "/proc/nowhere/cache.hami: No such file or directory" in line


@pytest.mark.parametrize(
    "variable", ["HAMI_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MEMORY_SHARED_CACHE"]
)
def test_a_variable_that_limits_nothing_refuses_nothing(artifacts, gpu, program, variable):
    """Not even when it is no text: without a limit the library is idle."""
    env = {**gpu.env, variable: "0\udcff"}
    bare = run([program("memory_info")], env)
    assert run([program("memory_info")], {**env, "LD_PRELOAD": str(artifacts.library)}) == bare


@pytest.fixture
def common_place():
    """Where the account goes when the environment names no place; left as it was found."""
    place = Path(f"/tmp/hami-{os.geteuid()}/environment")  # noqa: S108
    was_there = place.exists()
    yield place
    if not was_there:
        shutil.rmtree(place)


@pytest.mark.parametrize("name", ["", "relative"])
def test_a_run_time_directory_without_a_root_is_ignored(
    hami_env, program, tmp_path, common_place, name
):
    """As its specification says. The program's working directory stays as it was."""
    env = {**hami_env, "HAMI_RUNTIME_DIR": name, "CUDA_DEVICE_MEMORY_SHARED_CACHE": ""}
    done = run([program("memory_info")], env, cwd=tmp_path)
    assert f"total={GIB}" in done.out
    assert (common_place / "account").exists()
    assert list(tmp_path.glob(".hami")) == []
    assert not (tmp_path / "relative").exists()
