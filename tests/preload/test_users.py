"""Two users on one machine: a slice of one is inaccessible to the other.

Anna has a slice. Bert tries to see, read, join, change or remove it, and creates files where Anna's
programs will look. Only the kernel's file permissions protect the slice. If they deny Bert access,
CUDA is refused and not left without a limit.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest

import hami_py
from hami_py import CardLimit, StateError, config, gpu, slices
from hami_py._native import Account, LimitsPage
from hami_py.cli import main, ps, rm, run  # noqa: F401 - another user may not read their files
from hami_py.slices import create
from support.running import Started
from support.slices import GIB
from support.users import User

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

#: Users that no machine has.
ANNA, BERT = 64001, 64002


@pytest.fixture
def place():
    """A directory under /tmp that everyone can enter: pytest's own is root's alone."""
    with tempfile.TemporaryDirectory(prefix="hami-test-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def anna(place):
    yield User(ANNA, place / "anna")
    remove(common_place(ANNA))


@pytest.fixture
def bert(place):
    yield User(BERT, place / "bert")
    remove(common_place(BERT))


def common_place(user):
    """Where a user's slices are without HAMI_RUNTIME_DIR; anyone can make it first."""
    return Path(f"/tmp/hami-{user}")  # noqa: S108


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture
def uuid(gpu):
    """The card's, also of a stub without a server: it follows from the model."""
    return gpu.uuids()[0]


@pytest.fixture
def cuda(place, artifacts, program):
    """`cuda(user, limited, name, *arguments)` starts a program in a slice, or with variables.

    Its card is its own, in its own process. All files are copies: a user may not look into ours.
    """
    programs = [program(name) for name in ("initialise", "allocate", "hold")]
    for path in [artifacts.library, artifacts.libcuda, *programs]:
        shutil.copy(path, place / path.name)
        (place / path.name).chmod(0o755)
    library, kept = (folder / artifacts.library.name for folder in (place, place / "kept"))
    kept.parent.mkdir()
    shutil.copy(library, kept)
    (kept.parent / "kept-for-slices").touch()
    with contextlib.ExitStack() as started:

        def start(user, limited, name, *arguments):
            if isinstance(limited, Path):
                limited = {"LD_PRELOAD": f"{limited / kept.name}:{kept}"}
            env = {"LD_LIBRARY_PATH": str(place), "LD_PRELOAD": str(library), **limited}
            return started.enter_context(Started(user.command(place / name, *arguments), env))

        yield start


@contextlib.contextmanager
def a_slice(runtime, uuid, place):
    """A slice of 1 GiB, as `hami run` makes it."""
    library = place / "kept" / "libvgpu.so"
    with create(runtime, [CardLimit(uuid, GIB)], ["train"], library) as directory:
        yield directory


@pytest.fixture
def annas(anna, uuid, place):
    """The directory of Anna's slice, while it lives."""
    with anna.holding(a_slice(common_place(ANNA), uuid, place)) as directory:
        yield directory


def open_to_all(directory, layers):
    """Anna was careless: so many directories on the way to her files can be entered by everyone."""
    for path in [common_place(ANNA), directory.parent, directory][:layers]:
        path.chmod(0o755)


def refused(action, *arguments):
    """The kernel says no."""
    try:
        action(*arguments)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM}
    return False


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


careless = pytest.mark.parametrize("layers", range(4))


# Bert and Anna's slice.


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_has_access_to_a_slice(anna, uuid, place, umask):
    def with_umask():
        os.umask(umask)
        return a_slice(common_place(ANNA), uuid, place)

    @contextlib.contextmanager
    def made():
        with with_umask() as directory:
            yield directory

    with anna.holding(made()) as directory:
        for path in [common_place(ANNA), directory.parent, directory]:
            assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (ANNA, 0o700)
        # The page may be read by all who get so far: in a container they must.
        files = [path for path in directory.iterdir() if not path.is_symlink()]
        modes = {path.name: path.stat().st_mode for path in files}
        assert all(stat.S_ISREG(mode) and not mode & 0o033 for mode in modes.values())
        assert {modes.pop(name) & 0o777 for name in ("account", "slice.json")} == {0o600}


