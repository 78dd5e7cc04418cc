"""Limits hold on every file system on which an account can be, and there is no account elsewhere.

A process proves that it lives by a lock that a mapping of the account keeps. Overlayfs does not
keep it, and it is the root of most containers. The file systems are mounted in a namespace of the
test. The stub's ledger is the oracle.
"""

import itertools
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from support.requirements import skip_or_fail
from support.running import run
from support.slices import GIB, MIB, make

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")

OVERLAY = "mkdir l u w && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w{} overlay $PLACE"
IMAGE = "truncate -s {} image && mkfs.{} image >mkfs.txt 2>&1 && mount -o loop image $PLACE"

#: What mounts a file system on $PLACE; the working directory is a tmpfs.
KEEPS = {
    "tmpfs": "mount -t tmpfs none $PLACE",
    "ext4": IMAGE.format("64M", "ext4"),
    "xfs": IMAGE.format("320M", "xfs"),
    "btrfs": IMAGE.format("128M", "btrfs"),
    "bindfs": "mkdir s && bindfs s $PLACE",
    "fuse-overlayfs": "mkdir l u w && "
    "fuse-overlayfs -o lowerdir=l,upperdir=u,workdir=w $PLACE 2>mount.txt",
}
LOSES = {
    "overlay": OVERLAY.format(""),
    "overlay with an index": OVERLAY.format(",index=on"),
    "overlay with xino": OVERLAY.format(",xino=on"),
    "overlay that is volatile": OVERLAY.format(",volatile"),
}
TOOLS = ["bindfs", "fuse-overlayfs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"]
LIMIT = GIB
VARIABLES = {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}
#: One process allocates and ends, the next one allocates until it is refused.
FIRST, SECOND = ["alloc a 100M"], [f"alloc a{index} 64M" for index in range(40)]


@pytest.fixture
def on(tmp_path, gpu, program):
    """`on(mount, place, env, *prefix)` runs the two processes; gives the granted bytes and errors.

    `mount` is a shell command that mounts a file system on `place`.
    """

    def start(mount, place, env, *prefix):
        for tool in TOOLS:
            if tool in mount and shutil.which(tool) is None:
                skip_or_fail(f"{tool} is not here")
        texts = ["\\n".join(["init", "device 0", *lines, ""]) for lines in (FIRST, SECOND)]
        programs = "; ".join(f"printf '{text}' | {program('console')}" for text in texts)
        script = (
            f"mkdir -p $PLACE tmp && mount -t tmpfs none tmp && cd tmp && {mount} && cd / && "
            'exec "$@"'
        )
        namespace = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*namespace, "sh", "-c", script, "sh", *prefix, "sh", "-c", programs]
        done = run(command, {**gpu.env, "PLACE": str(place), **env}, cwd=tmp_path)
        assert done.code == 0, done
        return len(re.findall(r"64M.* -> 0", done.out)) * 64 * MIB, done.err

    return start


def preloaded(artifacts, place):
    return {"LD_PRELOAD": str(artifacts.library), "HAMI_RUNTIME_DIR": str(place), **VARIABLES}


@pytest.mark.parametrize("mount", KEEPS.values(), ids=KEEPS)
def test_a_limit_holds_where_an_account_can_be(gpu, on, artifacts, tmp_path, mount):
    place = tmp_path / "place"
    granted, errors = on(mount, place, preloaded(artifacts, place))
    assert (granted, errors, gpu.peak()) == (LIMIT, "", LIMIT)


@pytest.mark.parametrize("mount", LOSES.values(), ids=LOSES)
def test_cuda_is_refused_where_no_account_can_be(gpu, on, artifacts, tmp_path, mount):
    place = tmp_path / "place"
    granted, errors = on(mount, place, preloaded(artifacts, place))
    assert (granted, gpu.peak()) == (0, 0)
    first, second = errors.splitlines()
    assert first == second and f"{place}/hami/environment" in first and "HAMI_RUNTIME_DIR" in first


def test_a_slice_that_was_moved_there_is_refused(gpu, on, preload, tmp_path):
    """Each process that joins an account tests it: the file system may be another one by then."""
    made = make(tmp_path / "slice", dict.fromkeys(gpu.uuids(), LIMIT))
    place = tmp_path / "place"
    mount = f"{OVERLAY.format('')} && cp -a {made}/. $PLACE/"
    env = {name: text.replace(str(made), str(place)) for name, text in preload(gpu, made).items()}
    granted, errors = on(mount, place, env)
    assert (granted, gpu.peak()) == (0, 0)
    assert "does not keep the locks" in errors


