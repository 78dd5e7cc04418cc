"""Random rounds of pods on MIG instances that the node agent makes, with kills and reboots.

What the stub says of its cards is the oracle: no instance leaks, none of others is touched, and
none is allocated twice.
"""

import random

import pytest

from cluster import waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import install
from cluster.mig_pods import MODELS, Place, assigned, published, requesting, there
from cluster.node_faults import AGENT, KUBELET, RESTARTS
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from support.mig import TABLES, MigCard
from support.tiers import amount

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    pytest.mark.tier("torture"),
    pytest.mark.timeout(5400),
]

#: An instance of another program: GPU, profile, first memory slice.
THEIRS = (2, "1g.18gb", 6)

SETTLED_S = 180.0


class Rounds:
    """The pods by name, and what happens to them and to their node."""

    def __init__(self, cluster: WholeCluster, seed: int) -> None:
        self.cluster, self.chance = cluster, random.Random(seed)  # noqa: S311
        self.gpus = dict(zip(MODELS, cluster.gpu.uuids(), strict=True))
        self.pods: set[str] = set()
        self.theirs: Place = (self.gpus["h200"], *THEIRS[1:])
        self.divide()
        labels = {"hami.io/mode": "mig"}
        cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": labels}})
        install(cluster)
        self.wait_for_cards()

    def divide(self) -> None:
        """As an administrator does, and the driver at a boot."""
        cards = [MigCard(self.cluster.gpu, index).mode() for index in range(len(MODELS))]
        card, profile, start = THEIRS
        cards[card].create(TABLES[MODELS[card]][profile]["id"], start)
        self.cluster.gpu.show_instances(self.cluster.node)

    def wait_for_cards(self) -> None:
        expected = dict.fromkeys(self.gpus.values(), True)
        waiting.until(lambda: published(self.cluster) == expected, "the cards", SETTLED_S)

    def step(self, number: int) -> str:
        fault = self.chance.choices(["none", "agent", "kubelet", "reboot"], [77, 10, 8, 5])[0]
        for each in range(self.chance.randint(0, 3)):
            self.create(f"pod-{number}-{each}")
        for name in self.chance.sample(sorted(self.pods), min(len(self.pods), 2)):
            if self.chance.random() < 0.6:
                self.cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
                self.pods.remove(name)
        if fault == "agent":
            AGENT.strike(self.cluster)
        elif fault == "kubelet":
            KUBELET.strike(self.cluster)
            KUBELET.recover(self.cluster)
        elif fault == "reboot":
            self.cluster.reboot()
            self.divide()
            AGENT.strike(self.cluster)
            self.wait_for_cards()
        self.settle()
        return fault

    def create(self, name: str) -> None:
        model = self.chance.choice(MODELS)
        profiles = [each for each in TABLES[model] if "+me" not in each]
        profile = self.chance.choice(profiles)
        create_soon(self.cluster.control_plane, requesting(name, self.gpus[model], profile, model))
        self.pods.add(name)

    def settle(self) -> None:
        """Each pod runs, waits for a card, or was failed by Kubernetes; and the stub agrees."""
        seen: object = None

        def look() -> bool:
            nonlocal seen
            listed = [pod for pod in self.cluster.api.list(PODS) if self.has(pod)]
            states = {pod["metadata"]["name"]: state_of(pod) for pod in listed}
            for name, state in states.items():
                if state in ("failed", "waits"):
                    self.cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
                    self.pods.discard(name)
            places = [assigned(pod) for pod in listed if state_of(pod) == "runs"]
            assert len({*places}) == len(places), "an instance is allocated twice"
            made = there(self.cluster)
            assert self.theirs in made, "others' instance was removed"
            seen = states, {*made}
            return (
                {*states.values()} <= {"runs"}
                and {*states} == self.pods
                and {*made} == {*places, self.theirs}
            )

        try:
            waiting.until(look, "the stub has the instances of the pods", SETTLED_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {seen}\n{self.cluster.state()}") from None

    def has(self, pod: Object) -> bool:
        return pod["metadata"]["name"] in self.pods


def state_of(pod: Object) -> str:
    if pod["status"].get("phase") in ("Failed", "Succeeded"):
        return "failed"
    for condition in pod["status"].get("conditions", ()):
        said = condition.get("message", "")
        if "no free placement" in said or "Insufficient nvidia.com/" in said:
            return "waits"
    states = [each["state"] for each in pod["status"].get("containerStatuses", ())]
    return "runs" if states and all("running" in state for state in states) else "starts"


def test_random_rounds_leave_no_instance(whole_cluster: StartWhole) -> None:
    cluster = whole_cluster(cards=",".join(MODELS), kubelet_config=RESTARTS)
    rounds = Rounds(cluster, 1)
    for number in range(amount("rounds of pods on MIG instances")):
        print(number, rounds.step(number), len(rounds.pods), flush=True)
    for name in rounds.pods:
        cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
    waiting.until(lambda: {*there(cluster)} == {rounds.theirs}, "no instance is left", SETTLED_S)
