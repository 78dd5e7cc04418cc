"""cuGetProcAddress returns the library's function for every hooked symbol, and for no other.

The library recognises a function by the address that the driver returns, and only where that is not
the exported one by the header's table of versions. Which addresses differ on a driver is noted.
"""

import re
from dataclasses import dataclass

import pytest

from support.artifacts import ROOT
from support.running import run
from support.slices import GIB

PER_THREAD = 2
"""CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM."""


@dataclass(frozen=True)
class Found:
    """The result of the lookup of one form of a function."""

    symbol: str
    result: int
    verdict: str
    file: str


def forms():
    """NAME VERSION FLAGS SYMBOL of every form of every function, from NVIDIA's header."""
    text = (ROOT / "interposer" / "sys" / "src" / "versions.rs").read_text()
    for row in re.finditer(r'\("(\w+)", (\d+), (true|false), "(\w+)"\)', text):
        name, version, per_thread, symbol = row.groups()
        yield f"{name} {version} {PER_THREAD if per_thread == 'true' else 0} {symbol}"


def hooked():
    """The symbols of the hook table that the library exports."""
    text = (ROOT / "interposer" / "table" / "src" / "lib.rs").read_text()
    cuda, _nvml = text.split("library Nvml")
    cuda = re.sub(r"\bcall \{.*?\}", "", cuda, flags=re.DOTALL)
    return set(re.findall(r"^\s+(cu\w+)(?: =>.*)?;", cuda, re.MULTILINE))


@pytest.fixture
def found(programs):
    def look(env):
        done = run([programs("addresses")], env, input="\n".join(forms()))
        assert done.code == 0, done.err
        rows = {}
        for line in done.lines:
            name, version, flags, symbol, result, verdict, file = line.split()
            rows[f"{name} {version} {flags}"] = Found(symbol, int(result), verdict, file)
        return rows

    return look


def test_the_tables_have_hooked_and_other_functions():
    assert len(list(forms())) > 600
    assert {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuGetProcAddress_v2"} <= hooked()
    assert "cuCtxGetCurrent" not in hooked()


def test_without_the_library_the_driver_s_functions_are_returned(card, found, note):
    rows = found(card.env)
    ours = {key: row for key, row in rows.items() if row.symbol in hooked()}
    note("forms asked for", len(rows))
    note("forms of hooked functions", len(ours))
    for verdict in ("other", "unexported", "null"):
        note(
            f"hooked, {verdict} address",
            sorted(f"{key} ({row.symbol})" for key, row in ours.items() if row.verdict == verdict),
        )
    note(
        "not hooked, other address",
        sorted(
            f"{key} ({row.symbol})"
            for key, row in rows.items()
            if row.verdict == "other" and key not in ours
        ),
    )
    assert len(rows) == len(list(forms()))
    assert rows["cuMemAlloc 3020 0"].result == 0
    assert not any("vgpu" in row.file for row in rows.values())


def test_with_the_library_exactly_the_hooked_functions_are_replaced(card, found):
    bare = found(card.env)
    limited = found(card.slice(GIB).env)
    escaped, captured = [], []
    for key, row in limited.items():
        inside = "vgpu" in row.file
        offered = bare[key].verdict != "null"
        if row.symbol in hooked() and offered and not inside:
            escaped.append(key)
        if inside and (row.symbol not in hooked() or not offered):
            captured.append(key)
    assert escaped == []
    assert captured == []


def test_with_the_library_no_lookup_has_another_result(card, found):
    bare = {key: row.result for key, row in found(card.env).items()}
    limited = {key: row.result for key, row in found(card.slice(GIB).env).items()}
    assert limited == bare
