"""One grammar for sizes and shares, by every road they come."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py import InvalidValue, config, limits, run
from hami_py._native import LimitRow, LimitsPage, format_memory
from hami_py.config import Settings
from hami_py.model import parse_gpumem, parse_memory, parse_share, parse_sizes, refuse_gpucores
from hami_py.slices import current
from unit.machine import Hami

MIB, GIB = 1 << 20, 1 << 30
BAD = None

# text, our options and arguments, the Kubernetes resource, HAMi's variables (0: no limit)
SIZES = [
    ("4GiB", 4 * GIB, 4 * GIB, 4 * GIB),
    ("4Gi", 4 * GIB, 4 * GIB, 4 * GIB),
    ("4GB", 4 * 10**9, 4 * 10**9, 4 * 10**9),
    ("4096MiB", 4 * GIB, 4 * GIB, 4 * GIB),
    ("4096MB", 4096 * 10**6, 4096 * 10**6, 4096 * 10**6),
    ("4096", BAD, 4 * GIB, 4096),
    ("4096m", BAD, BAD, 4 * GIB),
    ("4g", BAD, BAD, 4 * GIB),
    ("4G", BAD, BAD, 4 * GIB),
    ("0", BAD, BAD, 0),
    ("0GiB", BAD, BAD, 0),
    ("4e9", BAD, BAD, BAD),
    ("1.5GiB", BAD, BAD, BAD),
    ("010g", BAD, BAD, BAD),
    ("-1", BAD, BAD, BAD),
    ("-4GiB", BAD, BAD, BAD),
    ("+4GiB", BAD, BAD, BAD),
    ("", BAD, BAD, BAD),
    (" 4GiB", BAD, BAD, BAD),
    ("4 GiB", BAD, BAD, BAD),
    ("abc", BAD, BAD, BAD),
    ("GiB", BAD, BAD, BAD),
    ("50%", BAD, BAD, BAD),
    ("٤GiB", BAD, BAD, BAD),
    ("4GiB\udcff", BAD, BAD, BAD),
    ("18446744073709551615", BAD, BAD, BAD),
    ("99999999999999999999GiB", BAD, BAD, BAD),
]

# text, our options and arguments, HAMi's names (0: no limit)
SHARES = [
    ("30", 30, 30),
    ("30%", 30, 30),
    ("1", 1, 1),
    ("100", 100, 100),
    ("0", BAD, 0),
    ("101", BAD, BAD),
    ("-1", BAD, BAD),
    ("3.5", BAD, BAD),
    ("", BAD, BAD),
    ("abc", BAD, BAD),
    ("٣", BAD, BAD),
    ("\udcff", BAD, BAD),
    ("99999999999999999999", BAD, BAD),
]


def refused(call: Callable[[], object], field: str, value: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        call()
    error = caught.value
    assert error.field == field
    assert error.value == value
    assert error.mend
    assert field in str(error)
    assert error.mend in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(("text", "ours", "gpumem", "hami_env"), SIZES)
def test_a_size_from_each_source(
    text: str, ours: int | None, gpumem: int | None, hami_env: int | None
) -> None:
    for source, meant in (("api", ours), ("gpumem", gpumem), ("hami-env", hami_env)):
        if meant is BAD:
            refused(lambda s=source: parse_memory(text, s, "a field"), "a field", text)
        else:
            assert (parse_memory(text, source, "a field") or 0) == meant


@pytest.mark.parametrize(("text", "ours", "gpumem", "hami_env"), SIZES)
def test_a_size_on_our_roads(text: str, ours: int | None, gpumem: object, hami_env: object) -> None:
    """Command line and Python, for every card and for one."""
    if ours is BAD:
        refused(lambda: parse_gpumem([text]), "gpumem", text)
        refused(lambda: parse_gpumem([f"0={text}"]), "gpumem 0", text)
        refused(lambda: parse_sizes(text), "gpumem", text)
        refused(lambda: parse_sizes({"0": text}), "gpumem 0", text)
        refused(lambda: run(["true"], gpumem=text), "gpumem", text)
    else:
        assert parse_gpumem([text]) == ours
        assert parse_gpumem([f"0={text}"]) == {"0": ours}
        assert parse_sizes(text) == ours
        assert parse_sizes({"0": text}) == {"0": ours}


@pytest.mark.parametrize(("text", "ours", "gpumem", "hami_env"), SIZES)
def test_a_size_in_hamis_variables(
    settings: Settings, text: str, ours: object, gpumem: object, hami_env: int | None
) -> None:
    name = "CUDA_DEVICE_MEMORY_LIMIT"
    settings = config.read({**settings.environment, name: text})
    if hami_env is BAD:
        refused(lambda: current.limits(settings), name, text)
    elif hami_env == 0:
        assert current.limits(settings).source == "none"
    else:
        assert [card.memory for card in current.limits(settings).cards] == [hami_env, hami_env]


@pytest.mark.parametrize("memory", [None, 1, 4 * GIB, 2**64 - 2])
def test_a_size_on_the_page(tmp_path: Path, memory: int | None) -> None:
    """The page carries bytes; what goes in comes out, whoever reads it."""
    path = tmp_path / "limits"
    LimitsPage.create(path, [LimitRow("GPU-1", memory)])
    assert [row.memory_limit for row in LimitsPage.open(path).rows()] == [memory]


def test_a_size_that_the_page_cannot_carry_is_not_no_limit(tmp_path: Path) -> None:
    for number, memory in enumerate([2**64 - 1, 2**64, -1]):
        with pytest.raises((ValueError, OverflowError)):
            LimitsPage.create(tmp_path / str(number), [LimitRow("GPU-1", memory)])


@pytest.mark.parametrize(("text", "ours", "hami_env"), SHARES)
def test_a_share_from_each_source(text: str, ours: int | None, hami_env: int | None) -> None:
    for source, meant in (("api", ours), ("gpumem", hami_env), ("hami-env", hami_env)):
        if meant is BAD:
            refused(lambda s=source: parse_share(text, s, "a field"), "a field", text)
        else:
            assert (parse_share(text, source, "a field") or 0) == meant


@pytest.mark.parametrize(("text", "ours", "hami_env"), SHARES)
def test_a_share_is_never_taken_and_not_enforced(text: str, ours: object, hami_env: object) -> None:
    refused(lambda: refuse_gpucores(text), "gpucores", text)
    refused(lambda: run(["true"], gpucores=text), "gpucores", text)


@pytest.mark.parametrize(("text", "ours", "hami_env"), SHARES)
def test_a_share_in_hamis_variables(
    settings: Settings, text: str, ours: object, hami_env: int | None
) -> None:
    name = "CUDA_DEVICE_SM_LIMIT_1"
    settings = config.read({**settings.environment, name: text})
    if hami_env in (0, 100):
        assert current.limits(settings).source == "none"
    else:
        refused(lambda: current.limits(settings), name, text)


def test_a_whole_share_is_refused_for_not_being_enforced() -> None:
    with pytest.raises(InvalidValue, match="not enforced yet"):
        refuse_gpucores(30)
    refuse_gpucores(None)


@pytest.mark.parametrize("number", [4096, 4.0, b"4GiB", ["4GiB"]])
def test_python_wants_a_text_with_a_unit(number: object) -> None:
    refused(lambda: parse_sizes(number), "gpumem", repr(number))  # type: ignore[arg-type]


def test_the_command_line_says_it_in_one_line(hami: Hami) -> None:
    for arguments, needed in [
        (["--gpumem", "4096m"], ("gpumem", "4096m", "4096MiB")),
        (["--gpumem", "0=4096m"], ("gpumem 0", "4096m", "4096MiB")),
        (["--gpumem", "0GiB"], ("gpumem", "0GiB")),
        (["--gpucores", "30"], ("gpucores", "30", "not enforced yet")),
        (["--gpucores", "101"], ("gpucores", "101")),
    ]:
        done = hami("run", *arguments, "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("hami: ")
        assert done.stderr.count("\n") == 1
        assert all(text in done.stderr for text in needed), done.stderr


@pytest.mark.parametrize("size", [1 * GIB, 1536 * MIB, 4 * 10**9, 81559 * MIB])
def test_what_is_printed_can_be_typed_in(size: int) -> None:
    assert parse_gpumem([format_memory(size)]) == size


def test_outside_a_slice_there_is_no_limit() -> None:
    assert limits().source == "none"
