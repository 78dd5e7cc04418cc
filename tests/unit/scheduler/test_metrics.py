"""How full cards are, as Prometheus reads it: the sums of the assignments, and every standing."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Router

from hami_py._native import Allocator
from hami_py.cluster.state import Cluster
from hami_py.errors import Unfit
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.metrics import Metrics
from hami_py.scheduler.routes import probe_routes
from hami_py.serving import Listen, Server

MIB = 1 << 20

Samples = dict[tuple[str, ...], float]


def card(node: str, index: int, **more: object) -> wire.Card:
    return wire.Card(f"GPU-{node}-{index}", index, "NVIDIA T4", 10_000, **more)  # type: ignore[arg-type]


def request(name: str, cards: int, mib: int, cores: int) -> wire.PodRequest:
    ask = wire.ContainerRequest("main", "app", cards, wire.Size(mib=mib), cores)
    return wire.PodRequest(wire.PodName(f"uid-{name}", "ml", name), 0, (ask,), wire.CardRequest())


def told(text: str) -> dict[str, Samples]:
    """By metric and the values of the labels; twice the same sample is a fault."""
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("gauge", "histogram", "counter")
        assert family.documentation
        samples = found.setdefault(family.name, {})
        if family.type == "gauge":
            for sample in family.samples:
                labels = tuple(sample.labels.values())
                assert labels not in samples
                samples[labels] = sample.value
    return found


def meter(allocator: Allocator) -> Metrics:
    return Metrics(Cluster(allocator, pods.PodSettings()))


def parts(exposed: dict[str, Samples], prefix: str) -> dict[str, Samples]:
    return {
        name.removeprefix(prefix): samples
        for name, samples in exposed.items()
        if name.startswith(prefix)
    }


def test_metrics_are_the_sums_of_the_assignments() -> None:
    """Enough nodes for several turns of the allocator's lock."""
    allocator = Allocator()
    names = [f"n{at}" for at in range(700)]
    for name in names:
        allocator.set_node(wire.encode(wire.Node(name, (card(name, 0), card(name, 1)))))
    prng = random.Random(7)  # noqa: S311
    mib: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    for number in range(2000):
        asked = request(
            f"p{number}", prng.randint(1, 2), prng.randint(100, 5000), prng.choice([5, 30])
        )
        try:
            answer = allocator.reserve(wire.encode(asked), prng.choice(names), 0)
        except Unfit:
            continue
        for grant in pods.decode_assignment(answer.decode()).containers["main"]:
            mib[grant.card] += grant.memory_mib
            cores[grant.card] += grant.cores
            slots[grant.card] += 1
    assert len(mib) > 1000

    by_card = parts(told(meter(allocator).cards().decode()), "hami_scheduler_card_")
    keys = [(name, str(at), f"GPU-{name}-{at}") for name in names for at in range(2)]
    assert by_card == {
        "memory_bytes": dict.fromkeys(keys, 10_000 * MIB),
        "memory_allocated_bytes": {key: mib[key[2]] * MIB for key in keys},
        "cores_allocated": {key: pytest.approx(cores[key[2]] / 100) for key in keys},
        "slots_allocated": {key: slots[key[2]] for key in keys},
        "state": {(*key, "schedulable"): 1 for key in keys},
    }

    def summed(given: Counter[str], factor: float = 1) -> Samples:
        return {
            (name,): pytest.approx((given[f"GPU-{name}-0"] + given[f"GPU-{name}-1"]) * factor)
            for name in names
        }

    by_node = parts(told(meter(allocator).exposition()), "hami_scheduler_node_")
    assert by_node == {
        "memory_bytes": {(name,): 20_000 * MIB for name in names},
        "memory_allocated_bytes": summed(mib, MIB),
        "cores": {(name,): 2 for name in names},
        "cores_allocated": summed(cores, 0.01),
        "slots": {(name,): 2 * card("n", 0).slots for name in names},
        "slots_allocated": summed(slots),
        "cards": {(name, "schedulable"): 2 for name in names},
    }


def test_cards_are_counted_by_state_and_missing_ones_are_in_no_sum() -> None:
    allocator = Allocator()
    there = (
        card("a", 0),
        card("a", 1, cordoned=True),
        card("a", 2, healthy=False),
        card("a", 3),
    )
    allocator.set_node(wire.encode(wire.Node("a", there)))
    asked = wire.encode(request("p", 2, 1000, 10))
    allocator.place(asked, allocator.reserve(asked, "a", 0), True)
    allocator.set_node(wire.encode(wire.Node("a", there[:3])))
    by_node = parts(told(meter(allocator).exposition()), "hami_scheduler_node_")
    assert by_node["cards"] == {
        ("a", "schedulable"): 1,
        ("a", "cordoned"): 1,
        ("a", "unhealthy"): 1,
        ("a", "missing"): 1,
    }
    assert by_node["memory_bytes"] == {("a",): 30_000 * MIB}
    assert by_node["memory_allocated_bytes"] == {("a",): 1000 * MIB}
    by_card = parts(told(meter(allocator).cards().decode()), "hami_scheduler_card_")
    assert by_card["state"].keys() == {
        ("a", "0", "GPU-a-0", "schedulable"),
        ("a", "1", "GPU-a-1", "cordoned"),
        ("a", "2", "GPU-a-2", "unhealthy"),
        ("a", "", "GPU-a-3", "missing"),
    }
    assert by_card["memory_allocated_bytes"]["a", "", "GPU-a-3"] == 1000 * MIB
    # A removed node keeps the allocations of its pods, until they end.
    allocator.remove_node("a")
    by_node = parts(told(meter(allocator).exposition()), "hami_scheduler_node_")
    assert by_node["cards"] == {("a", "missing"): 2}
    allocator.remove("uid-p")
    assert set(told(meter(allocator).cards().decode())["hami_scheduler_card_state"]) == set()


