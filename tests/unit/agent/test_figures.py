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
from hami_py.model.pods.wire import CardAllocation, Instance, NodeMode
from hami_py.monitor import NodeFigures, decode, encode
from unit.agent.build import CARD_MIB, Reporting, entry, pod, settings, state
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
    seen = Reporting(node)
    seen.beyond = beyond or {}
    return Figures("n1", node, seen).collect(registered=True, waiting=0)


@pytest.mark.parametrize(
    ("policy", "mode", "levels", "share"),
    [
        ("default", "full", ("preload", "lease"), 30),
        ("disable", "full", ("preload", "none"), None),
        ("default", "share", ("none", "none"), None),
    ],
)
def test_a_limit_that_is_not_enforced_has_no_series(
    tmp_path: Path, policy: CorePolicy, mode: NodeMode, levels: tuple[str, str], share: int | None
) -> None:
    found = exposed(tmp_path, PodSettings(core_policy=policy), mode)
    assert (found.level, found.time_level) == levels
    assert found.use.share == share
    assert (found.use.memory_limit is not None) is (mode == "full")


def test_the_memory_of_a_mig_instance_is_shown_as_the_limit(tmp_path: Path) -> None:
    node = state(settings(tmp_path), "MIG-a", "MIG-b")
    node.ledger.put(entry("p", on("MIG-a", 4864, 14)))
    node.pods.changed(pod("waits", {"main": on("MIG-b", 4864, 14)}))
    for found in collected(node).containers:
        assert (found.level, found.time_level) == ("mig", "mig")
        assert (found.use.memory_limit, found.use.share) == (4864 << 20, None)


def test_instances_of_one_gpu_are_shown_as_their_sum_on_that_gpu(tmp_path: Path) -> None:
    """Costs and views join containers with cards by the UUID."""
    node = state(settings(tmp_path), "GPU-a")
    both = tuple(CardAllocation("GPU-a", 4864, 14, Instance("1g.5gb", at, 1)) for at in (0, 1))
    node.ledger.put(entry("p", *both, mig_uuids=("MIG-a", "MIG-b")), entry("q", both[0]))
    found = {each.pod: each.use for each in collected(node).containers}
    assert {use.uuid for use in found.values()} == {"GPU-a"}
    assert [found[pod].memory_limit for pod in ("p", "q")] == [2 * 4864 << 20, 4864 << 20]
    parts = [each.card_allocated for each in collected(node).containers]
    assert parts == [2 * 4864 / CARD_MIB, 4864 / CARD_MIB]


def test_the_allocated_part_of_a_card_needs_no_limit_that_is_enforced(tmp_path: Path) -> None:
    """A bill counts what others cannot have: also the whole time, and cards without limits."""
    node = state(settings(tmp_path), "A")
    half = CARD_MIB // 2
    pods = {"time": on("A", 0, 100), "memory": on("A", half, 30), "unlimited": on("A", half)}
    modes: dict[str, NodeMode] = {"unlimited": "share"}
    node.ledger.put(*(entry(uid, card, mode=modes.get(uid, "full")) for uid, card in pods.items()))
    claims = (("claim", "request", "device"),)
    node.ledger.put(*(entry(uid, on("A", half), claims=claims) for uid in ("same", "claim")))
    node.pods.changed(pod("over", {"main": on("A")}, status={"phase": "Succeeded"}))
    node.ledger.put(entry("over", on("A")), entry("lost", on("B")))
    node.pods.changed(pod("waits", {"main": on("A", half)}))
    found = {each.pod: each.card_allocated for each in collected(node).containers}
    parts = {"time": 1, "memory": 0.5, "unlimited": 0.5, "same": 0.25, "claim": 0.25, "waits": 0.5}
    assert found == {**parts, "over": None, "lost": None}


def test_the_level_is_that_of_each_container_when_it_started(tmp_path: Path) -> None:
    node = state(settings(tmp_path), "A")
    node.no_kernel = None
    node.ledger.put(entry("p", on("A", 1000), cgroup="/sys/fs/cgroup/p"), entry("q", on("A", 1000)))
    found = {each.pod: (each.level, each.enforcement) for each in collected(node).containers}
    why = "because the node offers nothing stronger"
    assert found["p"] == ("kernel", f"memory is enforced by kernel and time by lease, {why}")
    assert found["q"][0] == "preload"
    assert "the driver did not limit it when it started" in str(found["q"][1])


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


@pytest.mark.parametrize(("cores", "idle"), [(30, 0.0), (0, None)])
def test_the_used_share_is_the_engine_time_of_the_last_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, idle: float | None
) -> None:
    node = state(settings(tmp_path), "A")
    node.ledger.put(entry("p", on("A", 3000, cores)))
    now_s, engine_ns, read_s = 100.0, 0, 0.0

    def use_at(_: str) -> tuple[float, SimpleNamespace]:
        figures = {"used_ns": [engine_ns], "throttled_ns": [0], "refusals": [0], "memory_peak": [7]}
        held = {"memory_used": [9], "measured_memory": [9]}
        return read_s or now_s, SimpleNamespace(processes=[], **held, **figures)

    monkeypatch.setattr(node.slots, "use_at", use_at)
    figures = Figures("n1", node, Reporting(node))

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
    now_s, read_s = 107.0, 107.0
    assert share() == idle, "without a share it is perhaps not measured"


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
