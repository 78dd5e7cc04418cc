"""``hami machine check``: what a policy grants, and what it names that a machine does not have."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hami_py import gpu
from hami_py.cli import hami
from hami_py.errors import InvalidValue, NoDriver
from unit.machine import CARDS

TEXT = """\
see = ["root", "nobody-like-this", "@root", "@no-such-group"]

[default]
gpumem = "8GiB"
gpucores = 30
mode = "soft"
priority = "low"

[group.typo]
cards = [0, 7]

[user.alcie]
cards = "none"

[user.64999]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    found = tmp_path / "machine.toml"
    found.write_text(TEXT)
    return found


def check(policy: Path, *users: str) -> Result:
    return CliRunner().invoke(hami, ["machine", "check", f"--policy={policy}", *users])


def test_what_the_machine_does_not_have_is_named(policy: Path, two_cards: None) -> None:
    done = check(policy)
    assert done.exit_code == 0
    choices = ", ".join(f"{card.index} ({card.uuid})" for card in CARDS)
    assert done.stderr.splitlines() == [
        f"hami: {policy}: this machine has no {what}"
        for what in (
            "user alcie",
            "user nobody-like-this",
            "group no-such-group",
            "group typo",
            f"card 7; choose from: {choices}",
        )
    ]


def test_cards_are_not_checked_without_nvml(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise NoDriver("NVML", "no driver", "install it")

    monkeypatch.setattr(gpu, "cards", fails)
    done = check(policy)
    assert (done.exit_code, "card 7" in done.stderr, "alcie" in done.stderr) == (0, False, True)


def test_all_that_a_table_grants_is_shown(policy: Path, two_cards: None) -> None:
    lines = check(policy).stdout.splitlines()
    assert lines[0].endswith("see root, nobody-like-this, @root, @no-such-group")
    assert lines[1].startswith("default: cards all; 8GiB, 30%, soft, low on each card; 32 slices")
    assert lines[2].startswith("group typo: cards 0, 7; no memory limit on each card;")
    assert lines[3].startswith("user alcie: no card")


def test_a_user_who_does_not_exist_is_refused(policy: Path, two_cards: None) -> None:
    error = check(policy, "alcie").exception
    assert isinstance(error, InvalidValue)
    assert "no such user" in error.fix
