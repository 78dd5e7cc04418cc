"""Reviews in, verdicts out: as the API server sends and reads them, JSON patches carried out."""

import base64
import copy
import json
import random
from typing import Any

import msgspec
import pytest

from hami_py.errors import InvalidValue
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.webhook.review import Reviewer, read_review
from unit.pods.build import Manifest, any_pod, container, manifest

UID = "7b9e1c2d-0000-4000-8000-000000000001"


def reviewer(**settings: Any) -> Reviewer:
    settings = {"schedulers": ("hami-scheduler",), **settings}
    return Reviewer(PodSettings(**settings), "nvidia")


def ask(judge: Reviewer, verb: str, pod: Manifest, **request: Any) -> Manifest:
    """The response to a review of this pod."""
    owner = request.pop("owner", "hami")
    asked = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "ml",
        "object": pod,
        **request,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    answer = getattr(judge, verb)(read_review(json.dumps(body).encode()), owner)
    response: Manifest = json.loads(msgspec.json.encode(answer))["response"]
    assert response["uid"] == UID
    return response


def patched(pod: Manifest, response: Manifest) -> Manifest:
    """The pod after the response's patch: RFC 6902, as far as the webhook uses it."""
    done = copy.deepcopy(pod)
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        *path, last = (
            part.replace("~1", "/").replace("~0", "~")
            for part in operation["path"].removeprefix("/").split("/")
        )
        target: Any = done
        for part in path:
            target = target[int(part) if isinstance(target, list) else part]
        if operation["op"] == "remove":
            del target[int(last) if isinstance(target, list) else last]
        elif isinstance(target, list):
            assert (operation["op"], last) == ("add", "-")
            target.append(operation["value"])
        else:
            assert operation["op"] == "add"
            target[last] = operation["value"]
    return done


def dressed(pod: Manifest, chosen: random.Random) -> Manifest:
    """With more of what a patch touches, or must not."""
    more: list[tuple[str, Any]] = [
        ("labels", {"hami.io/pod": "false"}),
        ("labels", {"app": "a", "hami.io/webhook": "ignore"}),
        ("schedulerName", "default-scheduler"),
        ("schedulerName", "hami-scheduler"),
        ("runtimeClassName", "mine"),
        ("hostPID", True),
        ("unknown", {"to": ["us"]}),
    ]
    for key, value in chosen.sample(more, 3):
        (pod["metadata"] if key == "labels" else pod["spec"])[key] = copy.deepcopy(value)
    for each in [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]:
        if chosen.random() < 0.2:
            each["env"] = [{"name": "A~/b", "value": "x"}, *each.get("env", []), *each["env"][:1]]
    return pod


def test_mutated_twice_is_mutated_once_and_valid() -> None:
    """2,500 random pods that pass: rare combinations of fields are the ones that break this."""
    chosen = random.Random(11)  # noqa: S311
    let_in = 0
    while let_in < 2500:
        judge = reviewer(
            core_policy=chosen.choice(["default", "force"]),
            default_memory_mib=chosen.choice([0, 0, 2000]),
        )
        pod = dressed(any_pod(chosen), chosen)
        first = ask(judge, "mutate", pod)
        if not first["allowed"]:
            continue
        let_in += 1
        once = patched(pod, first)
        again = ask(judge, "mutate", once)
        assert again["allowed"], (pod, again)
        assert "patch" not in again, (pod, again)
        assert ask(judge, "validate", once)["allowed"]


@pytest.mark.parametrize("label", ["1", "2", "99", "x"])
@pytest.mark.parametrize("name", ["gpu", "aliyun.com/gpu-core.percentage"])
def test_a_label_for_cards_beside_a_default_memory(name: str, label: str) -> None:
    """The memory that was written into such a pod made it one of which the label speaks."""
    judge = reviewer(profiles=(ALIYUN, HAMI), default_memory_mib=2000)
    labels = {"aliyun.com/gpu-count": label}
    pod = manifest(container(limits={name: 1}), labels=labels)
    first = ask(judge, "mutate", pod)
    if not first["allowed"]:
        assert "metadata.labels" in json.dumps(first) or "the label" in json.dumps(first)
        return
    assert label in "12"
    once = patched(pod, first)
    assert "patch" not in ask(judge, "mutate", once)
    assert ask(judge, "validate", once)["allowed"]


