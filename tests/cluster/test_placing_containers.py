"""The cards of a pod's containers: one card or two, one after the other or concurrently."""

from cluster import objects
from cluster.extended import card, node
from cluster.objects import PODS
from cluster.placing import Placing, asks


def test_concurrent_containers_share_cards_as_far_as_they_fit(placing: Placing) -> None:
    """6000 + 6000 + 3000 MiB on two cards of 10,000: no two of 6000 on one."""
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    wanted = [
        objects.container("x", asks(6000)),
        objects.container("y", asks(6000, cores=40)),
        objects.container("z", asks(3000, cores=30)),
    ]
    grants = placing.place("one", containers=wanted)
    assert {name: (has.memory_mib, has.cores) for name, (has,) in grants.items()} == {
        "x": (6000, 0),
        "y": (6000, 40),
        "z": (3000, 30),
    }
    ((x,), (y,), (z,)) = (grants[name] for name in "xyz")
    assert {x.card, y.card} == {"GPU-a-0", "GPU-a-1"}
    assert placing.given()[0] == {z.card: 9000, ({x.card, y.card} - {z.card}).pop(): 6000}


def test_containers_that_fit_one_by_one_and_not_together(placing: Placing) -> None:
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    three = [objects.container(name, asks(6000)) for name in "xyz"]
    assert "cards fit each container, but not all containers together" in placing.refuse(
        "one", containers=three
    )
    two = placing.place("two", containers=three[:2])
    assert two["x"][0].card != two["y"][0].card


def test_an_app_has_the_card_of_the_init_container_before_it(placing: Placing) -> None:
    """The kubelet gives it that one, so nothing else is planned; and until the init container is
    done for good the pod weighs what that one asks for. A percentage is the extender's alone to
    count."""
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    placing.fill("GPU-a-1", asks(percent=90))
    grants = placing.place(
        "one",
        containers=[objects.container("serve", asks(3000))],
        initContainers=[objects.container("compile", asks(8000))],
        restartPolicy="Never",
    )
    assert [(has.card, has.memory_mib) for (has,) in grants.values()] == [
        ("GPU-a-0", 8000),
        ("GPU-a-0", 3000),
    ]
    assert "too little memory" in placing.refuse("two", asks(2001))
    done = {"type": "Initialized", "status": "True"}
    placing.api.patch(f"{PODS}/one/status", {"status": {"conditions": [done]}})
    assert placing.cards("two") == ["GPU-a-0"]


def test_cards_of_an_init_container_are_reused_by_the_apps(placing: Placing) -> None:
    """Two of its cards for two apps; and of an app that wants more, the first is its card."""
    placing.add(node("a", [card("a", index) for index in range(4)]))
    both = placing.place(
        "both",
        containers=[objects.container("x", asks(2000)), objects.container("y", asks(3000))],
        initContainers=[objects.container("init", asks(4000, cards=2))],
    )
    had = [has.card for has in both["init"]]
    assert len(set(had)) == 2
    assert sorted([both["x"][0].card, both["y"][0].card]) == sorted(had)
    more = placing.place(
        "more",
        containers=[objects.container("x", asks(3000, cards=3))],
        initContainers=[objects.container("init", asks(4000))],
    )
    assert len({has.card for has in more["x"]}) == 3
    assert more["init"][0].card in {has.card for has in more["x"]}


def test_a_sidecar_keeps_its_card_beside_the_app(placing: Placing) -> None:
    """4000 beside 6000 after 6000 is a whole card; 6000 beside 6000 are two."""
    placing.add(node("a", [card("a", 0), card("a", 1)]))
    placing.fill("GPU-a-1", asks())

    def sidecar(memory: int) -> dict[str, object]:
        return objects.container("proxy", asks(memory), restartPolicy="Always")

    app = objects.container("serve", asks(6000))
    before = objects.container("compile", asks(6000))
    why = placing.refuse("two", containers=[app], initContainers=[sidecar(6000)])
    assert "cards fit each container, but not all containers together" in why
    one = placing.place("one", containers=[app], initContainers=[sidecar(4000), before])
    assert {name: (has.card, has.memory_mib) for name, (has,) in one.items()} == {
        "proxy": ("GPU-a-0", 4000),
        "compile": ("GPU-a-0", 6000),
        "serve": ("GPU-a-0", 6000),
    }
    why = placing.refuse("three", asks(percent=1))
    assert "too little memory" in why


def test_two_cards_of_a_container_are_different(placing: Placing) -> None:
    placing.add(node("a", [card("a", index) for index in range(3)]))
    (first,) = placing.place("one", asks(7000, cards=2)).values()
    assert [has.memory_mib for has in first] == [7000, 7000]
    assert len({has.card for has in first}) == 2
    assert "too little memory" in placing.refuse("two", asks(3001, cards=2))
    (third,) = placing.place("three", asks(3000, cards=3)).values()
    assert {has.card for has in third} == {f"GPU-a-{index}" for index in range(3)}
    assert sorted(placing.given()[0].values()) == [3000, 10_000, 10_000]


def test_a_percentage_is_of_the_card_that_was_chosen(placing: Placing) -> None:
    """Of 10,001 and 24,000 MiB, rounded down; two halves fit, and the container can read which."""
    small, large = card("a", 0, memory_mib=10_001), card("a", 1, memory_mib=24_000)
    placing.add(node("a", [small, large]))
    (one,) = placing.place("one", asks(percent=50, cards=2)).values()
    assert {has.card: has.memory_mib for has in one} == {"GPU-a-0": 5000, "GPU-a-1": 12_000}
    annotations = placing.api.get(f"{PODS}/one")["metadata"]["annotations"]
    assert [annotations[f"hami.io/gpumem-{i}.main"] for i in range(2)] == [
        f"{has.memory_mib}m" for has in one
    ]
    placing.place("two", asks(percent=50, cards=2))
    assert placing.given()[0] == {"GPU-a-0": 10_000, "GPU-a-1": 24_000}
    assert "too little memory" in placing.refuse("three", asks(percent=1))
