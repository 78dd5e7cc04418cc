"""Processes on the cards that no allocation explains."""

from msgspec.structs import replace

from hami_py.model.pods.wire import CardAllocation
from hami_py.node.drift import Finding, Observed, excess, findings
from hami_py.node.ledger import Entry

MIB = 1 << 20


def entry(pod: str, card: str, memory_mib: int = 1000, container: str = "main") -> Entry:
    cards = (CardAllocation(card, memory_mib, 30),)
    name = (f"slot-{pod}-{container}", pod, "default", pod, container)
    return Entry(*name, ("x",), cards, cards, "l", "full", "normal")


def process(
    pod: str | None, card: str = "A", *, memory: int = 0, member: tuple[int, int] | None = (1, 7)
) -> Observed:
    return Observed(card, 4711, memory * MIB, pod, member, "program", {100})


#: The limits pages of all slots here are one file, which the processes have mapped.
PAGES = {"slot-p-main": 100, "slot-p-other": 100}


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]


def test_a_process_in_its_containers_account_is_explained() -> None:
    entries = [entry("p", "A"), entry("p", "A", container="other")]
    members = {"slot-p-main": set[tuple[int, int]](), "slot-p-other": {(1, 7)}}
    assert findings([process("p")], entries, members, PAGES) == []


def test_a_process_that_is_in_no_account_of_its_pod_bypasses_the_limits() -> None:
    # The same PID in another namespace is another process.
    members = {"slot-p-main": {(1, 8), (2, 7)}}
    assert kinds(findings([process("p")], [entry("p", "A")], members, PAGES)) == ["bypass"]


def test_a_process_with_another_limits_page_has_covered_its_own() -> None:
    members = {"slot-p-main": {(1, 7)}}
    for page, expected in ((100, []), (101, ["covered"]), (0, [])):
        found = findings([process("p")], [entry("p", "A")], members, {"slot-p-main": page})
        assert kinds(found) == expected, page


def test_a_process_whose_mappings_are_unknown_is_not_judged() -> None:
    ends = Observed("A", 4711, 0, "p", (1, 7), "program", None)
    assert findings([ends], [entry("p", "A")], {"slot-p-main": {(1, 7)}}, PAGES) == []


def test_a_process_on_a_card_that_its_pod_does_not_have() -> None:
    members = {"slot-p-main": {(1, 7)}}
    assert kinds(findings([process("p", "B")], [entry("p", "A")], members, PAGES)) == [
        "unallocated"
    ]
    assert kinds(findings([process("q")], [entry("p", "A")], members, PAGES)) == ["unallocated"]


def test_a_process_outside_of_all_pods_is_foreign() -> None:
    assert kinds(findings([process(None)], [entry("p", "A")], {}, PAGES)) == ["foreign"]


def test_what_is_not_known_is_not_reported() -> None:
    entries = [entry("p", "A"), entry("p", "A", container="other")]
    # An account of the pod cannot be read: the process may be in it.
    assert findings([process("p")], entries, {"slot-p-main": set()}, PAGES) == []
    members: dict[str, set[tuple[int, int]]] = {"slot-p-main": set(), "slot-p-other": set()}
    assert findings([process("p", member=None)], entries, members, PAGES) == []


def test_only_what_limits_do_not_cover_counts_as_foreign_memory() -> None:
    entries = [entry("p", "A", 1000), entry("p", "A", 500, container="other"), entry("q", "B", 100)]
    observed = [
        process("p", memory=900),
        process("p", memory=700),
        process("q", "B", memory=50),
        process("q", "A", memory=30),
        process(None, "B", memory=20),
    ]
    # p has 1,600 MiB and 1,500 of them are covered.
    assert excess(observed, entries) == {
        ("p", "A"): 100 * MIB,
        ("q", "A"): 30 * MIB,
        (None, "B"): 20 * MIB,
    }


def test_containers_of_a_pod_that_share_a_claim_cover_its_amount_once() -> None:
    entries = [
        replace(entry("p", "A", 1000, container=name), claims=(("u", "gpu", "d"),))
        for name in ("one", "two")
    ]
    assert excess([process("p", memory=1600)], entries) == {("p", "A"): 600 * MIB}
