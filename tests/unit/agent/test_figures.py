"""The metrics of a container show only limits that are enforced."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hami_py.agent.figures import Figures
from hami_py.agent.node import OwnNode
from hami_py.agent.state import NodeState
from hami_py.errors import InvalidValue
from hami_py.model import SliceUse
from hami_py.model.columns import BY_KEY
from hami_py.model.limits import Mode
from hami_py.model.pods import HAMI, PodSettings, encode_cards
from hami_py.model.pods.annotations import CARDS
from hami_py.model.pods.settings import CorePolicy
from hami_py.model.pods.wire import NodeMode
from hami_py.monitor import NodeFigures, decode, encode
from unit.agent.build import entry, observer, pod, settings, state
from unit.node.build import on


def exposed(folder: Path, of_pods: PodSettings, mode: NodeMode = "full") -> SliceUse:
    """The figures of a container that has not started."""
    node = state(replace(settings(folder), pods=of_pods), "A")
    metadata = {
        "name": "n1",
        "annotations": {CARDS: encode_cards(node.cards.all)},
        "labels": {HAMI.mode_label: mode},
    }
    node.node.changed(msgspec.convert({"metadata": metadata}, OwnNode))
    node.pods.changed(pod("p", {"main": on("A", 3000, 30)}))
    (found,) = collected(node).containers
    return found


def collected(
    node: NodeState, beyond: dict[tuple[str | None, str], int] | None = None
) -> NodeFigures:
    seen = observer(node)
    seen.beyond = beyond or {}
    return Figures("n1", node, seen).collect(registered=True, waiting=0)


@pytest.mark.parametrize(
    ("policy", "mode", "level", "share"),
    [
        ("default", "full", "preload", 30),
        ("disable", "full", "preload", None),
        ("default", "share", "none", None),
    ],
)
def test_a_limit_that_is_not_enforced_has_no_series(
    tmp_path: Path, policy: CorePolicy, mode: NodeMode, level: str, share: int | None
) -> None:
    found = exposed(tmp_path, PodSettings(core_policy=policy), mode)
    assert (found.level, found.use.share) == (level, share)
    assert (found.use.memory_limit is not None) is (mode == "full")


@pytest.mark.parametrize(("mode", "number"), [("full", 1), ("share", 0)])
def test_only_a_pod_with_limits_exceeds_them(tmp_path: Path, mode: NodeMode, number: int) -> None:
    node = state(settings(tmp_path), "A")
    node.pods.changed(pod("p", {"main": on("A")}))
    node.ledger.put(entry("p", on("A"), mode=mode))
    assert len(collected(node, {("p", "A"): 1 << 30}).excess) == number


@pytest.mark.parametrize(
    ("cores", "mode", "soft"), [(30, "soft", True), (30, "hard", False), (0, "soft", None)]
)
def test_a_share_is_shown_as_soft_or_hard(
    tmp_path: Path, cores: int, mode: Mode, soft: bool | None
) -> None:
    node = state(settings(tmp_path), "A")
    limited = entry("p", on("A", 3000, cores), share_mode=mode)
    node.ledger.put(limited)
    node.slots.ensure("p", node._rows(limited))
    (found,) = collected(node).containers
    assert BY_KEY["share_soft"].value(found) is soft


def test_the_used_share_is_the_engine_time_of_the_last_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = state(settings(tmp_path), "A")
    node.ledger.put(entry("p", on("A", 3000, 30)))
    now_s, engine_ns, read_s = 100.0, 0, 0.0

    def use_at(_: str) -> tuple[float, SimpleNamespace]:
        figures = {"used_ns": [engine_ns], "throttled_ns": [0], "refusals": [0], "memory_peak": [7]}
        held = {"memory_used": [9], "measured_memory": [9]}
        return read_s or now_s, SimpleNamespace(processes=[], **held, **figures)

    monkeypatch.setattr(node, "use_at", use_at)
    figures = Figures("n1", node, observer(node))

    def share() -> float | None:
        (found,) = figures.collect(registered=True, waiting=0).containers
        assert (found.use.memory_peak, found.use.memory_used) == (7, 0), "no process lives"
        return found.share_used

    assert share() is None, "one reading has no rate"
    now_s, engine_ns = 100.5, 150_000_000
    assert share() is None, "half a second is too short"
    now_s, engine_ns = 102.0, 600_000_000
    assert share() == pytest.approx(0.3)
    now_s, engine_ns = 102.1, 700_000_000
    assert share() == pytest.approx(0.3), "a scrape does not begin a new second"
    now_s = 103.0
    assert share() == pytest.approx(0.1)
    # Another part has read the account a second ago.
    now_s, read_s, engine_ns = 106.0, 105.0, 1_300_000_000
    assert share() == pytest.approx(0.3)


def test_the_figures_are_the_same_as_json(tmp_path: Path) -> None:
    node = state(settings(tmp_path), "A")
    node.pods.changed(pod("p", {"main": on("A", 3000, 30)}))
    found = collected(node)
    assert found.level == "preload"
    assert decode(encode(found)) == replace(
        found, cards=list(found.cards), containers=list(found.containers), excess=[]
    )


def test_figures_of_another_release_are_read() -> None:
    card = {"uuid": "A", "index": 0, "model": "m", "memory": 1, "memory_used": None}
    card["memory_allocated"] = 0
    card |= {"share_allocated": 0.0, "foreign": 0, "healthy": True, "of_a_later_release": [1]}
    data = json.dumps({"node": "n", "cards": [card], "later": {}}).encode()
    assert decode(data).cards[0].uuid == "A"
    with pytest.raises(InvalidValue, match="one release"):
        decode(b"it is not active\n")
