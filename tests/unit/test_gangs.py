"""Gangs: their digests, and slices that ``hami run --gang`` and the Python API put into them."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hami_py
from hami_py._native import LimitsPage
from hami_py.model import gang_of_namespace, gang_of_user
from support.running import run
from support.stub import StubServer
from unit.machine import Hami, listed, refused

Slices = Callable[[], list[Path]]


def gang_in(directory: Path) -> bytes | None:
    """The gang of a slice, as its limits page has it."""
    return LimitsPage.open(directory / "limits").gang()


def test_a_digest_depends_on_the_owner_and_the_name_alone() -> None:
    digests = {
        gang_of_user(0, "job"),
        gang_of_user(1000, "job"),
        gang_of_user(1000, "other"),
        gang_of_user(100, "0job"),
        gang_of_namespace("0", "job"),
        gang_of_namespace("1000", "job"),
        gang_of_namespace("100", "0job"),
        gang_of_namespace("default", "job"),
    }
    assert len(digests) == 8
    assert all(len(digest) == 16 and any(digest) for digest in digests)
    assert gang_of_user(1000, "job") == gang_of_user(1000, "job")
    # Agents of two versions may run one after the other while a gang's pods run.
    assert gang_of_namespace("default", "job").hex() == "13e399f604213143d3a2a67c8b9797c0"


def test_slices_of_one_gang_have_the_same_on_their_pages(hami: Hami, slices_of: Slices) -> None:
    for _ in range(2):
        assert hami("run", "--gang", "job", "--keep", "--", "true").returncode == 0
    gang = gang_of_user(os.geteuid(), "job")
    assert [gang_in(directory) for directory in slices_of()] == [gang, gang]
    assert [slice_["gang"] for slice_ in listed(hami)] == ["job", "job"]


def test_a_slice_has_no_gang_by_default(hami: Hami, slices_of: Slices) -> None:
    assert hami("run", "--keep", "--", "true").returncode == 0
    (directory,) = slices_of()
    assert gang_in(directory) is None
    (slice_,) = listed(hami)
    assert slice_["gang"] is None


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "ä", "a\n", "x" * 64])
def test_an_invalid_gang_is_refused(hami: Hami, slices_of: Slices, name: str) -> None:
    value = json.dumps(name[:64], ensure_ascii=False)
    fix = "write 1 to 63 letters and digits"
    refused(hami("run", f"--gang={name}", "--", "echo", "ran"), 125, "gang: ", value, fix)
    for call in (
        lambda: hami_py.slice(gang=name),
        lambda: hami_py.run(["echo", "ran"], gang=name),
        lambda: hami_py.limit_this_process(gang=name),
    ):
        with pytest.raises(hami_py.InvalidValue, match="gang"):
            call()
    assert slices_of() == []


def test_a_slice_that_is_joined_has_its_own_gang(hami: Hami) -> None:
    assert hami("run", "--name", "train", "--keep", "--", "true").returncode == 0
    done = hami("run", "--join", "train", "--gang", "job", "--", "echo", "ran")
    refused(done, 125, "join: ", "leave out --gang")


#: Prints the gang of its innermost slice.
SHOW = """import os
from hami_py._native import LimitsPage
directory = os.environ["HAMI_SLICE"].split(":")[-1]
print(LimitsPage.open(directory + "/limits").gang().hex())"""


def test_the_python_api_puts_slices_into_a_gang(stub: StubServer) -> None:
    gang = gang_of_user(os.geteuid(), "job")
    with hami_py.slice(gang="job") as s:
        assert gang_in(s.directory) == gang
    shown = hami_py.run([sys.executable, "-c", SHOW], gang="job", capture_output=True, text=True)
    assert shown.stdout.strip() == gang.hex()
    relaunched = f"import hami_py\nhami_py.limit_this_process(gang='job')\n{SHOW}"
    done = run([sys.executable, "-c", relaunched], {**os.environ})
    assert done.out.strip() == gang.hex(), done.err
