"""When the API server calls a webhook, what it sends, where it reaches it; and what CEL can do."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from cluster import admission, objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import NODES, PODS
from cluster.recorder import Recorder
from cluster.recordings import Recordings
from hami_py.model.pods import HAMI

SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
MUTATING, VALIDATING = admission.CONFIGURATIONS

Webhook = Callable[..., Recorder]


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    return module_control_plane()


@pytest.fixture
def webhook(cluster: ControlPlane) -> Iterator[Webhook]:
    """`webhook({"/mutate": answer})` serves on loopback and is called for GPU pods."""
    serving = cluster.authority.issue(
        "webhook", hosts=["127.0.0.1", "hami-webhook.default.svc", "localhost"]
    )
    with contextlib.ExitStack() as undo:

        def start(
            handlers: Mapping[str, Any],
            *,
            client: Callable[[Recorder], Object] = lambda hook: {"url": f"{hook.url}/mutate"},
            address: str = "127.0.0.1",
            kind: str = MUTATING,
            **wanted: object,
        ) -> Recorder:
            hook = undo.enter_context(Recorder(handlers, serving, address=address))
            entry = admission.webhook(cluster.authority.certificate, client(hook), **wanted)
            body: Object = {"metadata": {"name": "hami-py"}, "webhooks": [entry]}
            cluster.api.create(kind, body)
            undo.callback(cluster.api.delete, f"{kind}/hami-py")
            # It is in force when a pod that it is to see has reached it.
            _in_force(cluster, hook)
            return hook

        yield start


def _in_force(cluster: ControlPlane, hook: Recorder) -> None:
    def seen() -> bool:
        with contextlib.suppress(ApiError):
            cluster.api.create(f"{PODS}?dryRun=All", _pod())
        return bool(hook.calls())

    waiting.until(seen, "the webhook is in force")


def _pod(limits: Mapping[str, object] | None = None, **spec: Any) -> Object:
    return objects.pod(limits=SHARE if limits is None else limits, schedulerName="nobody", **spec)


def test_a_webhook_by_url_on_loopback_gets_a_review_without_a_name(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    label: Object = {"op": "add", "path": "/metadata/labels", "value": {"hami-py.test": "seen"}}
    hook = webhook({"/mutate": lambda call: admission.patched(call, label)})
    before = len(hook.calls())
    made = cluster.api.create(PODS, _pod())
    assert made["metadata"]["labels"] == {"hami-py.test": "seen"}
    (call,) = hook.calls()[before:]
    request = call.body["request"]
    assert "name" not in request
    assert request["object"]["metadata"]["generateName"] == "pod-"
    assert "name" not in request["object"]["metadata"]
    assert "uid" not in request["object"]["metadata"]
    recordings.keep("admission-review-create", call.body)


def test_a_pod_without_gpu_resources_never_reaches_the_webhook(
    cluster: ControlPlane, webhook: Webhook
) -> None:
    hook = webhook({"/mutate": admission.allow})
    before = len(hook.calls())
    cluster.api.create(PODS, _pod({"cpu": 1}))
    cluster.api.create(PODS, _pod({"example.com/gpu": 1}))
    # NVIDIA's time slicing, and names that deploy/ has not turned on.
    cluster.api.create(PODS, _pod({"nvidia.com/gpu.shared": 1}))
    cluster.api.create(PODS, _pod({"aliyun.com/gpu-mem": 1}))
    plain = objects.container()
    del plain["resources"]
    cluster.api.create(PODS, objects.pod(containers=[plain], schedulerName="nobody"))
    assert len(hook.calls()) == before
    init = [objects.container("init", {"nvidia.com/gpumem": 1000})]
    cluster.api.create(PODS, _pod({"cpu": 1}, initContainers=init))
    for name in HAMI.resources:
        cluster.api.create(PODS, _pod({name: 1}))
    assert len(hook.calls()) == before + 1 + len(HAMI.resources)


def test_match_conditions_are_checked_when_they_are_written(cluster: ControlPlane) -> None:
    entry = admission.webhook(
        cluster.authority.certificate,
        {"url": "https://127.0.0.1:1/"},
        matchConditions=[{"name": "bad", "expression": "object.spec.nothing("}],
    )
    body: Object = {"metadata": {"name": "bad"}, "webhooks": [entry]}
    with pytest.raises(ApiError) as refused:
        cluster.api.create(MUTATING, body)
    assert refused.value.code == 422


def test_refusals_and_warnings_of_a_webhook_reach_the_user(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    webhook({"/mutate": lambda call: admission.deny(call, "spec.x: 3; use 4")})
    with pytest.raises(ApiError) as refused:
        cluster.api.create(PODS, _pod())
    assert refused.value.code == 422
    assert (
        refused.value.status["message"]
        == 'admission webhook "pods.hami-py.test" denied the request: spec.x: 3; use 4'
    )
    recordings.keep("admission-denied-422", refused.value.status)


def test_a_webhook_that_is_down_fails_gpu_pods_alone(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    hook = webhook({"/mutate": admission.allow})
    hook.__exit__()
    with pytest.raises(ApiError) as refused:
        cluster.api.create(PODS, _pod())
    assert refused.value.code == 500
    recordings.keep("admission-down-500", refused.value.status)
    cluster.api.create(PODS, _pod({"cpu": 1}))


def test_a_validating_webhook_sees_the_mutated_pod(cluster: ControlPlane, webhook: Webhook) -> None:
    label: Object = {"op": "add", "path": "/metadata/labels", "value": {"hami-py.test": "seen"}}
    webhook({"/mutate": lambda call: admission.patched(call, label)})
    validating = webhook({"/mutate": admission.allow}, kind=VALIDATING)
    cluster.api.create(PODS, _pod())
    seen = validating.calls()[-1].body["request"]["object"]
    assert seen["metadata"]["labels"] == {"hami-py.test": "seen"}


def test_a_binding_does_not_pass_a_webhook_on_pods(cluster: ControlPlane, webhook: Webhook) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": ["pods"],
    }
    hook = webhook({"/mutate": admission.allow}, rules=[rule], matchConditions=[])
    cluster.api.create(NODES, objects.node("a"))
    pod = cluster.api.create(PODS, _pod())
    before = len(hook.calls())
    path = f"{PODS}/{pod['metadata']['name']}"
    annotations = {"hami-py.test/assigned": "card-0"}
    cluster.api.create(f"{path}/binding", objects.binding(pod, "a", annotations=annotations))
    assert len(hook.calls()) == before
    cluster.api.patch(path, {"metadata": {"annotations": {"hami-py.test/assigned": "forged"}}})
    assert hook.calls()[-1].body["request"]["operation"] == "UPDATE"


def test_a_binding_can_be_seen_by_a_webhook_on_its_subresource(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding", "pods"],
    }
    hook = webhook({"/mutate": admission.allow}, rules=[rule], matchConditions=[])
    pod = cluster.api.create(PODS, _pod())
    path = f"{PODS}/{pod['metadata']['name']}/binding"
    cluster.api.create(path, objects.binding(pod, "a"))
    review = hook.calls()[-1].body
    assert review["request"]["subResource"] == "binding"
    assert review["request"]["object"]["kind"] == "Binding"
    recordings.keep("admission-review-binding", review)


def service(cluster: ControlPlane, hook: Recorder, address: str) -> Object:
    """A Service without a selector and its EndpointSlice, made by hand."""
    ports = [{"name": "https", "port": 443, "targetPort": hook.port}]
    metadata = {"name": "hami-webhook"}
    made = {"metadata": metadata, "spec": {"ports": ports}}
    cluster.api.create("/api/v1/namespaces/default/services", made)
    cluster.api.create(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        {
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "hami-webhook"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": hook.port}],
        },
    )
    reference = {"name": "hami-webhook", "namespace": "default", "path": "/mutate"}
    return {"service": reference}


def drop_service(cluster: ControlPlane) -> None:
    for path in (
        "/api/v1/namespaces/default/services/hami-webhook",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/hami-webhook",
    ):
        with contextlib.suppress(ApiError):
            cluster.api.delete(path)


def test_a_webhook_behind_a_service_is_called_at_its_endpoint(
    cluster: ControlPlane, webhook: Webhook, address: str
) -> None:
    """With --enable-aggregator-routing; there is no proxy here that would know the Service."""
    try:
        hook = webhook(
            {"/mutate": admission.allow},
            client=lambda hook: service(cluster, hook, address),
            address=address,
        )
        before = len(hook.calls())
        cluster.api.create(PODS, _pod())
        assert len(hook.calls()) == before + 1
    finally:
        drop_service(cluster)


def test_an_endpoint_on_loopback_is_refused(cluster: ControlPlane) -> None:
    with Recorder({}) as hook, pytest.raises(ApiError, match="loopback") as refused:
        try:
            service(cluster, hook, "127.0.0.1")
        finally:
            drop_service(cluster)
    assert refused.value.code == 422


def test_a_policy_lets_one_user_write_the_assignment(cluster: ControlPlane) -> None:
    cluster.api.create(
        admission.POLICIES,
        {
            "metadata": {"name": "assignment"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": ["pods"],
                        }
                    ]
                },
                "variables": [
                    {"name": "key", "expression": "'hami-py.test/assigned'"},
                    {
                        "name": "now",
                        "expression": "object.metadata.?annotations[?variables.key].orValue('')",
                    },
                    {
                        "name": "before",
                        "expression": "oldObject == null ? '' :"
                        " oldObject.metadata.?annotations[?variables.key].orValue('')",
                    },
                ],
                "validations": [
                    {
                        "expression": "variables.now == variables.before"
                        " || request.userInfo.username =="
                        " 'system:serviceaccount:hami-system:hami-scheduler'",
                        "messageExpression": "'the annotation ' + variables.key + ' is ours'",
                    }
                ],
            },
        },
    )
    binding: Object = {
        "metadata": {"name": "assignment"},
        "spec": {"policyName": "assignment", "validationActions": ["Deny"]},
    }
    cluster.api.create(admission.POLICY_BINDINGS, binding)
    forged = {"annotations": {"hami-py.test/assigned": "forged"}}
    wanted = objects.pod(metadata=forged, schedulerName="nobody")

    def refused() -> ApiError | None:
        try:
            cluster.api.create(f"{PODS}?dryRun=All", wanted)
        except ApiError as error:
            return error
        return None

    try:
        error = waiting.until(refused, "the policy is in force")
        assert error.code == 422
        assert "the annotation hami-py.test/assigned is ours" in error.status["message"]
        # A Binding is another resource, so it is not delayed for any user.
        pod = cluster.api.create(PODS, objects.pod(schedulerName="nobody"))
        path = f"{PODS}/{pod['metadata']['name']}"
        assigned = {"hami-py.test/assigned": "card-0"}
        cluster.api.create(f"{path}/binding", objects.binding(pod, "a", annotations=assigned))
        with pytest.raises(ApiError, match="is ours"):
            cluster.api.patch(path, {"metadata": forged})
        with pytest.raises(ApiError, match="is ours"):
            cluster.api.patch(path, {"metadata": {"annotations": {"hami-py.test/assigned": None}}})
        ours = cluster.api_as("system:serviceaccount:hami-system:hami-scheduler", "system:masters")
        ours.patch(path, {"metadata": forged})
    finally:
        cluster.api.delete(f"{admission.POLICY_BINDINGS}/assignment")
        cluster.api.delete(f"{admission.POLICIES}/assignment")
