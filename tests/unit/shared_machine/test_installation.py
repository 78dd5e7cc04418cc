"""The unit of the service, and its first policy."""

from pathlib import Path

import pytest

from hami_py.errors import InvalidValue, StateError
from hami_py.machine import installation
from hami_py.machine.policy import Grant, read_policy


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What systemctl is asked to do."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(installation, "_systemctl", lambda *words: found.append(words))
    return found


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The `hami` of root."""
    made = tmp_path / "hami"
    made.touch()
    return made


def test_the_service_is_installed_with_a_policy_that_limits_nobody(
    program: Path, tmp_path: Path, calls: list[tuple[str, ...]]
) -> None:
    policy, unit = tmp_path / "etc" / "machine.toml", tmp_path / "hami-machine.service"
    installation.install(program, policy, unit)
    assert f"\nExecStart={program} machine\n" in unit.read_text()
    assert [words[0] for words in calls] == ["daemon-reload", "enable", "restart"]
    read = read_policy(policy)
    assert (read.sum, read.default.cards, read.default.slices) == ("shared", None, Grant().slices)
    policy.write_text('[default]\ngpumem = "8GiB"\n')
    installation.install(program, policy, unit)
    assert "8GiB" in policy.read_text(), "an administrator's policy stays"


def test_nothing_is_installed_with_a_policy_that_is_refused(
    program: Path, tmp_path: Path, calls: list[tuple[str, ...]]
) -> None:
    policy, unit = tmp_path / "machine.toml", tmp_path / "hami-machine.service"
    policy.write_text('[default]\ngpumem = "8"\n')
    with pytest.raises(InvalidValue, match="line 2"):
        installation.install(program, policy, unit)
    assert (unit.exists(), calls) == (False, [])


@pytest.mark.parametrize("at", ["hami", "."])
def test_root_runs_no_program_that_others_can_change(
    program: Path, tmp_path: Path, calls: list[tuple[str, ...]], at: str
) -> None:
    (tmp_path / at).chmod(0o777)
    with pytest.raises(StateError, match=f"can write {tmp_path / at},"):
        installation.install(program, tmp_path / "machine.toml", tmp_path / "unit")
    assert calls == []


def test_a_machine_without_systemd_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(StateError, match="another service manager"):
        installation._systemctl("daemon-reload")
