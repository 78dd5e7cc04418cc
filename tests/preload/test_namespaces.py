"""A container's limits hold in its namespaces, for each of its users, and it cannot change them.

The containers have mount, PID, network and user namespaces, made as a runtime makes them
(support/container.py). Their slots lie on tmpfs, as on a node. The stub's server is outside, and
its ledger is the oracle.

The file takes a minute, because it starts 130 containers, 22 of them under strace.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from hami_py._native import Account, LimitRow, LimitsPage
from hami_py.errors import DamagedFile
from hami_py.node import slot
from support import syscalls
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.container import INSIDE, ContainerUser, Kind, Runtime, user_namespace
from support.elf import needed
from support.launcher import BEGIN, LaunchPermission, until
from support.requirements import skip_or_fail
from support.running import Started, run
from support.slices import GIB, MIB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes containers")

LIMIT = GIB

KINDS = {
    "plain": Kind(),
    "read-only root": Kind(read_only_root=True),
    "no proc": Kind(proc=False),
    "tiny shm": Kind(shm="64k"),
    "seccomp": Kind(seccomp=True),
    "own network": Kind(network=True),
    "all at once": Kind(read_only_root=True, proc=False, shm="64k", seccomp=True, network=True),
}
PLAIN, ALL = KINDS["plain"], KINDS["all at once"]
USERS = ["root", "another user", "root of a user namespace", "a user of a user namespace"]
USER = 64001


def containers(*pairs):
    """The test runs in containers of these users and kinds."""
    return pytest.mark.parametrize("container", pairs, ids=", ".join, indirect=True)


each_container = containers(
    *((user, kind) for user in USERS[:3] for kind in KINDS), (USERS[3], "all at once")
)
each_user = pytest.mark.parametrize("user", USERS, indirect=True)


@pytest.fixture(scope="module")
def users():
    """By name; the last two have numbers that are unmapped outside, as root's is inside."""
    with user_namespace() as namespace:
        yield {
            "root": ContainerUser(0),
            "another user": ContainerUser(USER),
            "root of a user namespace": ContainerUser(0, namespace),
            "a user of a user namespace": ContainerUser(1000, namespace),
        }


@pytest.fixture
def user(users, request):
    return users[request.param]


@pytest.fixture
def container_gpu(gpu):
    """A card that every user can reach, as the driver's devices are."""
    gpu.client_socket.chmod(0o666)
    return gpu


@pytest.fixture
def new_slot(container_gpu):
    """`new_slot(name, share)` creates a slot of the node, on tmpfs."""
    with tempfile.TemporaryDirectory(prefix="hami-test-", dir="/dev/shm") as runtime:
        slots = Path(runtime) / "slices"
        slots.mkdir()

        def create(name, share=None):
            slot.create(slots / name, [LimitRow(container_gpu.uuids()[0], LIMIT, share)])
            return slots / name

        yield create


@pytest.fixture
def place(new_slot):
    """The slot of a container."""
    return new_slot("one")


@pytest.fixture
def container(place, users, request):
    """Its slot, its kind and its user."""
    user, kind = request.param
    return place, KINDS[kind], users[user]


@pytest.fixture
def new_runtime(program, compiled_folder, container_gpu, tmp_path):
    """`new_runtime(artifacts)` starts containers with these."""
    shared = [compiled_folder, container_gpu.client_socket.parent]
    for folder in shared:
        folder.chmod(0o755)
    init = program("container_init")
    return lambda artifacts: Runtime(tmp_path / "runtime", init, artifacts, shared)


@pytest.fixture
def inside(artifacts, new_runtime, container_gpu):
    """`inside(slot, kind, user)`: what starts a program in a new container."""
    runtime = new_runtime(artifacts)
    env = {**container_gpu.env, "LD_PRELOAD": str(INSIDE / "libvgpu.so")}
    return lambda *container: runtime.prefix(env, *container)


def used(place):
    return Account.open(place / "account").snapshot().memory_used[0]


# The containers are what they should be.

LOOK = """
import ctypes, errno, json, os, socket, sys

libc = ctypes.CDLL(None, use_errno=True)

def refused(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]

def call(number):
    return libc.syscall(number, 0, 0) < 0 and errno.errorcode[ctypes.get_errno()]

CLONE3, UNSHARE = {"x86_64": (435, 272), "aarch64": (435, 97)}[os.uname().machine]
shm = os.statvfs("/dev/shm")
print(json.dumps({
    "user": [os.getuid(), os.getgid(), os.getgroups()],
    "owner": os.stat(sys.argv[1]).st_uid,
    "pid": os.getpid(),
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
    "networks": [name for _, name in socket.if_nameindex()],
    "shm": shm.f_blocks * shm.f_frsize,
    "write": refused(os.mkdir, "/new"),
    "clone3": call(CLONE3),
    "unshare": call(UNSHARE),
    "vsock": refused(socket.socket, socket.AF_VSOCK),
}))
"""