@pytest.mark.parametrize("written", [None, "any", "preload", "kernel", "mig"])
def test_a_pod_below_the_least_level_of_its_namespace_is_raised_with_a_warning(
    written: str | None,
) -> None:
    judge = Reviewer(PodSettings(isolations={"ml": "kernel"}))
    annotations = {} if written is None else {"annotations": {"hami.io/isolation": written}}
    pod = manifest(container(limits={"gpu": 1}), **annotations)
    answer = ask(judge, "mutate", pod)
    done = patched(pod, answer)
    if written in ("kernel", "mig"):
        assert done["metadata"]["annotations"] == {"hami.io/isolation": written}
        assert answer.get("warnings", []) == []
        return
    assert done["metadata"]["annotations"] == {"hami.io/isolation": "kernel"}
    (warning,) = answer["warnings"]
    assert warning == (
        f'metadata.annotations[hami.io/isolation]: "{written or ""}" is replaced: '
        "kernel is the least level in this namespace"
    )


def test_the_default_scheduler_is_the_first_of_the_settings() -> None:
    judge = Reviewer(PodSettings(schedulers=("one", "two")))
    for theirs, gets in (({}, "one"), ({"schedulerName": "two"}, "two")):
        pod = manifest(container(limits={"gpu": 1}), **theirs)
        assert patched(pod, ask(judge, "mutate", pod))["spec"]["schedulerName"] == gets
    # Where that is the default one nothing is left to patch.
    judge = Reviewer(PodSettings(schedulers=("default-scheduler",)))
    pod = manifest(container(limits={"gpu": 1}), schedulerName="default-scheduler")
    done = patched(pod, ask(judge, "mutate", pod))
    assert "patch" not in ask(judge, "mutate", done)


BAD = manifest(container(limits={"gpu": 17}))


@pytest.mark.parametrize("verb", ["mutate", "validate"])
def test_a_refusal_is_422_with_field_value_and_fix(verb: str) -> None:
    response = ask(reviewer(), verb, BAD)
    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == (
        'spec.containers[0].resources.limits[nvidia.com/gpu]: "17" is refused: '
        "it counts cards, from 0 to 16; write a number in between, like 1"
    )


@pytest.mark.parametrize("verb", ["mutate", "validate"])
@pytest.mark.parametrize("name", ["-a", "a b", "a/b", "ä", "x" * 64])
def test_an_invalid_gang_is_refused(verb: str, name: str) -> None:
    pod = manifest(container(limits={"gpu": 1}), annotations={"hami.io/gang": name})
    response = ask(reviewer(), verb, pod)
    assert not response["allowed"]
    message = response["status"]["message"]
    field = f"metadata.annotations[hami.io/gang]: {json.dumps(name, ensure_ascii=False)}"
    assert message.startswith(f"{field} is refused: write 1 to 63 letters and digits")


def test_a_pod_with_the_opt_out_label_gets_a_warning() -> None:
    pod = manifest(container(limits={"gpu": 1}), labels={"hami.io/webhook": "ignore"})
    response = ask(reviewer(), "mutate", pod)
    (warning,) = response["warnings"]
    assert warning.startswith("metadata.labels[hami.io/webhook]")
    assert patched(pod, response)["metadata"]["labels"]["hami.io/pod"] == "true"


def test_an_ephemeral_container_is_reviewed() -> None:
    debug = container("debug", securityContext={"privileged": True})
    pod = manifest(container(limits={"gpu": 1}), ephemeralContainers=[debug])
    later = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    response = ask(reviewer(), "validate", pod, **later)
    assert "spec.ephemeralContainers[0].securityContext" in response["status"]["message"]
    judge = reviewer()
    assert ask(judge, "mutate", pod, **later) == {"uid": UID, "allowed": True}
    assert ask(judge, "validate", pod, operation="UPDATE")["allowed"]
    assert ask(judge, "validate", pod, operation="DELETE")["allowed"]
    assert judge.counts() == {}


