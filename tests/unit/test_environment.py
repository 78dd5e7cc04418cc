"""The environment of a program in a slice."""

import json
import os
import sys
from pathlib import Path

import pytest

from hami_py import StateError, UnsupportedPlatform, config
from hami_py._native import Account, LimitRow, LimitsPage
from hami_py.slices import beside, require_glibc, require_library
from hami_py.slices.programs import compose
from unit.machine import CARDS, Hami, harmless_library

SLICE = Path("/run/slices/a")
LIBRARIES = (SLICE / "libvgpu.so", Path("/opt/hami/libvgpu.so"))
OURS = "/run/slices/a/libvgpu.so:/opt/hami/libvgpu.so"


def test_the_two_variables_and_nothing_else() -> None:
    base = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "X": "\udcff"}
    assert compose(base, LIBRARIES, [SLICE]) == {
        **base,
        "LD_PRELOAD": OURS,
        "HAMI_SLICE": "/run/slices/a",
    }
    assert base == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "X": "\udcff"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", OURS),
        ("/a.so", f"{OURS}:/a.so"),
        ("/a.so:/b.so", f"{OURS}:/a.so:/b.so"),
        ("/a.so /b.so", f"{OURS}:/a.so:/b.so"),
        ("/a.so:/opt/hami/libvgpu.so:/b.so", f"{OURS}:/a.so:/b.so"),
        ("/opt/hami/libvgpu.so", OURS),
        ("/elsewhere/libvgpu.so", OURS),
        (":: ", OURS),
    ],
)
def test_ours_is_preloaded_first_and_once(before: str, after: str) -> None:
    assert compose({"LD_PRELOAD": before}, LIBRARIES, [SLICE])["LD_PRELOAD"] == after


def test_a_containers_library_serves_its_slices_too(tmp_path: Path) -> None:
    """Its limits are beside its file, so they hold as well."""
    managed = tmp_path / "libvgpu.so"
    managed.touch()
    (tmp_path / "limits").touch()
    settings = config.read({"LD_PRELOAD": f"/opt/trace.so:{managed}"})
    assert beside.keep(harmless_library(), settings) == managed
    assert beside.directories(settings) == [tmp_path]
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "limits").touch()
    beside.link(inner, [], managed)
    nested = config.read({"LD_PRELOAD": str(inner / "libvgpu.so")})
    assert beside.directories(nested) == [tmp_path, inner]
    assert beside.own_slices(nested) == (inner,)


def test_slices_nest_and_a_choice_of_cards_replaces_the_variable() -> None:
    base = {"HAMI_SLICE": "old", "CUDA_VISIBLE_DEVICES": "1"}
    made = compose(base, LIBRARIES, [Path("/outer"), SLICE], chosen=True)
    assert made["HAMI_SLICE"] == "/outer:/run/slices/a"
    assert "CUDA_VISIBLE_DEVICES" not in made


def test_an_upgrade_of_the_package_changed_the_library_of_running_slices(
    hami: Hami, tmp_path: Path
) -> None:
    """A new worker has the library with which its slice was created."""
    package = tmp_path / "libvgpu.so"
    package.write_bytes(harmless_library().read_bytes())
    script = f"rm {package}; cat /proc/self/maps"
    done = hami("run", "--", "sh", "-c", script, HAMI_LIBRARY=str(package))
    assert done.stderr == ""
    [mapped] = {line.split()[-1] for line in done.stdout.splitlines() if "libvgpu.so" in line}
    assert Path(mapped).read_bytes() == harmless_library().read_bytes()
    assert not package.exists()


@pytest.mark.parametrize("name", ["a b.so", "a:b.so", "a$LIB.so"])
def test_a_library_that_ld_preload_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    library = tmp_path / name
    library.touch()
    with pytest.raises(StateError, match="LD_PRELOAD cannot contain"):
        require_library(library)


def test_a_missing_library_is_refused(hami: Hami) -> None:
    done = hami("run", "--", "echo", "ran", HAMI_LIBRARY="/nonexistent/libvgpu.so")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(
        "hami: preload library /nonexistent/libvgpu.so: the file does not exist"
    )


@pytest.mark.parametrize("answer", [None, "", ValueError("unrecognized"), OSError(22, "invalid")])
def test_another_c_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: str | Exception | None
) -> None:
    def confstr(_name: str) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(os, "confstr", confstr)
    with pytest.raises(UnsupportedPlatform, match="musl"):
        require_library(harmless_library())