def test_the_containers_are_as_described(inside, place, users):
    def look(kind, user):
        command = [sys.executable, "-I", "-c", LOOK, INSIDE]
        done = run([*inside(place, kind, users[user]), *command], {})
        assert done.err == ""
        return json.loads(done.out)

    plain = look(PLAIN, "root")
    assert plain["processes"] == [str(plain["pid"])] == ["1"]
    assert plain["shm"] == 64 * MIB
    # The kernel wants a longer structure, and takes no flags for nothing.
    assert (plain["write"], plain["clone3"], plain["unshare"]) == (None, "EINVAL", False)

    every = look(ALL, "root")
    assert (every["processes"], every["networks"], every["shm"]) == ([], ["lo"], 64 << 10)
    assert (every["write"], every["clone3"], every["unshare"]) == ("EROFS", "ENOSYS", "EPERM")
    assert every["vsock"] == "EPERM"

    seen = {user: look(PLAIN, user) for user in USERS}
    assert [seen[user]["user"][:2] for user in USERS] == [[0, 0], [USER, USER], [0, 0], [1000] * 2]
    # Root's files are nobody's in a user namespace.
    assert [seen[user]["owner"] for user in USERS] == [0, 0, 65534, 65534]


# Limits hold.


@each_container
def test_a_limit_holds(container_gpu, program, inside, place, container):
    with Console(program("console"), {}, prefix=inside(*container)) as console:
        console.do("init", "device 0")
        assert console.value("info", "total") == console.value("info", "free") == LIMIT
        console.do("alloc a 512M")
        assert console.value("info", "free") == 512 * MIB
        assert console("alloc b 513M") == OUT_OF_MEMORY
        console.do("alloc b 512M")
        assert console.value("info", "free") == 0
        assert container_gpu.held() == used(place) == LIMIT
        console.do("free a")
        assert container_gpu.held() == used(place) == 512 * MIB
        done = console.finish()
    assert (done.code, done.err) == (0, "")
    assert container_gpu.peak() == LIMIT


@each_user
def test_a_program_waits_for_its_turn(program, inside, new_slot, user):
    """It reads the grants page through a read-only mount, and reports in the account."""
    place = new_slot("one", share=30)
    turns = LaunchPermission(place)

    def throttled():
        return Account.open(place / "account").snapshot().throttled_ns[0]

    with Console(program("console"), {}, prefix=inside(place, ALL, user)) as console:
        console.do(*BEGIN, "kernel k m k_1000us")
        turns.revoke()
        before = throttled()
        console.tell("launch cuLaunchKernel k s0")
        until(lambda: throttled() > before, "the program does not wait")
        turns.grant()
        assert console.next_line().endswith(" -> 0")
        console.do("sync s0")


@each_user
def test_a_limit_holds_for_python(container_gpu, inside, place, user):
    script = """
import json
from cuda.bindings import driver as cuda
results = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(0)]
cuda.cuCtxSetCurrent(results[-1][1])
print(json.dumps([int(cuda.cuMemAlloc(size << 20)[0]) for size in (1025, 1024, 1)]))
print(json.dumps([int(value) for value in cuda.cuMemGetInfo()[1:]]))
"""
    done = run([*inside(place, ALL, user), sys.executable, "-I", "-c", script], {})
    assert done.err == ""
    assert [json.loads(line) for line in done.lines] == [[2, 0, 2], [0, LIMIT]]
    assert container_gpu.peak() == LIMIT


def test_users_of_one_slot_share_its_limit(container_gpu, program, inside, place, users):
    """In different namespaces each sees what the others hold, and when one has died."""
    with contextlib.ExitStack() as stack:
        consoles = [
            stack.enter_context(Console(program("console"), {}, prefix=inside(place, kind, user)))
            for user in users.values()
            for kind in (PLAIN, ALL)
        ]
        for count, console in enumerate(consoles):
            console.do("init", "device 0")
            assert console.value("info", "free") == LIMIT - count * 128 * MIB
            console.do("alloc a 128M")
        assert [console("alloc b 1M") for console in consoles] == [OUT_OF_MEMORY] * len(consoles)
        assert container_gpu.held() == used(place) == LIMIT
        consoles.pop(2).kill()
        # That waits for unshare(1) only. The kernel closes the program's sockets before it is dead,
        # and the memory of a living program is not free.
        until(lambda: consoles[-1]("alloc b 128M") == SUCCESS, "its memory is not free")
        assert container_gpu.peak() == LIMIT


