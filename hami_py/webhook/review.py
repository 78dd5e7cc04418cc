"""AdmissionReviews (admission.k8s.io/v1): decides whether a pod is admitted, and how it is changed.

``mutate`` completes and corrects a pod. ``validate`` checks the pod after all webhooks have changed
it. Both use the same rules, which depend on who allocates the cards of the pod's namespace
(owner.py). Reviews of anything but the creation of a pod, or of an ephemeral container, are
admitted: the rules of the configuration exclude them, and a wrong rule must not stop a cluster.

The API server calls mutating webhooks in the order of their configurations' names. A webhook that
is called after ours may undo our changes, or add the first request for a card. The API server does
not call ours again then (``reinvocationPolicy`` applies only to webhooks that were called). Such a
pod would go to a scheduler that does not know cards, get none from the kubelet, or have what ours
removes. So ``validate`` refuses it.
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from hami_py.model import pods
from hami_py.model.pods import Admission, PodSettings, objects
from hami_py.model.pods.admission.findings import MAX_REFUSALS, Finding, first
from hami_py.model.pods.annotations import LABELS
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.owner import LIMITS, Owner
from hami_py.webhook.patch import make_patch

_LONGEST_WARNING = 256
"""The API server truncates longer warnings (it allows 256 characters each, 4096 in all)."""

_MOST_WARNINGS = 16

_CHANGED_LATER = (
    "another webhook changed the pod after hami-webhook: rename that webhook's configuration so "
    "that its name comes before hami-webhook in alphabetical order"
)


class Kind(msgspec.Struct, rename="camel"):
    """The kind of the object."""

    kind: str = ""


class Request(msgspec.Struct, rename="camel"):
    """The request to admit an object (AdmissionRequest)."""

    uid: str
    kind: Kind = msgspec.field(default_factory=Kind)
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    object: objects.Pod | None = None


class Review(msgspec.Struct, rename="camel"):
    """A review with its request (AdmissionReview)."""

    request: Request
    api_version: str = "admission.k8s.io/v1"


class Status(msgspec.Struct):
    """Why the pod is refused."""

    message: str
    code: int = 422
    reason: str = "Invalid"


class Response(msgspec.Struct, rename="camel", omit_defaults=True):
    """The decision (AdmissionResponse)."""

    uid: str
    allowed: bool = msgspec.field()
    status: Status | None = None
    warnings: list[str] = []
    patch_type: str | None = None
    patch: str | None = None


class Answer(msgspec.Struct, rename="camel"):
    """A review with its response (AdmissionReview)."""

    response: Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


read_review = Decoder(Review, "review")
"""Decodes a review; raises ``InvalidValue`` with the path of the invalid field."""


class _Rules(NamedTuple):
    """The rules for the pods of an owner's namespaces."""

    admit: Callable[[objects.Pod, PodSettings], Admission]
    judge_ephemeral: Callable[[objects.Pod, PodSettings], tuple[Finding, ...]]


_RULES: dict[Owner, _Rules] = {
    "hami": _Rules(pods.admit, pods.judge_ephemeral),
    "others": _Rules(pods.admit_others, pods.judge_ephemeral_others),
}


