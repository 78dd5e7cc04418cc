"""The same pods on 2, on 20 and on 200 nodes: all are placed, and no card has more than it has.

And each of them is bound by one write.
"""

import re
from collections.abc import Iterator

import pytest

from cluster import audited, objects
from cluster.conftest import StartControlPlane
from cluster.control_plane import Settings
from cluster.extended import EXTENDER, card, extended, node
from cluster.placing import CARD_POLICY, NODE_POLICY, USE, Placing, asks

CARDS, MEMORY, TIME = 4, 10_000, 100


@pytest.fixture(scope="module")
def placing_cluster(module_control_plane: StartControlPlane) -> Iterator[Placing]:
    """As the others have it, with books of who writes to pods."""
    with extended(module_control_plane, settings=Settings(audits=True)) as (cluster, scheduler):
        yield Placing(cluster, scheduler)


def mixture(placing: Placing) -> list[str]:
    """Pods of all kinds, made at once; together about three quarters of eight cards."""
    made = [
        # First, while cards are idle: others would be on all of eight.
        placing.create("whole", asks()),
        *(placing.create(f"part-{i}", asks(3000, cores=20)) for i in range(6)),
        *(placing.create(f"half-{i}", asks(percent=50)) for i in range(3)),
        *(placing.create(f"pair-{i}", asks(2000, cards=2, cores=10)) for i in range(2)),
        placing.create("packed", asks(1000), {NODE_POLICY: "binpack", CARD_POLICY: "binpack"}),
        placing.create("spread", asks(1000), {NODE_POLICY: "spread", CARD_POLICY: "spread"}),
        placing.create(
            "stages",
            containers=[objects.container("main", asks(1000))],
            initContainers=[objects.container("init", asks(2000))],
        ),
    ]
    return [pod["metadata"]["name"] for pod in made]


@pytest.mark.parametrize("count", [2, 20, 200])
def test_no_card_is_given_beyond_its_size_on_so_many_nodes(placing: Placing, count: int) -> None:
    names = [f"n{number:03}" for number in range(count)]
    placing.add(*(node(name, [card(name, i) for i in range(CARDS)]) for name in names))
    last = f"GPU-{names[-1]}-{CARDS - 1}"
    placing.place("last", asks(100), {USE: last})
    assert (placing.node("last"), placing.cards("last")) == (names[-1], [last])
    made = mixture(placing)
    nodes = {name: placing.node(name) for name in made}
    memory, time = placing.given()
    assert set(nodes.values()) <= set(names)
    assert max(memory.values()) <= MEMORY
    assert max(time.values()) <= TIME
    # 6 parts, 3 halves, 2 pairs, a whole card, 1000 twice and 2000 at first, the last card's 100.
    assert memory.total() == 18_000 + 15_000 + 8000 + 10_000 + 4000 + 100
    (whole,) = placing.cards("whole")
    assert (memory[whole], time[whole]) == (MEMORY, TIME)
    audited.each_bound_in_one_write(placing.cluster, EXTENDER, ["last", *made])
    # Each node was asked about: kube-scheduler counts our answers.
    why = placing.refuse("nowhere", asks(1000), {USE: "GPU-away"})
    assert re.search(rf"[:,] {count} [^,]*excluded by UUID", why), why
