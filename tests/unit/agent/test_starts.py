"""How long pods take from their creation to the start of their first program."""

from typing import Any

from hami_py.agent.pods import NodePod
from hami_py.agent.starts import StartTimes
from hami_py.model.pods.decoding import Decoder

decode = Decoder(NodePod, "pod")


def pod(uid: str, started: str | None = None, *, state: str = "running", **more: Any) -> NodePod:
    metadata = {"name": uid, "uid": uid, "annotations": {"hami.io/assignment": "{}"}}
    metadata["creationTimestamp"] = "2026-01-02T03:04:05Z"
    found = {} if started is None else {state: {"startedAt": started}}
    statuses = [{"name": "main", "state": found}, *more.pop("others", ())]
    return decode.convert(
        {"metadata": {**metadata, **more}, "status": {"containerStatuses": statuses}}
    )


def test_a_pod_counts_once_when_its_first_program_starts() -> None:
    times = StartTimes()
    times.look([])
    times.look([pod("a")])
    assert times.figures().count == 0
    later = {"name": "second", "state": {"running": {"startedAt": "2026-01-02T03:09:00Z"}}}
    for _ in range(3):
        times.look([pod("a", "2026-01-02T03:04:08Z", others=[later])])
    seen = times.figures()
    assert (seen.count, seen.total_s) == (1, 3.0)
    assert (seen.counts[2], seen.counts[4], seen.counts[8]) == (0, 1, 1)


def test_a_pod_that_has_ended_already_counts() -> None:
    times = StartTimes()
    times.look([])
    times.look([pod("a", "2026-01-02T03:04:06Z", state="terminated")])
    assert times.figures().total_s == 1.0


def test_pods_that_an_earlier_agent_has_counted_are_left_out() -> None:
    times = StartTimes()
    times.look([pod("old", "2026-01-02T03:04:06Z")])
    times.look([pod("old", "2026-01-02T03:04:06Z"), pod("new", "2026-01-02T03:04:07Z")])
    assert (times.figures().count, times.figures().total_s) == (1, 2.0)


def test_pods_without_cards_and_unreadable_times_do_not_count() -> None:
    times = StartTimes()
    times.look([])
    times.look([pod("a", "2026-01-02T03:04:06Z", annotations={}), pod("b", "yesterday")])
    assert times.figures().count == 0
