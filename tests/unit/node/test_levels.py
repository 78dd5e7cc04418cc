"""What enforces the limits of a container, by the mode of its node."""

import re
from dataclasses import replace

import pytest

from hami_py.model.pods.settings import CorePolicy
from hami_py.model.pods.wire import NODE_MODES, Card, Node, NodeMode
from hami_py.node.levels import enforcement, with_levels
from support.artifacts import ROOT

#: By mode: the levels of memory and time, as docs/pods.md has them.
LEVELS = {
    mode: (level, time)
    for mode, level, time in re.findall(
        r"^\| `(\w+)`[^|]*\|[^|]*\| `(\w+)` \| `(\w+)` \|$",
        (ROOT / "docs" / "pods.md").read_text(),
        re.MULTILINE,
    )
}


@pytest.mark.parametrize("mode", NODE_MODES)
def test_the_levels_of_each_mode(mode: NodeMode) -> None:
    found = enforcement(mode)
    assert (found.level, found.time_level) == LEVELS[mode]
    # A person reads why there is no more.
    assert found.level == "preload" or mode in found.reason
    without_time = enforcement(mode, "disable")
    assert without_time.time_level == "none"
    assert replace(without_time, time_level="lease", reason="") == replace(
        found, time_level="lease", reason=""
    )


@pytest.mark.parametrize(
    ("mode", "policy", "sentence"),
    [
        (
            "full",
            "default",
            "memory is enforced by preload and time by lease, "
            "because the node offers nothing stronger",
        ),
        (
            "full",
            "disable",
            "memory is enforced by preload and time by nothing, "
            "because the setting core_policy is disable",
        ),
        (
            "exclusive",
            "default",
            "memory is enforced by preload and time by nothing, "
            "because nodes of mode exclusive do not limit time",
        ),
        (
            "share",
            "disable",
            "memory is enforced by nothing and time by nothing, "
            "because hami-py limits nothing on nodes of mode share",
        ),
    ],
)
def test_one_sentence_says_what_and_why(mode: NodeMode, policy: CorePolicy, sentence: str) -> None:
    assert str(enforcement(mode, policy)) == sentence


@pytest.mark.parametrize("mode", NODE_MODES)
@pytest.mark.parametrize("policy", ["default", "disable"])
def test_a_mig_instance_is_the_limit_in_every_mode(mode: NodeMode, policy: CorePolicy) -> None:
    assert str(enforcement(mode, policy, mig=[True, True])) == (
        "memory is enforced by mig and time by mig, because its cards are MIG instances"
    )
    mixed = enforcement(mode, policy, mig=[True, False])
    assert mixed == enforcement(mode, policy), "the weakest one of the two"
    assert enforcement(mode, policy, None, mig=[True, False]).level == mixed.level


def test_the_driver_s_limits_raise_preload_alone() -> None:
    for mode in NODE_MODES:
        found = enforcement(mode, no_kernel=None)
        assert found.level == ("kernel" if LEVELS[mode][0] == "preload" else "none")
        assert found.time_level == LEVELS[mode][1]
    assert enforcement("full", no_kernel="why").reason == "why"


def test_cards_of_an_older_agent_have_the_level_of_their_node_s_mode() -> None:
    old, new = Card("A", 0, "m", 1000), Card("B", 1, "m", 1000, level="kernel")
    for mode in NODE_MODES:
        found = with_levels(Node("n", (old, new), mode))
        assert [card.level for card in found.cards] == [LEVELS[mode][0], "kernel"]
