"""Webhook configurations and answers for findings; the protocol is admission.k8s.io/v1."""

import base64
import json
from pathlib import Path
from typing import Any

from cluster.api import Object
from cluster.deployed import documents
from cluster.recorder import Call

CONFIGURATIONS = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
)
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

#: CEL, deploy's: some container of the pod, init containers too, has a limit or a request of ours.
(ASKS_FOR_US,) = {
    condition["expression"]
    for configuration in documents("webhook/configuration.yaml")
    for hook in configuration["webhooks"]
    if hook["name"] == "pods.hami.io"
    for condition in hook["matchConditions"]
}


def webhook(authority: Path, client: Object, **wanted: object) -> Object:
    """One webhook on the creation of pods; ``client`` is its clientConfig without the CA."""
    bundle = base64.b64encode(authority.read_bytes()).decode()
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    return {
        "name": "pods.hami-py.test",
        "clientConfig": {"caBundle": bundle, **client},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "asks-for-us", "expression": ASKS_FOR_US}],
        **wanted,
    }


def allow(call: Call, **more: object) -> Object:
    """AdmissionReview: yes; ``more`` such as ``warnings``."""
    response = {"uid": call.body["request"]["uid"], "allowed": True, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def patched(call: Call, *operations: Object) -> Object:
    """AdmissionReview: yes, changed by these JSON patch operations."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return allow(call, patchType="JSONPatch", patch=patch)


def deny(call: Call, message: str, code: int = 422) -> Object:
    """AdmissionReview: no."""
    answer: dict[str, Any] = allow(call)
    answer["response"].update(allowed=False, status={"code": code, "message": message})
    return answer