def test_this_c_library_has_a_version() -> None:
    version = tuple(int(part) for part in require_glibc().split("."))
    assert version >= (2, 17)


PRINT = """import json, os
names = "LD_PRELOAD", "HAMI_SLICE", "CUDA_VISIBLE_DEVICES"
found = {name: os.environ.get(name) for name in names}
paths = [slice + "/chosen-cards" for slice in found["HAMI_SLICE"].split(":")]
texts = [open(path).read() for path in paths if os.path.exists(path)]
found["chosen"] = "".join(texts).split()
print(json.dumps(found))"""


def test_the_environment_of_a_program(hami: Hami) -> None:
    done = hami("run", "--device", "1", "--device", "0", "--", sys.executable, "-c", PRINT)
    got = json.loads(done.stdout)
    slice, kept = got["LD_PRELOAD"].split(":")
    assert slice == got["HAMI_SLICE"] + "/libvgpu.so"
    assert Path(kept).read_bytes() == harmless_library().read_bytes()
    # The library counts the chosen cards.
    assert got["CUDA_VISIBLE_DEVICES"] is None
    assert got["chosen"] == [CARDS[1].uuid, CARDS[0].uuid]


def test_the_environment_of_a_program_in_nested_slices(hami: Hami) -> None:
    inner = [sys.executable, str(Path(__file__).with_name("machine.py")), "run", "--"]
    done = hami("run", "--device", "1", "--", *inner, sys.executable, "-c", PRINT)
    assert done.stderr == ""
    got = json.loads(done.stdout)
    outer, inner_slice = got["HAMI_SLICE"].split(":")
    assert got["LD_PRELOAD"].split(":")[0] == f"{inner_slice}/libvgpu.so"
    assert outer != inner_slice
    assert got["chosen"] == [CARDS[1].uuid]


def test_too_many_nested_slices_are_refused(hami: Hami, tmp_path: Path) -> None:
    around = []
    for number in range(8):
        directory = tmp_path / f"slice{number}"
        directory.mkdir()
        LimitsPage.create(directory / "limits", [LimitRow(card.uuid) for card in CARDS])
        Account.create(directory / "account")
        around.append(str(directory))
    innermost = tmp_path / "slice6"
    beside.link(innermost, list(map(Path, around[:6])), harmless_library())
    done = hami("run", "--", "echo", "ran", LD_PRELOAD=str(innermost / "libvgpu.so"))
    assert (done.returncode, done.stdout) == (0, "ran\n")
    (innermost / "layers").write_text("".join(f"{path}\n" for path in around))
    done = hami("run", "--", "echo", "ran", LD_PRELOAD=str(innermost / "libvgpu.so"))
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith('hami: slice: "9 nested slices" is refused')


def test_an_inner_run_cannot_choose_a_card_of_the_outer_machine(hami: Hami) -> None:
    inner = [sys.executable, str(Path(__file__).with_name("machine.py")), "run", "--device", "1"]
    done = hami("run", "--device", "1", "--", *inner, "--", "true")
    assert done.returncode == 125
    assert "device 1: there is no such card" in done.stderr


def test_an_outer_choice_is_respected(hami: Hami) -> None:
    done = hami("run", "--device", "0", "--", "true", CUDA_VISIBLE_DEVICES="1")
    assert done.returncode == 125
    assert "CUDA_VISIBLE_DEVICES hides it" in done.stderr
    done = hami("run", "--device", "1", "--", sys.executable, "-c", PRINT, CUDA_VISIBLE_DEVICES="1")
    assert json.loads(done.stdout)["chosen"] == [CARDS[1].uuid]
    done = hami("run", "--", sys.executable, "-c", PRINT, CUDA_VISIBLE_DEVICES="1")
    assert json.loads(done.stdout)["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_card_number_counts_the_chosen_cards_of_the_slice_around(hami: Hami) -> None:
    inner = [sys.executable, str(Path(__file__).with_name("machine.py")), "run", "--device", "0"]
    numbered = ["env", "CUDA_VISIBLE_DEVICES=0", *inner, "--", sys.executable, "-c", PRINT]
    done = hami("run", "--device", "1", "--device", "0", "--", *numbered)
    assert json.loads(done.stdout)["chosen"] == [CARDS[1].uuid, CARDS[0].uuid, CARDS[1].uuid]
