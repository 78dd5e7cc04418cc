"""What a program loads with us: every module delays its start."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest

from hami_py.cli.commands import HAMI, KUBECTL, TOP, Commands, Entry
from support.artifacts import Artifacts
from unit.machine import DEADLINE

LATE = {"asyncio", "ctypes", "email", "hashlib", "http", "importlib.resources", "logging", "ssl"}
"""Modules of Python that take milliseconds."""


def loaded(*arguments: str, environment: Mapping[str, str]) -> set[str]:
    """The modules that a Python program imports beyond those of an empty one."""

    def names(*words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *words],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        return set(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, re.MULTILINE))

    return names(*arguments) - names("-c", "pass")


def parts_of_ours(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("hami_py.")}


def others(modules: set[str]) -> set[str]:
    """The packages that belong neither to us nor to Python, and the late modules of Python."""
    found = {name.split(".")[0] for name in modules} - {"hami_py", *sys.stdlib_module_names}
    # Importing `pathlib` tries these on other systems.
    return found - {"org"} | modules & LATE


def test_the_package_itself_loads_nothing() -> None:
    assert parts_of_ours(loaded("-c", "import hami_py", environment={})) == {"_native"}


def test_the_api_loads_no_bindings_until_they_are_needed() -> None:
    modules = loaded("-c", "import hami_py.api", environment={})
    ours = {"_native", "api", "config", "coordinator", "errors", "gpu", "model", "slices"}
    assert parts_of_ours(modules) == ours
    assert "hami_py.gpu.nvml" not in modules
    assert others(modules) == set()


def test_running_a_program_loads_nothing_of_kubernetes_and_no_tables(
    artifacts: Artifacts, runtime: Path
) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(artifacts.stub_dir),
        "HAMI_RUNTIME_DIR": str(runtime),
        "PATH": "/usr/bin:/bin",
    }
    modules = loaded("-m", "hami_py", "run", "--", "true", environment=environment)
    assert others(modules) - {"typing_extensions", "_cffi_backend"} == {
        *("click", "pynvml"),
        *("ctypes", "hashlib", "logging"),
    }
    for name in ("cli.doctor.checks", "cli.live", "gpu.lookups", "kube", "scheduler", "webhook"):
        assert f"hami_py.{name}" not in modules


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_option_of_hami_loads_no_command(option: str) -> None:
    modules = loaded("-m", "hami_py", option, environment={})
    assert parts_of_ours(modules) == {"_native", "cli", "errors"}
    assert others(modules) == {"click"}


@pytest.mark.parametrize("titles", [HAMI, KUBECTL, TOP], ids=["hami", "kubectl hami", "hami top"])
def test_every_command_is_where_the_list_says(titles: Mapping[str, Sequence[Entry]]) -> None:
    group = Commands(titles=titles)
    names = [each.name for entries in titles.values() for each in entries]
    context = click.Context(group)
    assert sorted(names) == group.list_commands(context)
    for name in names:
        found = group.get_command(context, name)
        assert found is not None and found.name == name
