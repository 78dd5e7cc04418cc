"""The rights of the service accounts of deploy/: by the API server's reviews, and by trying."""

import base64
import contextlib

import pytest

from cluster import objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.deployed import apply, create_soon, extender, webhook
from cluster.extended import card, configuration, node
from cluster.kubectl import kubectl
from cluster.objects import NODES
from cluster.servers import free_ports

ACCOUNT = "system:serviceaccount:hami-system:hami-{}"
SECRETS = "/api/v1/namespaces/hami-system/secrets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

Right = tuple[str, str, str]

pytestmark = pytest.mark.programs("kubectl")


def rights(cluster: ControlPlane, user: str, namespace: str) -> set[Right]:
    """Verb, resource and name of what a user may do there, as the API server tells the user."""
    asked = {"spec": {"namespace": namespace}}
    told = cluster.api_as(user).create(REVIEWS, asked)["status"]["resourceRules"]
    return {
        (verb, resource, name)
        for rule in told
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ["*"])
    }


def has_only(cluster: ControlPlane, user: str, namespace: str, wanted: set[Right]) -> None:
    """A right that was granted or revoked takes effect a moment later."""

    def has() -> set[Right]:
        return rights(cluster, user, namespace) - rights(cluster, "nobody", namespace)

    with contextlib.suppress(TimeoutError):
        waiting.until(lambda: has() == wanted, "the rights are in force", 10.0)
    assert has() == wanted


def test_the_webhook_has_one_secret_and_two_configurations(
    control_plane: StartControlPlane,
) -> None:
    cluster = control_plane()
    apply(cluster)
    configurations = {
        (verb, f"{kind}webhookconfigurations", "hami-webhook")
        for verb in ("get", "patch")
        for kind in ("mutating", "validating")
    }
    its_secret = {(verb, "secrets", "hami-webhook") for verb in ("get", "update")}
    for namespace, wanted in (
        ("hami-system", configurations | its_secret),
        ("default", configurations),
    ):
        has_only(cluster, ACCOUNT.format("webhook"), namespace, wanted)


def test_the_webhook_makes_reads_and_lists_no_other_secret(
    control_plane: StartControlPlane,
) -> None:
    """While its own is missing, too: by making that one it could get another account's token."""
    cluster = control_plane()
    apply(cluster)
    cluster.api.create(SECRETS, {"metadata": {"name": "other"}})
    api = cluster.api_as(ACCOUNT.format("webhook"))

    def of(name: str) -> Object:
        whose = {"kubernetes.io/service-account.name": "hami-scheduler"}
        kind = "kubernetes.io/service-account-token"
        return {"metadata": {"name": name, "annotations": whose}, "type": kind}

    def is_forbidden(method: str, path: str, body: Object | None = None) -> None:
        code, said = api.request(method, path, body)
        assert (code, said["reason"]) == (403, "Forbidden"), (method, path, said)

    own = api.get(f"{SECRETS}/hami-webhook")
    is_forbidden("GET", SECRETS)
    is_forbidden("DELETE", f"{SECRETS}/hami-webhook")
    for name in ("other", "missing"):
        is_forbidden("GET", f"{SECRETS}/{name}")
        is_forbidden("PUT", f"{SECRETS}/{name}", of(name))
        is_forbidden("PATCH", f"{SECRETS}/{name}", of(name))
    # An existing Secret cannot become a token's, because the type of a Secret cannot change.
    with pytest.raises(ApiError, match="field is immutable"):
        api.replace(f"{SECRETS}/hami-webhook", of("hami-webhook"))
    written = {**own, "data": {"x": base64.b64encode(b"x").decode()}}
    assert api.replace(f"{SECRETS}/hami-webhook", written)["type"] == "Opaque"

    cluster.api.delete(f"{SECRETS}/hami-webhook")
    is_forbidden("POST", SECRETS, of("hami-webhook"))
    # A PUT of what is not there makes nothing.
    with pytest.raises(ApiError) as missing:
        api.replace(f"{SECRETS}/hami-webhook", of("hami-webhook"))
    assert missing.value.code == 404
    is_forbidden("POST", "/api/v1/namespaces/default/secrets", of("x"))


def test_the_node_agent_has_what_its_comments_say(control_plane: StartControlPlane) -> None:
    cluster = control_plane()
    apply(cluster)
    wanted = {
        *((verb, kind, "*") for verb in ("list", "watch", "patch") for kind in ("pods", "nodes")),
        ("patch", "nodes/status", "*"),
        ("create", "events", "*"),
        ("list", "resourcequotas", "*"),
        ("get", "resourceclaims", "*"),
        ("list", "resourceslices", "*"),
    }
    has_only(cluster, ACCOUNT.format("node"), "default", wanted)


def test_the_accounts_may_do_no_more(control_plane: StartControlPlane) -> None:
    cluster = control_plane()
    apply(cluster)
    for name, questions in {
        "webhook": [("get", "pods"), ("list", "secrets"), ("create", "secrets")],
        "scheduler": [("get", "secrets"), ("create", "pods"), ("update", "nodes")],
    }.items():
        for verb, what in questions:
            who = ("--as", ACCOUNT.format(name), "-n", "hami-system")
            answer = kubectl(cluster, "auth", "can-i", verb, what, *who)
            assert answer.stdout.strip() == "no", (name, verb, what, answer)


def test_the_extender_needs_nothing_of_kube_schedulers_rights(
    control_plane: StartControlPlane, address: str
) -> None:
    """Both use one account; rights.yaml has the rights of each separately."""
    (port,) = free_ports(1)
    profiles = [{"schedulerName": "hami-scheduler"}]
    cluster = control_plane(scheduler={**configuration(port), "profiles": profiles})
    apply(cluster)
    for whose in ("kube-scheduler", "volume-scheduler"):
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        cluster.api.delete(f"{bindings}/hami-scheduler-{whose}")
    wanted = {
        *((verb, "pods", "*") for verb in ("get", "list", "watch")),
        *(
            (verb, kind, "*")
            for verb in ("list", "watch")
            for kind in ("nodes", "resourcequotas", "poddisruptionbudgets")
        ),
        ("create", "pods/binding", "*"),
        ("patch", "storageclasses", "hami-wake"),
    }
    has_only(cluster, ACCOUNT.format("scheduler"), "default", wanted)
    cluster.api.create(NODES, node("a", [card("a", 0)]))
    with extender(cluster, port), webhook(cluster, address):
        create_soon(cluster, objects.pod("one", {"nvidia.com/gpumem": 3000}))
        waiting.bound(cluster.api, "one")
    assert "403:" not in (cluster.folder / "scheduler.log").read_text()
