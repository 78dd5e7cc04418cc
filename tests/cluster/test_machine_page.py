"""docs/machine.md, "For the administrator", followed on a machine with nothing but Debian.

systemd is its process 1. It takes a minute, and another one once for Debian's files: only a machine
that has nothing of ours shows that the page leaves nothing out, and only a real boot that users are
limited before they can log in.
"""

import contextlib
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator

import pytest

from cluster.debian_machine import DebianMachine
from support.artifacts import ROOT, Artifacts
from support.launcher import until
from support.programs import Programs
from support.requirements import skip_or_fail
from support.running import Run
from support.whole_machine import memory_in

pytestmark = pytest.mark.timeout(1800)

PAGE = (ROOT / "docs" / "machine.md").read_text()

#: The kind and the text of each block that an administrator types or writes.
BLOCKS = re.findall(
    r"^```(\w*)\n(.*?)^```$",
    PAGE.split("## For the administrator\n")[1].split("\n## ")[0],
    re.M | re.S,
)

GIB = 1 << 30

#: Of the page's policy; carol and dave are in no table of their own.
USERS = ("alice", "carol", "dave")


@pytest.fixture
def machine(artifacts: Artifacts, program: Programs) -> Iterator[DebianMachine]:
    """A machine with a card, three users, and the wheel in root's home."""
    if os.geteuid() != 0:
        skip_or_fail("it needs root: run it as root")
    wheels = sorted((ROOT / "dist").glob("hami_py-*.whl"), key=lambda path: path.stat().st_mtime)
    assert wheels, "dist/hami_py-*.whl: not built; run `make wheel`"
    with contextlib.closing(DebianMachine()) as machine:
        libraries = machine.root / "usr" / "lib" / sysconfig.get_config_var("MULTIARCH")
        for library in (artifacts.libcuda, artifacts.libcuda.with_name("libnvidia-ml.so.1")):
            shutil.copy(library, libraries)
        shutil.copy(program("memory_info"), machine.root / "usr" / "local" / "bin" / "memory")
        shutil.copy(wheels[-1], machine.root / "root")
        yield machine


def typed(machine: DebianMachine, line: str, user: str = "root") -> Run:
    """A command that succeeds and has nothing to complain about."""
    done = machine.run(line, user)
    assert (done.code, done.err) == (0, ""), (line, done)
    return done


def shown(machine: DebianMachine, unit: str, name: str) -> str:
    """A property of a unit."""
    return typed(machine, f"systemctl show --property={name} --value {unit}").out.strip()


def check_limits(machine: DebianMachine) -> None:
    """Each user has what the page's policy grants, in every way to start a program."""
    whole = memory_in(typed(machine, "memory").out)
    assert whole is not None and whole > 8 * GIB
    for user, limit in zip(USERS, (whole, 4 * GIB, 8 * GIB), strict=True):
        assert memory_in(typed(machine, "memory", user).out) == limit, user
        by_service = f"systemd-run --quiet --pipe --wait --uid={user} memory"
        assert memory_in(typed(machine, by_service).out) == limit, user
        assert memory_in(typed(machine, "hami run -- memory", user).out) == limit, user
        less = typed(machine, "hami run --gpumem 1GiB -- memory", user).out
        assert memory_in(less) == GIB, user


def test_the_page_can_be_followed_word_for_word(machine: DebianMachine) -> None:
    with machine.on():
        typed(machine, "groupadd students")
        for user in USERS:
            groups = "--groups=students" if user == "carol" else ""
            typed(machine, f"useradd --create-home --shell=/bin/sh {groups} {user}")
        for kind, text in BLOCKS:
            if kind == "toml":
                (machine.root / "etc" / "hami" / "machine.toml").write_text(text)
                continue
            for line in text.splitlines():
                typed(machine, line)
        until(
            lambda: memory_in(typed(machine, "memory", "carol").out) == 4 * GIB,
            "the policy is followed",
        )
        check_limits(machine)
        typed(machine, "hami run --keep --name train --gpumem 2GiB -- true", "carol")
        refused = machine.run("hami run --gpumem 5GiB -- true", "carol")
        assert (refused.code, "[group.students]" in refused.err) == (125, True), refused

        killed = shown(machine, "hami-machine", "MainPID")
        typed(machine, f"kill -9 {killed}")
        until(
            lambda: (
                shown(machine, "hami-machine", "MainPID") not in (killed, "0")
                and shown(machine, "hami-machine", "ActiveState") == "active"
            ),
            lambda: typed(machine, "systemctl status hami-machine").out,
        )
        typed(machine, "hami rm train", "carol")
        check_limits(machine)
        typed(machine, "hami run --keep --name train --gpumem 2GiB -- true", "carol")

    with machine.on():
        began = shown(machine, "systemd-user-sessions", "ExecMainStartTimestampMonotonic")
        ready = shown(machine, "hami-machine", "ActiveEnterTimestampMonotonic")
        assert 0 < int(ready) <= int(began), "users can log in before the service is ready"
        join = typed(machine, "hami run --join train -- memory", "carol").out
        assert memory_in(join) == 2 * GIB
        typed(machine, "hami rm train", "carol")
        check_limits(machine)

        typed(machine, "hami machine uninstall")
        assert memory_in(typed(machine, "memory", "carol").out) == memory_in(
            typed(machine, "memory").out
        )
        assert shown(machine, "hami-machine", "LoadState") == "not-found"
        assert typed(machine, "systemctl --failed --no-legend").out == ""
