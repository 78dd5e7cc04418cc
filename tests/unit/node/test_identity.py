"""Whose devices they are, by the kubelet's record alone."""

import pytest

from hami_py.node.devices import DeviceRecord, card_of, cards_of, device_ids, owners


def record(pod: str, container: str, *ids: str) -> DeviceRecord:
    return DeviceRecord(pod, container, frozenset(ids), f"{pod}-{container}", "/lib")


def found(records: list[DeviceRecord], ids: list[str], ended: str = "") -> list[tuple[str, str]]:
    return [
        (each.pod_uid, each.container) for each in owners(records, ids, lambda uid: uid in ended)
    ]


PLAIN = [record("p", "main", "A::0"), record("q", "main", "A::1", "B::0")]


@pytest.mark.parametrize("ids", [["A::1", "B::0"], ["B::0", "A::1"]])
def test_the_order_of_the_ids_does_not_matter(ids: list[str]) -> None:
    assert found(PLAIN, ids) == [("q", "main")]


@pytest.mark.parametrize(
    "ids", [["A::1"], ["A::0", "B::0"], ["A::1", "B::0", "A::2"], ["C::0"], []]
)
def test_other_ids_belong_to_nobody(ids: list[str]) -> None:
    """A part of a container's devices is no container's."""
    assert found(PLAIN, ids) == []


def test_an_init_container_and_the_app_that_inherits_its_device() -> None:
    records = [record("p", "main", "A::0"), record("p", "init", "A::0")]
    assert found(records, ["A::0"]) == [("p", "init"), ("p", "main")]


def test_an_init_container_with_more_devices_than_the_apps() -> None:
    """The kubelet gave two devices to the init container, and then one of them to each app."""
    records = [
        record("p", "init", "A::0", "B::0"),
        record("p", "one", "B::0"),
        record("p", "two", "A::0"),
    ]
    assert found(records, ["A::0", "B::0"]) == [("p", "init")]
    assert found(records, ["A::0"]) == [("p", "two")]


def test_a_stale_record_of_a_pod_that_has_ended() -> None:
    """The kubelet removes it when it looks again, and may allocate its devices before."""
    records = [record("old", "main", "A::0"), record("new", "main", "A::0")]
    assert found(records, ["A::0"], ended="old") == [("new", "main")]
    assert found(records[:1], ["A::0"], ended="old") == []


def test_two_pods_with_the_same_devices_are_both_prepared() -> None:
    """Kubernetes 137534: which of them starts is not known, so neither starts unprepared."""
    records = [record("q", "main", "A::0"), record("p", "main", "A::0")]
    assert found(records, ["A::0"]) == [("p", "main"), ("q", "main")]


def test_device_ids_name_their_card() -> None:
    card = "GPU-6f1c2f0d-2f3a-4b1b-8f52-3c2ad3f9c1a7"
    ids = device_ids(card, 3)
    assert ids == [f"{card}::0", f"{card}::1", f"{card}::2"]
    assert {card_of(each) for each in ids} == {card}
    assert cards_of(["B::7", "A::1", "B::0"]) == ["A", "B", "B"]
