"""The fake API server answers as the real one was recorded to."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cluster import recordings
from hami_py.kube import keeps_labels_of_bindings
from hami_py.kube.errors import Unavailable
from histories.fake_api import FakeApi
from histories.faults import Client, Clock, Fate
from histories.status_errors import Object

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"

Answer = tuple[int, Object]


def pod(name: str = "pod-1", **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "main"}]}}


def binding(name: str = "pod-1", node: str = "a", **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "target": {"name": node}}


def ask(api: FakeApi, method: str, path: str, body: Object | None = None, **query: str) -> Answer:
    code, answer = api.request(method, path, query, body)
    return code, msgspec.json.decode(answer)


def made(api: FakeApi, path: str, body: Object) -> Object:
    code, answer = ask(api, "POST", path, body)
    assert code == 201, answer
    return answer


def already_bound(api: FakeApi) -> Answer:
    made(api, PODS, pod())
    made(api, f"{PODS}/pod-1/binding", binding())
    return ask(api, "POST", f"{PODS}/pod-1/binding", binding())


def being_deleted(api: FakeApi) -> Answer:
    made(api, PODS, pod(finalizers=["hami-py.test/hold"]))
    ask(api, "DELETE", f"{PODS}/pod-1")
    return ask(api, "POST", f"{PODS}/pod-1/binding", binding())


def gone(api: FakeApi) -> Answer:
    made(api, PODS, pod())
    ask(api, "DELETE", f"{PODS}/pod-1")
    return ask(api, "POST", f"{PODS}/pod-1/binding", binding())


def another(api: FakeApi) -> Answer:
    made(api, PODS, pod())
    uid = "00000000-0000-0000-0000-000000000000"
    return ask(api, "POST", f"{PODS}/pod-1/binding", binding(uid=uid))


def old_page(api: FakeApi) -> Answer:
    for name in "abc":
        made(api, NODES, {"metadata": {"name": name}})
    _, page = ask(api, "GET", NODES, limit="1")
    token = page["metadata"]["continue"]
    assert ask(api, "GET", NODES, limit="1", **{"continue": token})[0] == 200
    api.forget()
    return ask(api, "GET", NODES, limit="1", **{"continue": token})


def stale(api: FakeApi) -> Answer:
    old = made(api, NODES, {"metadata": {"name": "stale"}})
    ask(api, "PATCH", f"{NODES}/stale", {"metadata": {"labels": {"new": "1"}}})
    return ask(api, "PUT", f"{NODES}/stale", old)


@pytest.mark.parametrize(
    ("name", "situation"),
    [
        ("binding-already-bound-409", already_bound),
        ("binding-deleted-409", being_deleted),
        ("binding-gone-404", gone),
        ("binding-wrong-uid-409", another),
        ("list-continue-410", old_page),
        ("update-stale-409", stale),
    ],
)
def test_an_error_is_the_recorded_one(name: str, situation: Callable[[FakeApi], Answer]) -> None:
    recorded = recordings.read(name)
    code, answer = situation(FakeApi())
    assert code == recorded["code"]
    for field in ("code", "kind", "reason", "status"):
        assert answer[field] == recorded[field]
    assert answer.get("details", {}).get("kind") == recorded.get("details", {}).get("kind")
    assert recordings.shape(answer) == recordings.shape(recorded)
    assert plain(answer["message"]) == plain(recorded["message"])


def test_an_expired_watch_gets_the_recorded_event() -> None:
    api = FakeApi()
    made(api, PODS, pod())
    api.forget()
    client = Client(api, Clock())
    (line,) = client.stream(PODS, {"resourceVersion": "100"}, silence_s=1).ready()
    event, recorded = msgspec.json.decode(line), recordings.read("watch-expired-410")
    assert event["type"] == recorded["type"]
    assert event["object"]["reason"] == recorded["object"]["reason"]
    assert event["object"]["code"] == recorded["object"]["code"]
    assert recordings.shape(event) == recordings.shape(recorded)


def test_a_bookmark_is_an_object_with_a_version_alone() -> None:
    """Of the recorded one we read the version; the rest is what Go writes of an empty Node."""
    api = FakeApi()
    bookmark, recorded = (
        msgspec.json.decode(api.bookmark("nodes")),
        recordings.read("watch-bookmark"),
    )
    assert bookmark["type"] == recorded["type"]
    assert recordings.shape(bookmark) <= recordings.shape(recorded)
    assert bookmark["object"]["kind"] == recorded["object"]["kind"]
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(api.version)


def test_a_binding_is_answered_as_recorded() -> None:
    api = FakeApi()
    made(api, PODS, pod())
    assert made(api, f"{PODS}/pod-1/binding", binding()) == recordings.read("binding-done-201")


def test_a_binding_is_one_event_and_its_annotations_and_labels_are_merged() -> None:
    api = FakeApi()
    had, more = {"kept": "1", "forged": "x"}, {"forged": "y", "new": "2"}
    made(api, PODS, pod(annotations=had, labels={**had, "own": "3"}))
    before = api.version
    made(api, f"{PODS}/pod-1/binding", binding(annotations=more, labels=more))
    (event,) = api.since(before)
    bound = msgspec.json.decode(event.line)
    metadata = bound["object"]["metadata"]
    assert bound["type"] == "MODIFIED"
    assert bound["object"]["spec"]["nodeName"] == "a"
    assert metadata["annotations"] == {"kept": "1", "forged": "y", "new": "2"}
    assert metadata["labels"] == {"kept": "1", "forged": "y", "new": "2", "own": "3"}


def test_a_watch_with_a_selector_adds_and_deletes_as_objects_match() -> None:
    api = FakeApi()
    client = Client(api, Clock())
    made(api, NODES, {"metadata": {"name": "n"}})
    query = {"resourceVersion": str(api.version)}
    every = client.stream(NODES, query, silence_s=1)
    ours = client.stream(NODES, {**query, "labelSelector": "of=x"}, silence_s=1)
    written = [
        ask(api, "PATCH", f"{NODES}/n", {"metadata": {"labels": labels}})[1]["metadata"]
        for labels in ({"of": "x"}, {"more": "1"}, {"of": None}, {"more": "2"})
    ]
    events = [msgspec.json.decode(line) for line in ours.ready()]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0]["object"]["metadata"]["labels"] == {"of": "x"}
    # As it was last, with the version of the change.
    last = events[-1]["object"]["metadata"]
    assert last["labels"] == {"of": "x", "more": "1"}
    assert last["resourceVersion"] == written[2]["resourceVersion"]
    assert len(every.ready()) == 4
    ask(api, "PATCH", f"{NODES}/n", {"metadata": {"labels": {"of": "x"}}})
    ask(api, "DELETE", f"{NODES}/n")
    events = [msgspec.json.decode(line) for line in ours.ready()]
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]


def test_the_fake_server_keeps_labels_of_bindings() -> None:
    api: Any = Client(FakeApi(), Clock())
    assert keeps_labels_of_bindings(api, 1.0)


def test_a_stale_patch_conflicts_and_one_without_a_version_does_not() -> None:
    api = FakeApi()
    made(api, NODES, {"metadata": {"name": "n"}})
    assert ask(api, "PATCH", f"{NODES}/n", {"metadata": {"labels": {"a": "1"}}})[0] == 200
    patch = {"metadata": {"resourceVersion": "1", "labels": {"a": "2"}}}
    assert ask(api, "PATCH", f"{NODES}/n", patch)[0] == 409


def test_a_bound_pod_is_deleted_after_its_grace_period_and_others_at_once() -> None:
    api = FakeApi()
    for name in ("waiting", "bound"):
        made(api, PODS, pod(name))
        api.objects["pods"]["default", name]["spec"]["terminationGracePeriodSeconds"] = 30
    made(api, f"{PODS}/bound/binding", binding("bound"))
    for name in ("waiting", "bound"):
        assert ask(api, "DELETE", f"{PODS}/{name}")[0] == 200
    assert [name for _, name in api.objects["pods"]] == ["bound"]
    assert api.objects["pods"]["default", "bound"]["metadata"]["deletionTimestamp"]
    ask(api, "DELETE", f"{PODS}/bound", gracePeriodSeconds="0")
    assert not api.objects["pods"]


def test_lists_are_of_one_version_and_by_label_and_node() -> None:
    api = FakeApi()
    for name, labels in (("a", {"l": "1"}), ("b", {"l": "2"}), ("c", {"l": "1"})):
        made(api, PODS, pod(name, labels=labels))
    made(api, f"{PODS}/c/binding", binding("c", "n"))

    def names(page: Object) -> list[str]:
        return [item["metadata"]["name"] for item in page["items"]]

    _, first = ask(api, "GET", "/api/v1/pods", limit="1", labelSelector="l=1")
    made(api, PODS, pod("d", labels={"l": "1"}))
    token = first["metadata"]["continue"]
    _, second = ask(api, "GET", "/api/v1/pods", limit="1", **{"continue": token})
    assert names(first) + names(second) == ["a", "c"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert names(ask(api, "GET", "/api/v1/pods", fieldSelector="spec.nodeName=n")[1]) == ["c"]
    not_bound = names(ask(api, "GET", "/api/v1/pods", fieldSelector="spec.nodeName!=n")[1])
    assert "c" not in not_bound and len(not_bound) > 1


def test_a_request_that_times_out_may_have_succeeded() -> None:
    for fate, done in ((Fate.LOST, False), (Fate.UNANSWERED, True), (Fate.BUSY, False)):
        api = FakeApi()
        made(api, PODS, pod())
        client = Client(api, Clock(), fate=_always(fate))
        with pytest.raises(Unavailable):
            client.post(f"{PODS}/pod-1/binding", binding(), deadline_s=4)
        assert ("nodeName" in api.objects["pods"]["default", "pod-1"]["spec"]) == done


def _always(fate: Fate) -> Callable[[str], Fate]:
    return lambda _: fate


def plain(message: str) -> list[str]:
    """Its words, without those that name an object or a number."""
    return [word for word in message.split() if word.isalpha()]