def test_a_cards_name_may_be_anything() -> None:
    odd = 'GPU-"}\\ 1\n# HELP \u00fc\\n'
    allocator = Allocator()
    named = wire.Card(odd, 0, "NVIDIA T4", 10_000)
    allocator.set_node(wire.encode(wire.Node("a", (named,))))
    exposed = told(meter(allocator).cards().decode())
    assert exposed["hami_scheduler_card_memory_bytes"] == {("a", "0", odd): 10_000 * MIB}


@contextlib.contextmanager
def listening(metrics: Callable[[], str], cards: Callable[[], bytes]) -> Iterator[str]:
    routes = probe_routes(list, lambda: True, metrics, cards, cards)
    server = Server(Router(routes), Listen())
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str) -> str:
    answer = urllib3.request("GET", url, timeout=30.0)
    assert answer.status == 200, answer.data
    return answer.data.decode()


def test_cards_have_a_separate_page() -> None:
    allocator = Allocator()
    allocator.set_node(wire.encode(wire.Node("a", (card("a", 0),))))
    with listening(meter(allocator).exposition, meter(allocator).cards) as url:
        nodes, cards = (told(get(f"{url}{path}")) for path in ("/metrics", "/metrics/cards"))
    assert "hami_scheduler_verb_duration_seconds" in nodes
    assert nodes["hami_scheduler_node_memory_bytes"] == {("a",): 10_000 * MIB}
    assert not any(name.startswith("hami_scheduler_card_") for name in nodes)
    assert all(name.startswith("hami_scheduler_card_") for name in cards)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/cards"])
def test_other_requests_are_answered_while_metrics_are_written(path: str) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert goes_on.wait(30)
        return ""

    with (
        listening(slow, lambda: slow().encode()) as url,
        concurrent.futures.ThreadPoolExecutor(1) as scraper,
    ):
        scraped = scraper.submit(get, f"{url}{path}")
        try:
            assert begun.wait(30)
            assert get(f"{url}/healthz") == "alive\n"
        finally:
            goes_on.set()
        assert scraped.result(30) == ""


def test_namespaces_have_what_their_pods_have_and_the_limits_of_their_quotas() -> None:
    allocator = Allocator()
    allocator.set_node(wire.encode(wire.Node("n", (card("n", 0), card("n", 1)))))
    allocator.set_quota(wire.encode(wire.Quota("ml", "q", gpu=5, cores=250)))
    allocator.set_quota(wire.encode(wire.Quota("idle", "r", memory_mib=7)))
    allocator.reserve(wire.encode(request("p", 2, 3000, 40)), "n", 0)
    exposed = told(meter(allocator).exposition())
    assert exposed["hami_scheduler_namespace_allocated"] == {
        ("idle", "cards"): 0,
        ("idle", "memory_bytes"): 0,
        ("idle", "cores"): 0,
        ("ml", "cards"): 2,
        ("ml", "memory_bytes"): 6000 * MIB,
        ("ml", "cores"): 0.8,
    }
    assert exposed["hami_scheduler_quota_limit"] == {
        ("idle", "r", "memory_bytes"): 7 * MIB,
        ("ml", "q", "cards"): 5,
        ("ml", "q", "cores"): 2.5,
    }


def test_hamis_names_have_hamis_labels_and_units() -> None:
    """https://github.com/Project-HAMi/HAMi, cmd/scheduler/metrics.go."""
    allocator = Allocator()
    allocator.set_node(wire.encode(wire.Node("n", (card("n", 0), card("n", 1)))))
    allocator.set_quota(wire.encode(wire.Quota("ml", "q", gpu=5, memory_mib=8000)))
    allocator.set_quota(wire.encode(wire.Quota("ml", "less", memory_mib=7000)))
    allocator.reserve(wire.encode(request("p", 1, 2500, 40)), "n", 0)
    text = meter(allocator).hami().decode()
    exposed = told(text)
    (uuid,) = {key[-1] for key in exposed["hami_vgpu_memory_allocated_bytes"]}
    other = f"GPU-n-{1 - int(uuid[-1])}"
    at = ("vGPU", "n", uuid, uuid[-1])
    assert exposed["hami_gpu_memory_limit_bytes"][at] == 10_000 * MIB
    assert exposed["hami_gpu_core_limit_ratio"][at] == 100
    assert exposed["hami_gpu_memory_allocated_bytes"] == {
        at: 2500 * MIB,
        ("vGPU", "n", other, other[-1]): 0,
    }
    assert exposed["hami_gpu_core_allocated_ratio"][at] == 40
    assert exposed["hami_gpu_shared_count"][at] == 1
    assert exposed["hami_node_gpu_memory_allocated_ratio"][at] == 0.25
    of_pod = ("vGPU", "n", "ml", "p", "0", uuid)
    assert exposed["hami_vgpu_memory_allocated_bytes"] == {of_pod: 2500 * MIB}
    assert exposed["hami_vgpu_core_allocated_ratio"] == {of_pod: 40}
    # In the units of the resources; of two quotas the lower one.
    gpu, memory = (("ml", f"nvidia.com/{name}", "vGPU") for name in ("gpu", "gpumem"))
    assert exposed["hami_resource_quota_limit"] == {gpu: 5, memory: 7000}
    assert exposed["hami_resource_quota_used"] == {("5", *gpu): 1, ("7000", *memory): 2500}