@careless
def test_another_user_cannot_read_write_or_remove_a_slice(annas, bert, layers):
    open_to_all(annas, layers)
    before = contents(annas)

    def tries():
        allowed = []
        for name in before:
            path, elsewhere = annas / name, bert.home / name
            attempts = {
                "write": (path.open, "r+b"),
                "remove": (path.unlink,),
                "rename": (path.rename, elsewhere),
                "open to all": (path.chmod, 0o666),
                "link": (os.link, path, elsewhere),
            }
            if name not in {"limits", "grants"} or layers < 3:
                attempts["read"] = (path.read_bytes,)
            allowed += [what for what, attempt in attempts.items() if not refused(*attempt)]
        attempts = {
            "put in": ((annas / "mine").touch,),
            "rename the slice": (annas.rename, annas.with_name("mine")),
            "remove the slice": (annas.rmdir,),
            "make another": ((annas.parent / "mine").mkdir,),
        }
        if layers < 3:
            attempts["list"] = (os.listdir, annas)
        return allowed + [what for what, attempt in attempts.items() if not refused(*attempt)]

    assert bert.call(tries) == []
    assert contents(annas) == before


@careless
@pytest.mark.parametrize("what", ["raise the limit", "read the account", "make an account"])
def test_another_user_cannot_change_limit_or_account(annas, bert, uuid, layers, what):
    open_to_all(annas, layers)
    before = contents(annas)
    attempts = {
        "raise the limit": lambda: LimitsPage.open(annas / "limits").set_memory_limits(
            {uuid: None}
        ),
        "read the account": lambda: Account.open(annas / "account"),
        "make an account": lambda: Account.create(annas / "account"),
    }

    def tries():
        with pytest.raises(OSError, match=str(annas)):
            attempts[what]()

    bert.call(tries)
    assert contents(annas) == before


@careless
def test_a_program_of_another_user_in_a_slice_has_no_cuda(annas, bert, cuda, layers):
    """Not a slice without a limit: one line says what is wrong, and nothing is allocated."""
    open_to_all(annas, layers)
    before = contents(annas)
    done = cuda(bert, annas, "initialise").finish()
    assert done.lines[0] == "cuInit(0) -> 100"
    *loader, ours = done.err.splitlines()
    assert ours.startswith("hami: ")
    # If Bert cannot enter her directory, the loader says so too, and takes the kept copy.
    assert len(loader) == (layers < 3)
    assert ("Permission denied" if layers == 3 else "cannot see it") in ours
    asked = cuda(bert, annas, "allocate", "1").finish()
    assert asked.lines == ["FAILED cuInit(0) -> 100"]
    assert contents(annas) == before


def test_an_own_slice_does_not_give_access_to_others(annas, bert, uuid, cuda, place):
    with bert.holding(a_slice(common_place(BERT), uuid, place)) as berts:
        asked = cuda(bert, berts, "allocate", "1024").finish()
        assert asked.out.endswith("-> 0 pointer=p0\n")
        for both in [(annas, berts), (berts, annas)]:
            (berts / "layers").write_text("".join(f"{path}\n" for path in both))
            done = cuda(bert, berts, "initialise").finish()
            assert done.lines[0] == "cuInit(0) -> 100"
            assert str(annas) in done.err


def test_the_owner_s_programs_run_in_it(annas, anna, cuda):
    beyond, within = (cuda(anna, annas, "allocate", size).finish() for size in ("1025", "1024"))
    assert beyond.out.endswith("-> 2 pointer=untouched\n")
    assert within.out.endswith("-> 0 pointer=p0\n")


# Files that Bert creates where Anna's programs will look.


TRAPS = {
    "a directory": lambda path, his, hers: path.mkdir(mode=0o700),
    "a directory for all": lambda path, his, hers: (path.mkdir(), path.chmod(0o777)),
    "a link to his own": lambda path, his, hers: path.symlink_to(his),
    "a link to hers": lambda path, his, hers: path.symlink_to(hers),
    "a link to nothing": lambda path, his, hers: path.symlink_to(his / "nothing"),
    "a hard link": lambda path, his, hers: os.link(his / "file", path),
    "a file": lambda path, his, hers: path.touch(),
    "a fifo": lambda path, his, hers: os.mkfifo(path),
}
each_trap = pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)


@pytest.fixture
def lay(anna, bert):
    """`with lay(trap, path)`: Bert lays it there, and nothing may come of where it leads."""
    his, hers = bert.home / "his", anna.home / "hers"
    anna.call(lambda: hers.mkdir(mode=0o700))
    bert.call(lambda: his.mkdir(mode=0o700))
    bert.call((his / "file").touch)

    @contextlib.contextmanager
    def laid(trap, path):
        bert.call(lambda: trap(path, his, hers))
        try:
            yield
            assert list(hers.iterdir()) == []
            assert list(his.iterdir()) == [his / "file"]
            assert (his / "file").read_bytes() == b""
        finally:
            remove(path)

    return laid