def test_a_pod_of_others_is_limited_and_keeps_its_scheduler() -> None:
    judge = reviewer()
    pod = manifest(
        container(resources={"claims": [{"name": "gpu"}]}), annotations={"hami.io/assignment": "{}"}
    )
    done = patched(pod, ask(judge, "mutate", pod, owner="others"))
    (limited,) = done["spec"]["containers"]
    assert limited["resources"] == {"claims": [{"name": "gpu"}], "limits": {"hami.io/limits": "1"}}
    assert done["metadata"] == {**pod["metadata"], "annotations": {}}
    assert done["spec"] == {**pod["spec"], "containers": [limited]}
    assert "patch" not in ask(judge, "mutate", done, owner="others")
    assert ask(judge, "validate", done, owner="others")["allowed"]
    # Another webhook has undone it.
    said = ask(judge, "validate", pod, owner="others")["status"]["message"]
    assert "spec.containers[0].resources.limits[hami.io/limits]" in said
    assert "metadata.annotations[hami.io/assignment]" in said
    assert "rename that webhook's configuration" in said


def test_an_ephemeral_container_is_judged_by_the_owner_of_its_namespace() -> None:
    debug = container("debug", securityContext={"privileged": True})
    claims = {"claims": [{"name": "gpu"}]}
    pod = manifest(container(resources=claims), ephemeralContainers=[debug])
    later = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    assert ask(reviewer(), "validate", pod, **later)["allowed"]
    assert not ask(reviewer(), "validate", pod, owner="others", **later)["allowed"]


def test_a_review_without_a_uid_is_invalid() -> None:
    with pytest.raises(InvalidValue, match="uid"):
        read_review(b'{"request": {"operation": "CREATE"}}')


def env(name: str, times: int) -> Manifest:
    return {"env": [{"name": name, "value": "9g"}] * times}


def annotated(count: int) -> Manifest:
    return {f"hami.io/gpumem.c{i}": "x" for i in range(count)}


def large(inside: Manifest, **fields: Any) -> Manifest:
    made = manifest(container(limits={"gpu": 1, "gpumem": 3000}), **fields)
    made["spec"]["containers"][0].update(inside)
    return made


@pytest.mark.parametrize(
    "pod",
    [
        large(env("NVIDIA_VISIBLE_DEVICES", 80_000)),
        large(env("NVIDIA_VISIBLE_DEVICES", 10_000)),
        large(env("CUDA_DEVICE_MEMORY_LIMIT", 50_000)),
        large(env("LD_PRELOAD", 40_000)),
        large(env("LD_PRELOAD", 10_000)),
        large({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"] * 100_000}}}),
        large({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"] * 10_000}}}),
        large({}, annotations=annotated(40_000)),
        large({}, annotations=annotated(10_000)),
        large(
            {"volumeMounts": [{"name": "v", "mountPath": f"/a{i}"} for i in range(640)]},
            volumes=[{"name": "v", "hostPath": {"path": "/" + 50_000 * "a/"}}],
        ),
        large({}, initContainers=[{"name": "i", **env("X", 1)}] * 30_000),
    ],
    ids=lambda pod: f"{len(json.dumps(pod))} bytes",
)
@pytest.mark.parametrize("verb", ["mutate", "validate"])
def test_a_large_review_has_a_small_answer(verb: str, pod: Manifest) -> None:
    response = ask(reviewer(), verb, pod)
    assert not response["allowed"]
    assert len(json.dumps(response)) < 10_000


def test_a_refusal_reports_that_the_check_stopped() -> None:
    for times in (31, 33):
        message = ask(reviewer(), "mutate", large(env("LD_AUDIT", times)))["status"]["message"]
        assert message.count("is refused") == min(times, 32)
        assert message.endswith("; there may be more") == (times > 32)
