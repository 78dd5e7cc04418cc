"""Who may use which cards of a machine."""

import os
import pwd
import threading
from pathlib import Path

import pytest

from hami_py.errors import HamiError, InvalidValue, StateError
from hami_py.machine import policy as policies
from hami_py.machine import users
from hami_py.machine.policy import FollowedPolicy, Grant, Policy, read_policy
from hami_py.machine.users import User, look_up, user_of
from hami_py.model import LimitRequest
from support.launcher import until

GIB = 1 << 30

TEXT = """\
sum = "strict"
see = ["carol", "@staff"]

[default]
gpumem = "8GiB"
gpucores = 30
mode = "soft"

[group.staff]
gpumem = "16GiB"

[group.students]
cards = [0, "GPU-b"]
gpumem = "4GiB"
slices = 2

[user.alice]

[user.1007]
cards = "none"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "machine.toml"


def policy(file: Path, text: str = TEXT) -> Policy:
    file.write_text(text)
    return read_policy(file)


def test_the_narrowest_table_that_names_a_user_counts(file: Path) -> None:
    read = policy(file)

    def limits(uid: int, name: str, *groups: str) -> Grant:
        return read.grant(User(uid, name, frozenset(groups)))

    assert limits(1000, "bob").limits == LimitRequest(8 * GIB, 30, "soft")
    assert limits(1000, "bob", "students", "staff").limits.memory == 16 * GIB, "the first group"
    student = limits(1001, "dave", "students")
    assert (student.cards, student.slices, student.limits.share) == (("0", "GPU-b"), 2, 100)
    assert limits(1002, "alice", "students").cards is None
    assert limits(1007, "erin").cards == ()
    assert limits(33, "www-data").limits.is_empty, "the system's"
    assert limits(33, "www-data", "students").limits.memory == 4 * GIB
    assert student.why == f"[group.students] in {file}"


def test_root_and_those_whom_the_policy_names_see_all_slices(file: Path) -> None:
    read = policy(file)
    seen = [
        read.sees_all(User(uid, name, frozenset(groups)))
        for uid, name, groups in (
            (0, "root", ()),
            (1, "carol", ()),
            (2, "x", ("staff",)),
            (3, "y", ()),
        )
    ]
    assert seen == [True, True, True, False]


def test_without_a_file_nobody_has_a_limit(file: Path) -> None:
    read = read_policy(file)
    assert (read.sum, read.grant(User(1000, "bob")).limits.is_empty) == ("shared", True)


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ('"8GiB"', '"4096m"', 5, "default.gpumem"),
        ("gpucores = 30", "gpucores = 300", 6, "default.gpucores"),
        ('mode = "soft"', 'mode = "loose"', 7, "default.mode"),
        ("cards = [0,", "cards = [true,", 13, "group.students.cards"),
        ("slices = 2", "slices = 0", 15, "group.students.slices"),
        ('gpumem = "4GiB"', "gpumem = 4", 14, "group.students.gpumem"),
        ('cards = "none"', 'card = "none"', 20, "user.1007.card"),
        ('cards = "none"', 'cards = "some"', 20, "user.1007.cards"),
        ('"strict"', '"loose"', 1, "sum"),
        ('"strict"', '"strict"\nmetrics = "9385"', 2, "metrics"),
        ("see =", "sea =", 2, "sea"),
    ],
)
def test_a_value_is_refused_with_its_line(
    file: Path, old: str, new: str, line: int, field: str
) -> None:
    assert old in TEXT
    with pytest.raises(InvalidValue) as error:
        policy(file, TEXT.replace(old, new))
    assert str(error.value).startswith(f"{file}, line {line}: {field}: "), error.value


@pytest.mark.parametrize("text", ["gpumem = \n", "[default\n", "a = 1\na = 2\n"])
def test_a_text_that_is_no_toml_is_refused_with_its_line(file: Path, text: str) -> None:
    with pytest.raises(StateError, match="line"):
        policy(file, text)


def test_a_file_that_others_may_write_is_refused(file: Path) -> None:
    policy(file)
    file.chmod(0o666)
    with pytest.raises(HamiError, match="others than root"):
        read_policy(file)


def test_users_have_their_groups() -> None:
    me = user_of(os.getuid())
    assert me.uid == os.getuid()
    assert me.groups
    assert look_up(4_000_000_000) == User(4_000_000_000, "4000000000", is_known=False)


def test_numbers_without_a_user_get_no_card() -> None:
    policy = Policy(users={"4711": Grant(why="[user.4711]")})
    for is_known, why in ((None, "does not answer"), (False, "without a user"), (True, "no table")):
        grant = policy.grant(User(100_000, "100000", is_known=is_known))
        assert (grant.cards == (), why in grant.why) == (not is_known, True)
        assert policy.grant(User(4711, "4711", is_known=is_known)).cards is None
        assert policy.grant(User(33, "33", is_known=is_known)).is_unlimited


def test_while_a_policy_is_refused_the_one_before_it_holds_also_after_a_reboot(
    file: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies, "_SETTLED_S", 0.0)
    kept = tmp_path / "kept.toml"
    file.write_text(TEXT)
    followed = FollowedPolicy(file, kept)
    good = followed.now()
    assert (followed.before, good) == (None, read_policy(file))
    file.write_text(TEXT.replace("gpumem", "gpumen"))
    assert followed.now() is good
    again = FollowedPolicy(file, kept)
    assert again.before == again.now() == good
    file.write_text("")
    assert again.now() == FollowedPolicy(file, kept).now() == good
    file.unlink()
    assert again.now() == good
    assert caplog.text.count("the policy before it holds") == 5
    file.write_text("[default]\n")
    assert again.now() == FollowedPolicy(file, kept).now() == read_policy(file)


def test_a_first_policy_that_is_refused_is_an_error(file: Path, tmp_path: Path) -> None:
    file.write_text("gpumen = 1")
    with pytest.raises(InvalidValue, match="gpumen"):
        FollowedPolicy(file, tmp_path / "kept.toml")


def test_a_policy_that_is_being_written_is_not_read(file: Path, tmp_path: Path) -> None:
    file.write_text("[default]\ngpumem = '8GiB'\n")
    followed = FollowedPolicy(file, tmp_path / "kept.toml")
    good = followed.now()
    file.write_text("[default]\n")
    assert followed.now() is good
    file.write_text("[default]\ngpumem = '4GiB'\n")
    assert followed.now() is good
    until(lambda: followed.now() == read_policy(file), "it is settled")


def test_nobody_waits_for_the_look_up_of_a_known_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a database of a network that does not answer, and then does not know the user."""
    me, asked, answer = user_of(os.getuid()), threading.Event(), threading.Event()

    def slow(uid: int) -> pwd.struct_passwd:
        asked.set()
        assert answer.wait(60)
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", slow)
    monkeypatch.setattr(users, "_FRESH_S", -1.0)
    assert user_of(os.getuid()) == me
    assert asked.wait(60)
    answer.set()
    assert user_of(os.getuid()) == me


def test_a_database_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[int]:
        raise OSError(5, "Input/output error")

    uid = pwd.getpwnam("nobody").pw_uid
    users._found.pop(uid, None)
    monkeypatch.setattr(users, "_FRESH_S", -1.0)
    with monkeypatch.context() as context:
        context.setattr(os, "getgrouplist", fails)
        assert user_of(uid).is_known is None
        until(lambda: uid not in users._asked, "it has failed")
    until(lambda: user_of(uid).name == "nobody", "it answers")