class Reviewer:
    """Reviews pods, and counts its findings."""

    def __init__(self, settings: pods.PodSettings, runtime_class: str | None = None) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self._settings = settings
        self._runtime_class = runtime_class

    def mutate(self, review: Review, owner: Owner = "hami") -> Answer:
        """Completes a pod, or refuses it."""
        pod = _pod(review, "CREATE")
        if pod is None:
            return _allowed(review)
        admission = self._count("mutate", _RULES[owner].admit(pod, self._settings))
        if admission.refusals:
            return _denied(review, admission)
        answer = _allowed(review, _texts(admission.warnings))
        operations = make_patch(pod, admission, self._settings, self._runtime_class)
        if operations:
            answer.response.patch_type = "JSONPatch"
            answer.response.patch = base64.b64encode(msgspec.json.encode(operations)).decode()
        return answer

    def validate(self, review: Review, owner: Owner = "hami") -> Answer:
        """Refuses a pod that is invalid after all webhooks, or an invalid ephemeral container."""
        if (pod := _pod(review, "CREATE")) is not None:
            admission = _RULES[owner].admit(pod, self._settings)
            if not admission.refusals:
                later = _later_changes(pod, admission, self._settings)
                admission = Admission(findings=(*admission.findings, *first(later)))
        elif (pod := _pod(review, "UPDATE", "ephemeralcontainers")) is not None:
            findings = _RULES[owner].judge_ephemeral(pod, self._settings)
            admission = Admission(findings=findings)
        else:
            return _allowed(review)
        self._count("validate", admission)
        return _denied(review, admission) if admission.refusals else _allowed(review)

    def counts(self) -> dict[tuple[str, str, str], int]:
        """The number of findings by (verb, action, rule); the rule of "allow" is empty."""
        with self._lock:
            return dict(self._counts)

    def _count(self, verb: str, admission: Admission) -> Admission:
        with self._lock:
            for finding in admission.findings:
                self._counts[verb, finding.action, finding.rule] += 1
            if not admission.refusals:
                self._counts[verb, "allow", ""] += 1
        return admission


def _pod(review: Review, operation: str, sub_resource: str = "") -> objects.Pod | None:
    """The reviewed pod; None if the review is about another operation, or not about a pod."""
    request = review.request
    pod = request.object
    if (request.operation, request.sub_resource) != (operation, sub_resource):
        return None
    if request.kind.kind != "Pod" or pod is None:
        return None
    if pod.metadata.namespace is None:
        # In admission the pod may have no namespace yet; the request has it.
        metadata = msgspec.structs.replace(pod.metadata, namespace=request.namespace)
        return msgspec.structs.replace(pod, metadata=metadata)
    return pod


def _allowed(review: Review, warnings: list[str] | None = None) -> Answer:
    return Answer(Response(review.request.uid, True, warnings=warnings or []))


def _denied(review: Review, admission: Admission) -> Answer:
    reasons = [str(finding) for finding in admission.refusals]
    if len(reasons) == MAX_REFUSALS:
        reasons.append("there may be more")
    status = Status("; ".join(reasons))
    return Answer(Response(review.request.uid, False, status, _texts(admission.warnings)))


def _texts(findings: Iterable[Finding]) -> list[str]:
    return [str(each)[: _LONGEST_WARNING - 1] for each in islice(findings, _MOST_WARNINGS)]


def _later_changes(
    pod: objects.Pod, admission: Admission, settings: PodSettings
) -> Iterator[Finding]:
    """Findings for each change of ours that the pod does not have any more."""
    if admission.request is not None:
        yield from _later_placement(pod, settings)
    why = {profile.gpu: "the kubelet would allocate no card" for profile in settings.profiles}
    why[LIMITS] = "the container would have no limits"
    for edit in admission.edits:
        for name in sorted(why.keys() & edit.limits.keys()):
            fix = f"{why[name]}; the value must be {edit.limits[name]}"
            yield _later(f"{edit.path}.resources.limits[{name}]", "", fix)
    for found in admission.warnings:
        if found.action in ("remove", "replace"):
            yield _later(found.field, found.value, found.fix)


def _later_placement(pod: objects.Pod, settings: PodSettings) -> Iterator[Finding]:
    for key, value in LABELS.items():
        if pod.labels.get(key) != value:
            fix = f"the value must be {value}"
            yield _later(f"metadata.labels[{key}]", pod.labels.get(key, ""), fix)
    scheduler = pod.spec.scheduler_name or ""
    if settings.schedulers and scheduler not in settings.schedulers:
        fix = f"this scheduler binds without cards; the value must be {settings.schedulers[0]}"
        yield _later("spec.schedulerName", scheduler, fix)


def _later(field: str, value: str, fix: str) -> Finding:
    return Finding("late-change", "refuse", field, value, f"{fix}; {_CHANGED_LATER}")
