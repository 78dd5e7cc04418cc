"""What the API server sends to a webhook: of a new pod, and of a Binding."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from cluster import admission, objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import PODS
from cluster.recorder import Recorder
from cluster.recordings import Recordings

MUTATING, _ = admission.CONFIGURATIONS

Webhook = Callable[..., Recorder]


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    return module_control_plane()


@pytest.fixture
def webhook(cluster: ControlPlane) -> Iterator[Webhook]:
    """`webhook("pods")` serves on loopback and is called for what is made of these resources."""
    serving = cluster.authority.issue("webhook", hosts=["127.0.0.1"])
    with contextlib.ExitStack() as undo:

        def start(*resources: str, operations: Sequence[str] = ("CREATE",)) -> Recorder:
            hook = undo.enter_context(Recorder({"/mutate": admission.allow}, serving))
            rule = {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": [*operations],
                "resources": [*resources],
            }
            client = {"url": f"{hook.url}/mutate"}
            entry = admission.webhook(
                cluster.authority.certificate, client, rules=[rule], matchConditions=[]
            )
            cluster.api.create(MUTATING, {"metadata": {"name": "hami-py"}, "webhooks": [entry]})
            undo.callback(cluster.api.delete, f"{MUTATING}/hami-py")

            def is_called() -> bool:
                with contextlib.suppress(ApiError):
                    cluster.api.create(f"{PODS}?dryRun=All", _pod())
                return bool(hook.calls())

            waiting.until(is_called, "the webhook is in force")
            return hook

        yield start


def _pod() -> Object:
    share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    return objects.pod(limits=share, schedulerName="nobody")


def test_the_review_of_a_new_pod_has_neither_name_nor_uid(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    hook = webhook("pods")
    cluster.api.create(PODS, _pod())
    review = hook.calls()[-1].body
    request = review["request"]
    assert "name" not in request
    metadata = request["object"]["metadata"]
    assert metadata["generateName"] == "pod-"
    assert not {"name", "uid"} & metadata.keys()
    recordings.keep("admission-review-create", review)


def test_a_binding_passes_no_webhook_on_pods(cluster: ControlPlane, webhook: Webhook) -> None:
    hook = webhook("pods", operations=["*"])
    pod = cluster.api.create(PODS, _pod())
    before = len(hook.calls())
    path = f"{PODS}/{pod['metadata']['name']}"
    annotations = {"hami-py.test/assigned": "card-0"}
    cluster.api.create(f"{path}/binding", objects.binding(pod, "a", annotations=annotations))
    assert len(hook.calls()) == before
    cluster.api.patch(path, {"metadata": {"annotations": {"hami-py.test/assigned": "forged"}}})
    assert hook.calls()[-1].body["request"]["operation"] == "UPDATE"


def test_a_binding_passes_a_webhook_on_its_subresource(
    cluster: ControlPlane, webhook: Webhook, recordings: Recordings
) -> None:
    hook = webhook("pods/binding", "pods")
    pod = cluster.api.create(PODS, _pod())
    path = f"{PODS}/{pod['metadata']['name']}/binding"
    cluster.api.create(path, objects.binding(pod, "a"))
    review = hook.calls()[-1].body
    assert review["request"]["subResource"] == "binding"
    assert review["request"]["object"]["kind"] == "Binding"
    recordings.keep("admission-review-binding", review)
