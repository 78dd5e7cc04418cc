"""The same card on two nodes is reported once and counted, and no pod is refused."""

import logging
import random
from collections import Counter

import pytest

from hami_py.cluster.nodes import Duplicates
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.metrics import Metrics
from unit.scheduler.small import Small, node


def clone(of: objects.Node, name: str) -> objects.Node:
    return objects.Node(objects.Metadata(name=name, annotations=of.metadata.annotations))


def duplicated(small: Small) -> str:
    lines = Metrics(small.cluster).exposition().splitlines()
    return next(line for line in lines if line.startswith("hami_scheduler_duplicated_cards "))


def test_a_cloned_node_is_reported_counted_and_used(caplog: pytest.LogCaptureFixture) -> None:
    small = Small(nodes="a", cards=2).listed()
    with caplog.at_level(logging.WARNING):
        small.cluster.nodes.changed(clone(node("a", 2), "b"))
    (said,) = caplog.messages
    assert "node b: 2 of its cards (for example GPU-a-0)" in said
    assert "by node a and count on each" in said
    assert duplicated(small) == "hami_scheduler_duplicated_cards 2.0"
    caplog.clear()
    # Its heartbeats say the same again.
    small.cluster.nodes.changed(clone(node("a", 2), "b"))
    assert caplog.messages == []
    for pod in ("one", "two", "three", "four"):
        small.create(pod)
        where = small.fits(pod)
        assert where
        assert small.bind(pod, where[0]) == ""
    # The node that was there under the old name goes.
    small.cluster.nodes.deleted(node("a", 2))
    assert duplicated(small) == "hami_scheduler_duplicated_cards 0.0"


def test_a_duplicate_ends_when_one_of_its_nodes_becomes_unreadable() -> None:
    small = Small(nodes="a").listed()
    small.cluster.nodes.changed(clone(node("a", 1), "b"))
    broken = {pods.annotations.CARDS: "{"}
    small.cluster.nodes.changed(objects.Node(objects.Metadata(name="b", annotations=broken)))
    assert duplicated(small) == "hami_scheduler_duplicated_cards 0.0"


@pytest.mark.parametrize("seed", range(20))
def test_duplicates_do_not_depend_on_the_order_of_events(seed: int) -> None:
    prng = random.Random(seed)  # noqa: S311
    found, truth = Duplicates(), dict[str, set[str]]()
    for _ in range(300):
        name = prng.choice("abcd")
        before, now = truth.get(name, set()), set(prng.sample("123456", prng.randrange(4)))
        elsewhere = {uuid for other, cards in truth.items() if other != name for uuid in cards}
        assert found.set(name, now) == sorted((now - before) & elsewhere)
        truth[name] = now
        counts = Counter(uuid for cards in truth.values() for uuid in cards)
        assert len(found) == sum(count > 1 for count in counts.values())
        for uuid in now:
            others = {other for other in truth if other != name and uuid in truth[other]}
            assert set(found.others(uuid, name)) == others