@each_trap
def test_a_runtime_directory_of_another_user_is_not_used(anna, lay, uuid, place, trap):
    def start():
        with pytest.raises(StateError, match=str(common_place(ANNA))):
            a_slice(common_place(ANNA), uuid, place).__enter__()

    with lay(trap, common_place(ANNA)):
        anna.call(start)


@each_trap
def test_another_user_blocked_a_user_s_runtime_directory(anna, lay, trap):
    """Anna gets one whose name nobody can know before, and finds it again."""

    def find():
        found = config.read({}).runtime_directory
        return str(slices.runtime_directory(found))

    with lay(trap, common_place(ANNA)):
        first, second = (anna.call(find) for _ in range(2))
        try:
            assert first == second
            assert first.startswith(f"{common_place(ANNA)}-")
            assert (Path(first).stat().st_uid, Path(first).stat().st_mode & 0o777) == (ANNA, 0o700)
        finally:
            remove(Path(first))


@pytest.fixture(params=["by default", "by HAMi's variable"])
def account(request, place):
    """Where the account lies with HAMi's variables alone, and the variables."""
    variables = {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}
    if request.param == "by default":
        return common_place(ANNA), variables
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    cache = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(shared / "cache")}
    return shared / "cache.hami", {**variables, **cache}


@each_trap
def test_an_account_of_another_user_refuses_cuda(anna, lay, cuda, account, trap):
    path, variables = account
    with lay(trap, path):
        done = cuda(anna, variables, "initialise").finish()
        assert done.lines[0] == "cuInit(0) -> 100"
        assert done.err.count("\n") == 1, done.err
        assert str(path) in done.err


def test_users_with_the_same_variables_have_limits_of_their_own(anna, bert, cuda):
    variables = {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}
    cuda(anna, variables, "hold", "900").wait_for("holding")
    assert cuda(bert, variables, "allocate", "900").finish().out.endswith("-> 0 pointer=p0\n")
    assert (
        cuda(anna, variables, "allocate", "900").finish().out.endswith("-> 2 pointer=untouched\n")
    )
    for user in (ANNA, BERT):
        account = common_place(user) / "environment" / "account"
        assert (account.stat().st_uid, account.stat().st_mode & 0o777) == (user, 0o600)


# The command line.


def hami(user, *arguments, **variables):
    """`hami ARGUMENTS` as this user: exit code, standard output, standard error."""

    def called():
        gpu.cards = lambda: []
        gpu.memory_free = lambda uuids: {}
        os.environ.clear()
        os.environ.update(PATH="/bin:/usr/bin", HOME=str(user.home), **variables)
        sys.argv = ["hami", *arguments]
        streams = {1: user.home / "out", 2: user.home / "err"}
        for descriptor, path in streams.items():
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        return (code, *(path.read_text() for path in streams.values()))

    return user.call(called)


class TestCommands:
    """`hami` does not show or change another user's slices."""

    @careless
    @pytest.mark.parametrize("variables", [{}, {"HAMI_RUNTIME_DIR": "{anna}"}], ids=["own", "hers"])
    def test_ps_does_not_show_them(self, annas, bert, layers, variables):
        open_to_all(annas, layers)
        variables = {name: text.format(anna=annas.parents[1]) for name, text in variables.items()}
        code, out, err = hami(bert, "ps", "--json", **variables)
        # A line says that her directory is not used.
        assert (code, "belongs to another user, and is ignored" in err) == (0, bool(variables))
        assert err.count("\n") == len(variables)
        assert annas.name not in out

    @careless
    def test_rm_does_not_remove_them(self, annas, bert, layers):
        open_to_all(annas, layers)
        before = contents(annas)
        for name in (annas.name, annas.name[:12], str(annas)):
            code, out, err = hami(bert, "rm", name)
            assert code != 0
            assert (out, err.count("\n")) == ("", 1)
            assert name in err
        assert contents(annas) == before

    @careless
    def test_run_does_not_join_them(self, annas, bert, layers):
        open_to_all(annas, layers)
        for name in (annas.name, str(annas)):
            code, out, err = hami(bert, "run", "--join", name, "--", "echo", "ran")
            assert code == 125
            assert (out, err.count("\n")) == ("", 1)
            assert name in err

    @careless
    def test_python_does_not_open_them(self, annas, bert, layers):
        open_to_all(annas, layers)

        def opens():
            os.environ.clear()
            assert [info for info in hami_py.list_slices() if info.id == annas.name] == []
            with pytest.raises(hami_py.HamiError):
                hami_py.open_slice(annas.name)

        bert.call(opens)

    def test_ps_of_the_owner_shows_them(self, annas, anna):
        code, out, err = hami(anna, "ps", "--json")
        assert (code, err) == (0, "")
        assert annas.name in out
