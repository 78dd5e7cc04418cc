"""The same pods on 2, on 20 and on 200 nodes: all are placed, and no card has more than it has.

They go all the way: the webhook completes each of them, and it is bound by one write, beside which
its annotations say what it got. The extender follows the pods that the webhook has labelled alone.
"""

import re
from collections.abc import Iterator

import pytest

from cluster import audit_log, objects
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import Settings
from cluster.extended import EXTENDER, card, extended, node
from cluster.objects import PODS
from cluster.placing import CARD_POLICY, CORES, GPU, MEMORY, NODE_POLICY, USE, Placing, asks
from cluster.webhooks import webhook
from hami_py.model.pods import PodSettings
from hami_py.scheduler.settings import SchedulerSettings

CARDS, MIB, TIME = 4, 10_000, 100


@pytest.fixture(scope="module")
def placing_cluster(module_control_plane: StartControlPlane) -> Iterator[Placing]:
    """The cluster of the other tests, with the webhook, and with an audit log of writes to pods."""
    # As in deploy/, but for the scheduler's name: there is one scheduler here.
    judged = PodSettings(schedulers=("default-scheduler",))
    with (
        extended(
            module_control_plane,
            settings=Settings(audits=True),
            pod_selector=SchedulerSettings.pod_selector,
        ) as (cluster, scheduler),
        webhook(cluster, pods=judged),
    ):
        yield Placing(cluster, scheduler)


def mixture(placing: Placing) -> list[str]:
    """Pods of all kinds, made at once; together about three quarters of eight cards."""
    made = [
        # First, while cards are idle: others would be on all of eight.
        placing.create("whole", asks()),
        # The number of cards is the webhook's to say, as with the init container below.
        *(placing.create(f"part-{i}", {MEMORY: 3000, CORES: 20}) for i in range(6)),
        *(placing.create(f"half-{i}", asks(percent=50)) for i in range(3)),
        *(placing.create(f"pair-{i}", asks(2000, cards=2, cores=10)) for i in range(2)),
        placing.create("packed", asks(1000), {NODE_POLICY: "binpack", CARD_POLICY: "binpack"}),
        placing.create("spread", asks(1000), {NODE_POLICY: "spread", CARD_POLICY: "spread"}),
        placing.create(
            "stages",
            containers=[objects.container("main", asks(1000))],
            initContainers=[objects.container("init", {MEMORY: 2000})],
        ),
    ]
    # By the webhook: the binding writes it as well.
    assert all(pod["metadata"]["labels"] == LABELS for pod in made)
    return [pod["metadata"]["name"] for pod in made]


LABELS = {"hami.io/pod": "true"}
LIMIT, SHARE = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"

#: By the first word of a pod's name, of each container: its variables, and MiB and percent on each
#: of its cards.
WANTED: dict[str, dict[str, tuple[dict[str, str], list[tuple[int, int]]]]] = {
    "whole": {"main": ({}, [(MIB, TIME)])},
    "part": {"main": ({LIMIT: "3000m", SHARE: "20"}, [(3000, 20)])},
    "half": {"main": ({LIMIT: "metadata.annotations['hami.io/gpumem.main']"}, [(5000, 0)])},
    "pair": {"main": ({LIMIT: "2000m", SHARE: "10"}, 2 * [(2000, 10)])},
    "packed": {"main": ({LIMIT: "1000m"}, [(1000, 0)])},
    "spread": {"main": ({LIMIT: "1000m"}, [(1000, 0)])},
    "stages": {
        "init": ({LIMIT: "2000m"}, [(2000, 0)]),
        "main": ({LIMIT: "1000m"}, [(1000, 0)]),
    },
    "last": {"main": ({LIMIT: "100m"}, [(100, 0)])},
}


def said(variable: Object) -> str:
    """The value of a variable, or the field that it comes from."""
    return str(variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"])


def is_complete(placing: Placing, name: str) -> None:
    """A bound pod has what the webhook adds, and the annotations say what it got."""
    pod = placing.api.get(f"{PODS}/{name}")
    kind, *_ = name.split("-")
    assert pod["metadata"]["labels"] == LABELS
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    granted = placing.grants(name)
    has = {
        each["name"]: (
            {variable["name"]: said(variable) for variable in each.get("env", [])},
            [(grant.memory_mib, grant.cores) for grant in granted[each["name"]]],
        )
        for each in containers
    }
    assert has == WANTED[kind], name
    for each in containers:
        assert each["resources"]["limits"][GPU] == str(len(granted[each["name"]])), name
    # A limit that was a percentage is there for the kubelet, as a number; of others is nothing.
    written = {
        key: value
        for key, value in pod["metadata"]["annotations"].items()
        if key.startswith("hami.io/gpumem")
    }
    assert written == ({"hami.io/gpumem.main": "5000m"} if kind == "half" else {}), name


@pytest.mark.parametrize("count", [2, 20, 200])
def test_no_card_is_overcommitted_on_many_nodes(placing: Placing, count: int) -> None:
    names = [f"n{number:03}" for number in range(count)]
    placing.add(*(node(name, [card(name, i) for i in range(CARDS)]) for name in names))
    last = f"GPU-{names[-1]}-{CARDS - 1}"
    placing.place("last", asks(100), {USE: last})
    assert (placing.node("last"), placing.cards("last")) == (names[-1], [last])
    made = mixture(placing)
    nodes = {name: placing.node(name) for name in made}
    memory, time = placing.given()
    assert set(nodes.values()) <= set(names)
    assert max(memory.values()) <= MIB
    assert max(time.values()) <= TIME
    # 6 parts, 3 halves, 2 pairs, a whole card, 1000 twice and 2000 at first, the last card's 100.
    assert memory.total() == 18_000 + 15_000 + 8000 + 10_000 + 4000 + 100
    (whole,) = placing.cards("whole")
    assert (memory[whole], time[whole]) == (MIB, TIME)
    for name in ["last", *made]:
        is_complete(placing, name)
    audit_log.each_bound_in_one_write(placing.cluster, EXTENDER, ["last", *made])
    # Each node was asked about: kube-scheduler counts our answers.
    why = placing.refuse("nowhere", asks(1000), {USE: "GPU-away"})
    assert re.search(rf"[:,] {count} [^,]*excluded by UUID", why), why