# A container cannot change its limits.

TAMPER = """
import ctypes, json, mmap, os, subprocess, sys

directory = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
inside = lambda name: os.path.join(directory, name)
files = ["limits", "grants", "libvgpu.so"]
done = []

def attempt(what, action, *arguments):
    try:
        action(*arguments)
    except (OSError, subprocess.CalledProcessError):
        return
    done.append(what)

def write(path):
    with open(path, "r+b") as file:
        file.write(b"HAMI")

def map_for_writing(path):
    with open(path, "rb") as file:
        mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

def protect(path):
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if libc.mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError

def command(*words):
    subprocess.run(words, check=True, capture_output=True)

for name in files:
    path = inside(name)
    attempt(f"write {name}", write, path)
    attempt(f"truncate {name}", os.truncate, path, 0)
    attempt(f"map {name}", map_for_writing, path)
    attempt(f"protect {name}", protect, path)
    attempt(f"chmod {name}", os.chmod, path, 0o666)
    attempt(f"chown {name}", os.chown, path, os.getuid(), os.getgid())
    attempt(f"touch {name}", os.utime, path)
    attempt(f"remount {name}", command, "mount", "-o", "remount,bind,rw", path)
for name in [*files, "account"]:
    path = inside(name)
    attempt(f"unlink {name}", os.unlink, path)
    attempt(f"rename {name}", os.rename, path, inside("other"))
    attempt(f"replace {name}", os.rename, inside("account"), path)
    attempt(f"link {name}", os.link, path, inside("other"))
    attempt(f"link {name} outside", os.link, path, "/tmp/other")
    attempt(f"unmount {name}", command, "umount", path)
attempt("create", open, inside("other"), "x")
attempt("mkdir", os.mkdir, inside("other"))
attempt("chmod", os.chmod, directory, 0o777)
attempt("rename the directory", os.rename, directory, directory + ".old")
attempt("unmount", command, "umount", directory)
attempt("unmount lazily", command, "umount", "-l", directory)
attempt("remount", command, "mount", "-o", "remount,bind,rw", directory)
attempt("mount over it", command, "mount", "-t", "tmpfs", "none", directory)
attempt("mount over the page", command, "mount", "--bind", "/dev/null", inside("limits"))
print(json.dumps(done))
"""

#: In namespaces of its own, with all rights there, it can hide the slot from its own programs.
HIDDEN_FROM_ITSELF = ["mount over it", "mount over the page"]


NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--"]


@pytest.fixture(scope="module")
def can_nest(users):
    """Users of this machine may create namespaces: some distributions forbid it."""
    user = str(users["another user"].number)
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *NAMESPACES]
    if run([*command, "mount", "-t", "tmpfs", "none", "/tmp"], {}).code != 0:  # noqa: S108
        skip_or_fail("users cannot create user namespaces here")


@pytest.mark.parametrize("nested", [False, True], ids=["as it is", "in namespaces of its own"])
@each_user
@pytest.mark.usefixtures("can_nest")
def test_no_user_can_change_the_slot(inside, place, user, nested):
    before = state(place)
    namespaces = NAMESPACES if nested else []
    command = [*namespaces, sys.executable, "-I", "-c", TAMPER, INSIDE]
    done = run([*inside(place, PLAIN, user), *command], {})
    assert (done.code, done.err) == (0, ""), done
    assert [what for what in json.loads(done.out) if what not in HIDDEN_FROM_ITSELF] == []
    assert nested or json.loads(done.out) == []
    assert state(place) == before


def state(place):
    """Everything of a slot but the content of the account."""
    files = {
        path.name: (path.lstat()[:6], path.name == "account" or path.read_bytes())
        for path in place.iterdir()
    }
    return files, place.stat()[:6]


@each_user
def test_a_lock_of_the_page_does_not_forbid_to_change_it(container_gpu, inside, place, user):
    script = f"""
import fcntl, sys
with open("{INSIDE}/limits") as page:
    fcntl.lockf(page, fcntl.LOCK_SH)
    fcntl.flock(page, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""
    command = [*inside(place, PLAIN, user), sys.executable, "-I", "-c", script]
    with Started(command, {}) as reader:
        reader.wait_for("locked")
        page = LimitsPage.open(place / "limits")
        page.set_memory_limits({container_gpu.uuids()[0]: 2 * GIB})
        assert page.rows()[0].memory_limit == 2 * GIB
        assert reader.finish().code == 0


@each_user
@pytest.mark.usefixtures("can_nest")
def test_a_hidden_slot_is_no_slot_without_limits(inside, program, place, user):
    """A program that hides its slot between its start and its first call has no CUDA."""
    script = f"""
