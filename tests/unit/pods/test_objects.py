"""Kubernetes' objects: the fields that we read, and the errors for a wrong type."""

import json
from typing import Any

import msgspec
import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import objects
from unit.pods import build

# JSON, the path that is to blame, the value, a part of the fix
WRONG: list[tuple[Any, str, str, str]] = [
    ({"metadata": 1}, "metadata", "int", "object"),
    ({"metadata": {"name": 3}}, "metadata.name", "int", "str"),
    ({"metadata": {"labels": {"a": 1}}}, "metadata.labels[...]", "int", "str"),
    ({"metadata": {"annotations": [1]}}, "metadata.annotations", "array", "object"),
    ({"spec": {"containers": {}}}, "spec.containers", "object", "array"),
    ({"spec": {"containers": [1]}}, "spec.containers[0]", "int", "object"),
    ({"spec": {"containers": [{}]}}, "spec.containers[0].name", "", "required"),
    (
        {"spec": {"containers": [{"name": "a"}, {"name": None}]}},
        "spec.containers[1].name",
        "null",
        "str",
    ),
    (
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"x": True}}}]}},
        "spec.containers[0].resources.limits[...]",
        "bool",
        "str",
    ),
    (
        {"spec": {"initContainers": [{"name": "a", "env": [{"value": "b"}]}]}},
        "spec.initContainers[0].env[0].name",
        "",
        "required",
    ),
    (
        {"spec": {"containers": [{"name": "a", "securityContext": {"privileged": "yes"}}]}},
        "spec.containers[0].securityContext.privileged",
        "str",
        "bool",
    ),
    ({"spec": {"hostPID": 1}}, "spec.hostPID", "int", "bool"),
    ({"spec": {"priority": "high"}}, "spec.priority", "str", "int"),
    ({"spec": {"priority": 1.5}}, "spec.priority", "float", "int"),
    ({"spec": {"priority": 1 << 31}}, "spec.priority", "Expected `int` <= 2147483647", "format"),
    ({"status": {"conditions": [{"status": "True"}]}}, "status.conditions[0].type", "", "required"),
    ([], "pod", "array", "object"),
    ("pod", "pod", "str", "object"),
    (None, "pod", "null", "object"),
]


@pytest.mark.parametrize(("written", "field", "value", "fix"), WRONG)
def test_a_wrong_type_is_reported_with_its_path(
    written: Any, field: str, value: str, fix: str
) -> None:
    for decode in (
        lambda: pods.decode_pod(json.dumps(written)),
        lambda: pods.decode_pod.convert(written),
    ):
        with pytest.raises(InvalidValue) as caught:
            decode()
        build.says(caught.value, field, value, fix)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"nul",
        b'{"metadata":{"name":"\xff"}}',
        b'{"metadata":{"name":"\xff',
        b'{"spec":{"containers":[{"name":"\\ud800"}]}}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"spec":{"containers":[' * 50_000,
        b'{"metadata":{}} x',
        json.dumps({"metadata": {"name": "p"}}).encode("utf-16"),
    ],
)
def test_invalid_json_is_one_error(text: bytes) -> None:
    with pytest.raises(InvalidValue) as caught:
        pods.decode_pod(text)
    assert caught.value.field == "pod"
    assert "\n" not in str(caught.value)


def test_unknown_fields_and_null_are_treated_as_in_kubernetes() -> None:
    written = {
        "kind": "Pod",
        "metadata": {"name": "p", "labels": None, "annotations": None, "managedFields": [{}]},
        "spec": {
            "containers": [{"name": "c", "env": None, "resources": None, "volumeMounts": None}],
            "initContainers": None,
            "aFieldOfTomorrow": {"a": [1]},
        },
        "status": None,
    }
    pod = pods.decode_pod(json.dumps(written))
    assert (pod.labels, pod.annotations, pod.uid) == ({}, {}, "")
    assert not pod.is_over
    assert not pod.is_started
    assert pods.read_request(pod) is None
    assert pods.decode_pod(b"{}") == pods.Pod()


@pytest.mark.parametrize(
    ("phase", "over"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
    ],
)
def test_a_pod_is_finished_when_all_its_containers_are(phase: str, over: bool) -> None:
    assert pods.decode_pod(json.dumps({"status": {"phase": phase}})).is_over is over


@pytest.mark.parametrize(
    ("policy", "status", "started"),
    [
        ("Never", "True", True),
        ("Never", "False", False),
        ("Never", "Unknown", False),
        ("OnFailure", "True", False),
        ("Always", "True", False),
        (None, "True", False),
    ],
)
def test_a_pod_is_started_when_its_init_containers_are_completed(
    policy: str | None, status: str, started: bool
) -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": status}]
    written = {
        "spec": {"restartPolicy": policy},
        "status": {"phase": "Pending", "conditions": conditions},
    }
    assert pods.decode_pod(json.dumps(written)).is_started is started


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_containers_that_may_restart_all_others_are_never_completed(kind: str) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    container = {"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    written = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "m"}], kind: [container]},
        "status": {"conditions": [{"type": "Initialized", "status": "True"}]},
    }
    assert not pods.decode_pod(json.dumps(written)).is_started


def test_a_pod_in_a_larger_object_is_reported_with_the_whole_path() -> None:
    class Review(msgspec.Struct):
        object: objects.Pod

    decode = pods.Decoder(Review, "review", "request.")
    with pytest.raises(InvalidValue) as caught:
        decode(b'{"object":{"spec":{"containers":[{"name":1}]}}}')
    assert caught.value.field == "request.object.spec.containers[0].name"
    with pytest.raises(InvalidValue) as caught:
        decode(b"{}")
    assert caught.value.field == "request.object"


def test_many_pods_can_be_read() -> None:
    """No time is measured here; it is one decoder and no step that grows with their number."""
    text = json.dumps(build.manifest(build.container(limits={"gpumem": "3k"})))
    read = [pods.decode_pod(text) for _ in range(10_000)]
    assert len({pods.wire.encode(pods.read_request(pod)) for pod in read}) == 1
