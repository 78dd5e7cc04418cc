"""The table of columns: what the commands, the web page and Prometheus show of slices and cards."""

from dataclasses import replace
from typing import get_args

import pytest

from hami_py.model.columns import CARDS, SLICES, Column, View, columns, least_wanted, orders, record
from support.slice_uses import container

ROW = container("ml", "train", "main", "GPU-0", limit=4 << 30, share=30, memory_used=1 << 30)


@pytest.mark.parametrize("table", [SLICES, CARDS], ids=["slices", "cards"])
def test_a_key_a_metric_and_a_heading_each_name_one_column(table: tuple[Column, ...]) -> None:
    assert len({column.key for column in table}) == len(table)
    metrics = [column.metric for column in table if column.metric]
    assert len(set(metrics)) == len(metrics)
    for view in get_args(View):
        shown = columns(view, table)
        assert len({column.heads[view] for column in shown}) == len(shown)
        sorted_by = [column for column in table if view in column.sort]
        assert list(orders(view, table).values()) == sorted_by
        # What is sorted by is shown.
        assert all(column in shown for column in sorted_by)


def test_each_column_has_a_value() -> None:
    known = {column.key: column.value(ROW) for column in SLICES}
    assert (known["memory_part"], known["regime"], known["share_limit"]) == (0.25, "30%", 0.3)
    unknown = {column.key: column.value(replace(ROW, is_known=False)) for column in SLICES}
    # Of a container whose use is unknown, the limits are known.
    assert (unknown["memory_limit"], unknown["share_limit"]) == (4 << 30, 0.3)
    assert {unknown[key] for key in ("memory_used", "memory_part", "refusals")} == {None}
    assert record(ROW).keys() == {column.key for column in SLICES if column.is_field}


def test_a_narrow_terminal_leaves_out_bars_first() -> None:
    assert least_wanted(columns("top"))[:2] == ["history", "memory_part"]
    kept = {column.key for column in columns("top")} - {*least_wanted(columns("top"))}
    assert kept == {"pod", "index", "memory_used", "regime"}