import ctypes, os, subprocess
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000
libc, ids = ctypes.CDLL(None, use_errno=True), (os.geteuid(), os.getegid())
assert libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, ctypes.get_errno()
assert libc.mount(b"none", b"{INSIDE}", b"tmpfs", 0, None) == 0, ctypes.get_errno()
print(os.listdir("{INSIDE}"), ctypes.CDLL("libcuda.so.1").cuInit(0))
"""
    done = run([*inside(place, PLAIN, user), sys.executable, "-I", "-c", script], {})
    assert done.out == "[] 100\n", done
    assert "limits beside the library cannot be found" in done.err


# The account is the container's: it can be damaged, and that harms the container alone.


@each_user
def test_a_truncated_account_harms_only_its_own_container(
    container_gpu, program, inside, new_slot, user
):
    ours, other = new_slot("one"), new_slot("other")
    runtime = ours.parents[1]
    with contextlib.ExitStack() as stack:
        python = {"PYTHONPATH": os.pathsep.join(sys.path)}
        coordinator = Started([sys.executable, "-m", "hami_py.coordinator", runtime], python)
        stack.enter_context(coordinator)

        def maps(place):
            """Whether the coordinator has the account mapped."""
            return f"{place}/account" in Path(f"/proc/{coordinator.pid}/maps").read_text()

        def hold(place):
            started = Started([*inside(place, PLAIN, user), program("hold"), "512"], {})
            return stack.enter_context(started).wait_for("holding")

        victim, neighbour = hold(ours), hold(other)
        until(lambda: maps(ours) and maps(other), "the coordinator does not use the slots")
        run([*inside(ours, PLAIN, user), "sh", "-c", f": > {INSIDE}/account"], {})
        assert (ours / "account").stat().st_size == 0

        done = run([*inside(ours, PLAIN, user), program("initialise")], {})
        assert done.lines[0] == "cuInit(0) -> 100"
        assert done.err.count("\n") == 1, done.err
        assert f"hami: account {INSIDE}/account is damaged" in done.err
        # Its own failure: it has mapped what is no longer there.
        assert victim.finish().code in {0, 128 + signal.SIGBUS}
        with pytest.raises(DamagedFile, match="account"):
            Account.open(ours / "account").snapshot()

        until(lambda: not maps(ours), "the coordinator still uses the slot")
        assert maps(other)
        assert used(other) == 512 * MIB
        assert neighbour.finish().code == 0
        done = run([*inside(other, PLAIN, user), program("allocate"), "1024"], {})
        assert (done.lines[-1].endswith("-> 0 pointer=p0"), done.err) == (True, "")
        coordinator.kill()
        assert coordinator.finish().code == -signal.SIGKILL


# Nothing on load.

PROGRAMS = [
    ["sh", "-c", ":"],
    ["ls", "/"],
    [str(Path(sys.executable).resolve()), "-I", "-S", "-c", ""],
]


@containers(
    *(("another user", kind) for kind in KINDS),
    *((user, kind) for user in ("root", USERS[2]) for kind in ("plain", "all at once")),
)
def test_loading_does_nothing(artifacts, program, new_runtime, tmp_path, container):
    """As in test_load.py: an empty library shows the calls that any library costs."""
    needs = needed(artifacts.library)
    empty = program("empty", *(f"-l:{name}" for name in sorted(needs)))
    library = INSIDE / "libvgpu.so"
    lines = [f"LD_PRELOAD={library} {shlex.join(command)}; echo $?" for command in PROGRAMS]

    def run_with(preloaded, name):
        runtime = new_runtime(dataclasses.replace(artifacts, library=preloaded))
        command = [*runtime.prefix({}, *container), "sh", "-c", "\n".join(lines)]
        done, processes = syscalls.trace_each(command, tmp_path / name)
        programs = [calls for calls in processes if any(f'"{library}"' in call for call in calls)]
        names = {library.name, *needs}
        calls = [syscalls.names(syscalls.without_loading(each, names)) for each in programs]
        return done, calls

    done, calls = run_with(artifacts.library, "ours")
    assert (done, calls) == run_with(empty, "empty")
    assert (done.err, len(calls)) == ("", len(PROGRAMS))
    assert done.lines.count("0") == len(PROGRAMS)
