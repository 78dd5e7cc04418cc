"""One grammar for sizes and shares, from every source."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hami_py import InvalidValue, config, limits, run
from hami_py._native import LimitRow, LimitsPage, format_memory, parse_memory, parse_share
from hami_py.config import Settings
from hami_py.model import parse_arguments, parse_options
from hami_py.model.request import LimitRequest
from hami_py.slices import current
from support.slices import GIB, MIB
from unit.machine import Hami

BAD = None

# text, our options and arguments, HAMi's variables (0: no limit)
SIZES = [
    ("4GiB", 4 * GIB, 4 * GIB),
    ("4Gi", 4 * GIB, 4 * GIB),
    ("4GB", 4 * 10**9, 4 * 10**9),
    ("4096MiB", 4 * GIB, 4 * GIB),
    ("4096MB", 4096 * 10**6, 4096 * 10**6),
    ("4096", BAD, 4096),
    ("4096m", BAD, 4 * GIB),
    ("4g", BAD, 4 * GIB),
    ("4G", BAD, 4 * GIB),
    ("0", BAD, 0),
    ("0GiB", BAD, 0),
    ("4e9", BAD, BAD),
    ("1.5GiB", BAD, BAD),
    ("010g", BAD, BAD),
    ("-1", BAD, BAD),
    ("-4GiB", BAD, BAD),
    ("+4GiB", BAD, BAD),
    ("", BAD, BAD),
    (" 4GiB", BAD, BAD),
    ("4 GiB", BAD, BAD),
    ("abc", BAD, BAD),
    ("GiB", BAD, BAD),
    ("50%", BAD, BAD),
    ("٤GiB", BAD, BAD),
    ("4GiB\udcff", BAD, BAD),
    ("18446744073709551615", BAD, BAD),
    ("99999999999999999999GiB", BAD, BAD),
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
    assert error.fix
    assert field in str(error)
    assert error.fix in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("parse", "text", "ours", "hami_env"),
    [(parse_memory, *row) for row in SIZES] + [(parse_share, *row) for row in SHARES],
)
def test_a_quantity_from_each_source(
    parse: Callable[..., int | None], text: str, ours: int | None, hami_env: int | None
) -> None:
    for source, meant in (("api", ours), ("hami-env", hami_env)):
        if meant is BAD:
            refused(lambda s=source: parse(text, s, "a field"), "a field", text)
        else:
            assert (parse(text, source, "a field") or 0) == meant


@pytest.mark.parametrize(
    ("option", "text", "ours"),
    [("gpumem", *row[:2]) for row in SIZES] + [("gpucores", *row[:2]) for row in SHARES],
)
def test_a_quantity_from_options_and_python(option: str, text: str, ours: int | None) -> None:
    """Command line and Python, for every card and for one."""

    def options(written: str) -> LimitRequest:
        return parse_options(*([written], []) if option == "gpumem" else ([], [written]))

    def arguments(given: object) -> LimitRequest:
        return parse_arguments(**{option: given})  # type: ignore[arg-type]

    if ours is BAD:
        refused(lambda: options(text), option, text)
        refused(lambda: options(f"0={text}"), f"{option} 0", text)
        refused(lambda: arguments(text), option, text)
        refused(lambda: arguments({"0": text}), f"{option} 0", text)
        refused(lambda: run(["true"], **{option: text}), option, text)  # type: ignore[arg-type]
    else:
        field = {"gpumem": "memory", "gpucores": "share"}[option]
        for asked, meant in (
            (options(text), ours),
            (options(f"0={text}"), {"0": ours}),
            (arguments(text), ours),
            (arguments({"0": text}), {"0": ours}),
        ):
            assert getattr(asked, field) == meant


@pytest.mark.parametrize(("text", "ours", "hami_env"), SIZES)
def test_a_size_in_hamis_variables(
    settings: Settings, text: str, ours: object, hami_env: int | None
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
def test_a_size_on_the_limits_page(tmp_path: Path, memory: int | None) -> None:
    """The page stores bytes; every reader gets the value that was written."""
    path = tmp_path / "limits"
    LimitsPage.create(path, [LimitRow("GPU-1", memory)])
    assert [row.memory_limit for row in LimitsPage.open(path).rows()] == [memory]


def test_a_size_that_the_page_cannot_carry_is_not_no_limit(tmp_path: Path) -> None:
    for number, memory in enumerate([2**64 - 1, 2**64, -1]):
        with pytest.raises((ValueError, OverflowError)):
            LimitsPage.create(tmp_path / str(number), [LimitRow("GPU-1", memory)])


@pytest.mark.parametrize(("text", "ours", "hami_env"), SHARES)
def test_a_share_in_hamis_variables(
    settings: Settings, text: str, ours: object, hami_env: int | None
) -> None:
    name = "CUDA_DEVICE_SM_LIMIT_1"
    settings = config.read({**settings.environment, name: text})
    if hami_env is BAD:
        refused(lambda: current.limits(settings), name, text)
    elif hami_env in (0, 100):
        assert current.limits(settings).source == "none"
    else:
        assert [card.share for card in current.limits(settings).cards] == [None, hami_env]


def test_the_whole_card_can_be_named() -> None:
    assert parse_options([], ["none"]).share == 100
    assert parse_options([], ["0=none", "1=30"]).share == {"0": 100, "1": 30}
    assert parse_arguments(gpucores={"0": "none", "1": 30}).share == {"0": 100, "1": 30}


@pytest.mark.parametrize("number", [4.0, b"4GiB", ["4GiB"]])
def test_python_wants_a_text_with_a_unit(number: object) -> None:
    refused(lambda: parse_arguments(number), "gpumem", repr(number))  # type: ignore[arg-type]


def test_python_takes_a_number_for_a_share() -> None:
    assert parse_arguments(gpucores=30).share == 30
    assert parse_arguments(gpucores={"0": 30}).share == {"0": 30}
    for number in (0, 101, -1):
        refused(lambda n=number: parse_arguments(gpucores=n), "gpucores", str(number))


@pytest.mark.parametrize("value", [30.0, True, b"30", [30], object])
def test_a_share_must_be_a_whole_number(value: object) -> None:
    refused(lambda: parse_arguments(gpucores=value), "gpucores", repr(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("mode", ["hard", "soft"], ["Hard", "", "none", "soft "]),
        ("priority", ["low", "normal", "high"], ["0", "High", "", "urgent"]),
    ],
)
def test_mode_and_priority_are_words(field: str, good: list[str], bad: list[str]) -> None:
    for word in good:
        assert getattr(parse_arguments(**{field: word}), field) == word  # type: ignore[arg-type]
        assert getattr(parse_options([], [], **{field: word}), field) == word
    for word in bad:
        refused(lambda w=word: parse_arguments(**{field: w}), field, word)
    refused(lambda: parse_arguments(**{field: 1}), field, "1")  # type: ignore[arg-type]


def test_the_command_line_reports_it_in_one_line(hami: Hami) -> None:
    for arguments, needed in [
        (["--gpumem", "4096m"], ("gpumem", "4096m", "4096MiB")),
        (["--gpumem", "0=4096m"], ("gpumem 0", "4096m", "4096MiB")),
        (["--gpumem", "0GiB"], ("gpumem", "0GiB")),
        (["--gpucores", "101"], ("gpucores", "101", "1 to 100")),
        (["--gpucores", "0=x"], ("gpucores 0", '"x"', "1 to 100")),
        (["--gpucores", "30", "--gpucores", "0=30"], ("gpucores", "0=30", "one PERCENT for every")),
        (["--mode", "x"], ("--mode", "'x'", "'hard', 'soft'")),
        (["--priority", "0"], ("--priority", "'0'", "'low', 'normal', 'high'")),
    ]:
        done = hami("run", *arguments, "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.startswith("hami: ")
        assert done.stderr.count("\n") == 1
        assert all(text in done.stderr for text in needed), done.stderr


@pytest.mark.parametrize("size", [1 * GIB, 1536 * MIB, 4 * 10**9, 81559 * MIB])
def test_printed_sizes_can_be_parsed(size: int) -> None:
    assert parse_options([format_memory(size)], []).memory == size


def test_outside_a_slice_there_is_no_limit() -> None:
    assert limits().source == "none"


@pytest.mark.parametrize("zero", ["0", "00", "0B", "0MiB", 0])
def test_0_has_one_answer(zero: str | int) -> None:
    fix = "write none for no limit"
    for parse in (
        lambda: parse_arguments(zero),
        lambda: parse_arguments({"0": zero}),
        lambda: parse_options([f"1={zero}"], []),
    ):
        with pytest.raises(InvalidValue) as caught:
            parse()
        assert caught.value.fix == fix
    if zero in {"0", 0}:
        for parse in (
            lambda: parse_arguments(gpucores=zero),
            lambda: parse_options([], [f"1={zero}"]),
            lambda: parse_options([], ["0%"]),
        ):
            with pytest.raises(InvalidValue) as caught:
                parse()
            assert caught.value.fix == fix
