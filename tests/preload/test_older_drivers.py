"""The stub's drivers of older CUDA versions have the exports, and the version, of their time."""

import pytest

from support import elf
from support.console import Console
from support.drivers import OLDER, since


@pytest.mark.parametrize("version", OLDER)
def test_an_older_driver_has_the_exports_of_its_time(artifacts, version):
    later = {symbol for symbol, number in since().items() if number > OLDER[version]}
    newest = elf.exported(artifacts.libcuda)
    assert later <= newest and len(later) > 40
    older = elf.exported(artifacts.older_driver(version) / "libcuda.so.1")
    assert older == newest - later


@pytest.mark.parametrize(
    ("card", "number", "finds"),
    [("h200", 12020, 1), ("h200@11080", 11080, 0)],
    ids=["its own version", "the card's version"],
)
def test_lookups_follow_the_driver_version(program, artifacts, card, number, finds):
    """The card's profile may have another version than the library; exports are the library's."""
    folder = artifacts.older_driver("12.2")
    env = {"LD_LIBRARY_PATH": str(folder), "STUB_GPU_PROFILE": card}
    with Console(program("console"), env) as console:
        assert console.value("version", "version") == number
        console.do("init", "device 0", "exports cuLibraryLoadData")
        assert console.outputs == "1"
        console.do("exports cuCtxCreate_v4")
        assert console.outputs == "0"
        console.do("lookup proc_address")
        assert (console("library l") == 0) == bool(finds)
