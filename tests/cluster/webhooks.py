"""Our webhook and policy as deploy/ configures them; but they are asked on loopback, by URL."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster import admission, objects, waiting
from cluster.api import Api, ApiError
from cluster.control_plane import ControlPlane
from cluster.deployed import documents
from cluster.extended import asking, card, extender, node, until_known
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.kube import ApiServer
from hami_py.model.pods import PodSettings
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import SchedulerSettings
from hami_py.serving import Listen
from hami_py.webhook.certificates import Lifetimes
from hami_py.webhook.keeper import WebhookObjects
from hami_py.webhook.service import Webhook, WebhookSettings

NAME = "hami-webhook"

#: The user that binds in a cluster; the policy knows it by this name.
SCHEDULER = "system:serviceaccount:hami-system:hami-scheduler"

#: Pods of a namespace that the webhook leaves alone.
LEFT_OUT = "/api/v1/namespaces/left-out/pods"

SECRETS = "/api/v1/namespaces/default/secrets"

_MUTATING, _VALIDATING = admission.CONFIGURATIONS


@contextlib.contextmanager
def webhook(
    cluster: ControlPlane,
    *,
    pods: PodSettings | None = None,
    period_s: float = 10.0,
    lifetimes: Lifetimes | None = None,
    replicas: int = 1,
) -> Iterator[Webhook]:
    """The webhook; of two replicas the first is asked to mutate, the other to validate."""
    settings = WebhookSettings(
        objects=WebhookObjects("default", NAME, NAME, NAME, ["127.0.0.1"]),
        listen=Listen("127.0.0.1", 0),
        lifetimes=lifetimes or Lifetimes(),
        pods=pods or PodSettings(),
        period_s=period_s,
    )
    server = ApiServer.connect(cluster.kubeconfig)
    hooks = [Webhook(server, settings) for _ in range(replicas)]
    (secret,) = documents("webhook/secret.yaml")
    secret["metadata"]["namespace"] = "default"
    cluster.api.create(SECRETS, secret)
    for wanted in documents("webhook/configuration.yaml"):
        is_mutating = wanted["kind"].startswith("Mutating")
        path, hook = (_MUTATING, hooks[0]) if is_mutating else (_VALIDATING, hooks[-1])
        for entry in wanted["webhooks"]:
            verb = entry["clientConfig"]["service"]["path"]
            entry["clientConfig"] = {"url": f"https://127.0.0.1:{hook.server.port}{verb}"}
        cluster.api.create(path, wanted)
    for hook in hooks:
        hook.start()
    try:
        _wait_until_asked(cluster, hooks[-1])
        yield hooks[0]
    finally:
        for hook in hooks:
            hook.stop()
        for path in (*admission.CONFIGURATIONS, SECRETS):
            cluster.api.delete(f"{path}/{NAME}")


@contextlib.contextmanager
def tenancy(start: Callable[..., ControlPlane]) -> Iterator[tuple[ControlPlane, Scheduler]]:
    """All that is deploy/'s: webhook, policy and extender; and one node, a, with one card.

    A namespace, left-out, is left alone by the webhook.
    """
    (port,) = free_ports(1)
    cluster = asking(start, port)
    # As with many cards: kube-scheduler's own sums leave the one card to us.
    plenty = {f"nvidia.com/{name}": 1_000_000 for name in ("gpu", "gpumem", "gpucores")}
    made = node("a", [card("a", 0)])
    made["status"] = objects.node("a", plenty)["status"]
    cluster.api.create(NODES, made)
    labels = {"hami.io/webhook": "ignore"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "left-out", "labels": labels}})
    ensure_policy(cluster)
    kubeconfig, _ = as_scheduler(cluster)
    judged = PodSettings(schedulers=("default-scheduler",))
    server = ApiServer.connect(kubeconfig)
    with extender(server, port, pod_selector=SchedulerSettings.pod_selector) as scheduler:
        assert scheduler.wait_until_ready(60)
        with webhook(cluster, pods=judged):
            yield cluster, scheduler


@contextlib.contextmanager
def tenant(cluster: ControlPlane, scheduler: Scheduler) -> Iterator[Api]:
    """The API for the tenant. Afterwards its pods are deleted, and the scheduler knows it."""
    yield cluster.api
    for path in (PODS, LEFT_OUT):
        cluster.api.delete_all(path)
    waiting.until(
        lambda: not [*cluster.api.list(PODS), *cluster.api.list(LEFT_OUT)], "the pods are deleted"
    )
    until_known(ApiServer.connect(cluster.kubeconfig), scheduler)


def _wait_until_asked(cluster: ControlPlane, hook: Webhook) -> None:
    """The API server looks at its configurations now and then."""
    deadline = time.monotonic() + waiting.DEADLINE
    while not any(verb == "validate" for verb, _, _ in hook.reviewer.counts()):
        assert time.monotonic() < deadline
        with contextlib.suppress(ApiError):
            cluster.api.create(f"{PODS}?dryRun=All", objects.pod("first", {"nvidia.com/gpu": 1}))
        time.sleep(0.1)


def ensure_policy(cluster: ControlPlane) -> None:
    """The policy, in force."""
    policy, policy_binding = documents("policies/assignment.yaml")
    cluster.api.create(admission.POLICIES, policy)
    cluster.api.create(admission.POLICY_BINDINGS, policy_binding)
    forged = objects.pod("first", metadata={"annotations": {"hami.io/assignment": "{}"}})

    def is_refused() -> bool:
        try:
            cluster.api.create(f"{PODS}?dryRun=All", forged)
        except ApiError as error:
            return "only hami-py may write it" in str(error)
        return False

    waiting.until(is_refused, "the policy is in force")


def as_scheduler(cluster: ControlPlane) -> tuple[Path, Api]:
    """The kubeconfig and the API of the scheduler's account, which may do everything here."""
    user = cluster.user(SCHEDULER, "system:masters")
    return cluster.kubeconfig_for(user), cluster.api_as(SCHEDULER, "system:masters")
