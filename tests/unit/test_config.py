"""Settings from the environment."""

import importlib.metadata
import os
from pathlib import Path

import pytest

import hami_py
from hami_py import config
from unit.machine import FALLBACK

ROOT = Path(__file__).parents[2]


def test_the_defaults() -> None:
    settings = config.read({})
    assert settings.runtime_directory == FALLBACK
    assert settings.library == Path(hami_py.__file__).parent / "lib" / "libvgpu.so"
    assert settings.visible_devices is None
    assert settings.hami_limits == {}


def test_every_variable(tmp_path: Path) -> None:
    settings = config.read(
        {
            "HAMI_RUNTIME_DIR": str(tmp_path),
            "HAMI_LIBRARY": "/opt/libvgpu.so",
            "CUDA_VISIBLE_DEVICES": "",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_DEVICE_MEMORY_LIMIT": "4g",
            "CUDA_DEVICE_MEMORY_LIMIT_15": "2g",
            "CUDA_DEVICE_SM_LIMIT_0": "30",
            "GPU_CORE_UTILIZATION_POLICY": "force",
            "CUDA_TASK_PRIORITY": "0",
            "CUDA_DEVICE_MEMORY_LIMIT_16": "not one of them",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/var/x.cache",
            "PATH": "/bin",
        }
    )
    assert settings.runtime_directory == tmp_path / "hami"
    assert settings.library == Path("/opt/libvgpu.so")
    assert settings.visible_devices == ""
    assert settings.device_order == "PCI_BUS_ID"
    assert settings.hami_limits == {
        "CUDA_DEVICE_MEMORY_LIMIT": "4g",
        "CUDA_DEVICE_MEMORY_LIMIT_15": "2g",
        "CUDA_DEVICE_SM_LIMIT_0": "30",
        "GPU_CORE_UTILIZATION_POLICY": "force",
        "CUDA_TASK_PRIORITY": "0",
    }
    assert settings.hami_account == Path("/var/x.cache.hami")
    assert settings.environment["PATH"] == "/bin"


def test_a_relative_library_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may start in another directory."""
    monkeypatch.chdir(tmp_path)
    assert config.read({"HAMI_LIBRARY": "lib/x.so"}).library == tmp_path / "lib" / "x.so"


def test_a_relative_shared_cache_is_where_the_program_is() -> None:
    settings = config.read({"CUDA_DEVICE_MEMORY_SHARED_CACHE": "x.cache"})
    assert settings.hami_account == Path("x.cache.hami")


def test_an_empty_shared_cache_is_none() -> None:
    settings = config.read({"CUDA_DEVICE_MEMORY_SHARED_CACHE": ""})
    assert settings.hami_account == FALLBACK / "environment"


def test_a_relative_runtime_directory_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be another one in each working directory."""
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir(mode=0o700)
    for text in ("here", ".", "./here"):
        assert config.read({"HAMI_RUNTIME_DIR": text}).runtime_directory == FALLBACK


def test_a_logout_removed_the_slices_of_a_job(tmp_path: Path) -> None:
    """`XDG_RUNTIME_DIR` ends with the last session, and cron has none."""
    (tmp_path / "run").mkdir(mode=0o700)
    session = config.read({"XDG_RUNTIME_DIR": str(tmp_path / "run")})
    assert session.runtime_directory == config.read({}).runtime_directory == FALLBACK


@pytest.mark.parametrize("text", ["", "/nonexistent", "/proc/1/root/x"])
def test_a_missing_runtime_directory_is_skipped(text: str) -> None:
    settings = config.read({"HAMI_RUNTIME_DIR": text})
    assert settings.runtime_directory == FALLBACK


def test_a_runtime_directory_of_another_user_is_skipped(tmp_path: Path) -> None:
    """`sudo` and `su` leave the other user's variable behind."""
    foreign = tmp_path
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    else:
        foreign = Path("/")
    settings = config.read({"HAMI_RUNTIME_DIR": str(foreign)})
    assert settings.runtime_directory == FALLBACK


def test_the_version_is_that_of_cargo() -> None:
    assert f'\nversion = "{hami_py.__version__}"\n' in (ROOT / "Cargo.toml").read_text()
    assert importlib.metadata.version("hami-py") == hami_py.__version__