@pytest.fixture
def on_tmp(gpu, compiled_folder):
    """A shell command that mounts a file system on /tmp and a tmpfs on /dev/shm.

    The test's own files stay visible. `shared`: /dev/shm is mounted already, and stays as it is.
    """
    own = [compiled_folder, gpu.client_socket.parent]

    def moved(mount, *, shared=False):
        before = [f"mkdir -p /mnt{path} && mount --bind {path} /mnt{path}" for path in own]
        after = [f"mkdir -p {path} && mount --bind /mnt{path} {path}" for path in own]
        tmpfs = ["mount -t tmpfs none /dev/shm", "mount -t tmpfs none /mnt"]
        first = [] if shared else [*tmpfs, *before]
        return " && ".join([*first, mount, *after])

    return moved


@pytest.mark.parametrize(
    "way",
    list(itertools.product([LOSES["overlay"], KEEPS["ext4"]], ["HAMi's variables", "hami run"])),
    ids=lambda way: f"{way[1]} on {'ext4' if 'ext4' in way[0] else 'overlay'}",
)
def test_a_limit_holds_on_any_tmp(gpu, on, on_tmp, artifacts, way):
    """In a container /tmp is on overlayfs, and /dev/shm is a tmpfs of its own."""
    mount, how = way
    if how == "hami run":
        env = {"PYTHONPATH": str(Path(__file__).parents[2]), "HAMI_CONTEXT_MEMORY": "0"}
        prefix = [sys.executable, "-m", "hami_py", "run", "--gpumem", "1GiB", "--"]
    else:
        env = {"LD_PRELOAD": str(artifacts.library), **VARIABLES}
        prefix = []
    granted, errors = on(on_tmp(mount), Path("/tmp"), env, *prefix)  # noqa: S108
    assert (granted, errors, gpu.peak()) == (LIMIT, "", LIMIT)


@pytest.mark.parametrize(
    "spoil",
    [
        'i=0; while mkdir "/tmp/$i"; do i=$((i + 1)); done 2>/dev/null',
        "mount -o remount,ro /tmp",
        "mount -o remount,ro /tmp; mkdir /mnt/empty; mount --bind /mnt/empty /dev/shm",
    ],
    ids=["full", "read-only", "read-only beside an empty /dev/shm"],
)
def test_a_tmp_that_cannot_be_written_leaves_the_account_where_it_is(
    gpu, on, on_tmp, artifacts, spoil
):
    """Another account in /dev/shm would be a second limit, so CUDA is refused if there is none."""
    env = {"LD_PRELOAD": str(artifacts.library), **VARIABLES}
    prefix = ["sh", "-c", f'{spoil}; "$@"; code=$?; ls -d /dev/shm/hami* >&2; exit $code', "sh"]
    small = "mount -t tmpfs -o nr_inodes=200 none $PLACE"
    granted, errors = on(on_tmp(small), Path("/tmp"), env, *prefix)  # noqa: S108
    assert (granted, gpu.peak()) == (0, 0)
    assert "cannot keep the account" in errors and "cannot access '/dev/shm/hami*'" in errors


def test_containers_that_share_dev_shm_have_limits_of_their_own(
    gpu, on, on_tmp, artifacts, program
):
    """As with `--ipc=host`: each has its own /tmp, and only their /dev/shm is the same."""
    env = {"LD_PRELOAD": str(artifacts.library), **VARIABLES}
    other = OVERLAY.format("").replace("$PLACE", "/tmp")  # noqa: S108
    mounts = f"mkdir /mnt/other && cd /mnt/other && {on_tmp(other, shared=True)}"
    prefix = [
        *("sh", "-c"),
        f"mkfifo /mnt/fifo; unshare --mount sh -c '{mounts} && exec {program('console')}'"
        " </mnt/fifo >/mnt/out & exec 3>/mnt/fifo; printf 'init\ndevice 0\nalloc a 600M\n' >&3;"
        " until grep 600M /mnt/out; do sleep 0.1; done;"
        ' "$@"; code=$?; exec 3>&-; wait; exit $code',
        "sh",
    ]
    granted, errors = on(on_tmp(OVERLAY.format("")), Path("/tmp"), env, *prefix)  # noqa: S108
    assert (granted, errors, gpu.peak()) == (LIMIT, "", LIMIT + 600 * MIB)
