"""AdmissionReviews (admission.k8s.io/v1): a pod comes in, a verdict goes out.

``mutate`` completes and corrects a pod, ``validate`` looks at what became of it when all webhooks
have had it; both ask the same ``admit``. A review that asks about anything but the making of a pod,
or of an ephemeral container in one, is let pass: rules of the configuration keep them away, and a
wrong rule must not stop a cluster.
"""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec

from hami_py.model import pods
from hami_py.model.pods import Admission, objects
from hami_py.model.pods.admission.findings import MAX_REFUSALS, Finding, first
from hami_py.model.pods.decoding import Decoder
from hami_py.webhook.late import undone
from hami_py.webhook.patch import make_patch

__all__ = ["Review", "Reviewer", "read_review"]

_LONGEST_WARNING = 256
"""The API server cuts longer ones (it allows 256 characters each, 4096 in all)."""

_MOST_WARNINGS = 16


class Kind(msgspec.Struct, rename="camel"):
    """Which kind of object."""

    kind: str = ""


class Request(msgspec.Struct, rename="camel"):
    """What is to be judged (AdmissionRequest)."""

    uid: str
    kind: Kind = msgspec.field(default_factory=Kind)
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    object: objects.Pod | None = None


class Review(msgspec.Struct, rename="camel"):
    """A question (AdmissionReview)."""

    request: Request
    api_version: str = "admission.k8s.io/v1"


class Status(msgspec.Struct):
    """Why not."""

    message: str
    code: int = 422
    reason: str = "Invalid"


class Response(msgspec.Struct, rename="camel", omit_defaults=True):
    """The verdict (AdmissionResponse)."""

    uid: str
    allowed: bool = msgspec.field()
    status: Status | None = None
    warnings: list[str] = []
    patch_type: str | None = None
    patch: str | None = None


class Answer(msgspec.Struct, rename="camel"):
    """An answer (AdmissionReview)."""

    response: Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


read_review = Decoder(Review, "review")
"""Reads a review; raises ``InvalidValue`` with the path of what is wrong."""


class Reviewer:
    """Judges pods, and counts what it found.

    Args:
        settings: how pods are read.
        runtime_class: given to pods that ask for a card and name none.
    """

    def __init__(self, settings: pods.PodSettings, runtime_class: str | None = None) -> None:
        self._verdicts: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self._settings = settings
        self._runtime_class = runtime_class

    def mutate(self, review: Review) -> Answer:
        """Completes a pod, or refuses it."""
        pod = _pod(review, "CREATE")
        if pod is None:
            return _allowed(review)
        admission = self._count("mutate", pods.admit(pod, self._settings))
        if admission.refusals:
            return _denied(review, admission)
        answer = _allowed(review, _texts(admission.warnings))
        operations = make_patch(pod, admission, self._settings, self._runtime_class)
        if operations:
            answer.response.patch_type = "JSONPatch"
            answer.response.patch = base64.b64encode(msgspec.json.encode(operations)).decode()
        return answer

    def validate(self, review: Review) -> Answer:
        """Refuses a pod that another webhook, or nobody, has made what it must not be.

        So it does with a container that is added later, to debug.
        """
        if (pod := _pod(review, "CREATE")) is not None:
            admission = pods.admit(pod, self._settings)
            if not admission.refusals:
                late = undone(pod, admission, self._settings)
                admission = Admission(findings=(*admission.findings, *first(late)))
        elif (pod := _pod(review, "UPDATE", "ephemeralcontainers")) is not None:
            admission = Admission(findings=pods.judge_ephemeral(pod, self._settings))
        else:
            return _allowed(review)
        self._count("validate", admission)
        return _denied(review, admission) if admission.refusals else _allowed(review)

    def counts(self) -> dict[tuple[str, str, str], int]:
        """How often what was done, by (verb, action, rule); the rule of "allow" is empty."""
        with self._lock:
            return dict(self._verdicts)

    def _count(self, verb: str, admission: Admission) -> Admission:
        with self._lock:
            for finding in admission.findings:
                self._verdicts[verb, finding.action, finding.rule] += 1
            if not admission.refusals:
                self._verdicts[verb, "allow", ""] += 1
        return admission


def _pod(review: Review, operation: str, sub_resource: str = "") -> objects.Pod | None:
    """The pod, if this is what is done with one."""
    request = review.request
    pod = request.object
    if (request.operation, request.sub_resource) != (operation, sub_resource):
        return None
    if request.kind.kind != "Pod" or pod is None:
        return None
    if pod.metadata.namespace is None:
        # A pod in admission need not say where it is to be; the request does.
        metadata = msgspec.structs.replace(pod.metadata, namespace=request.namespace)
        return msgspec.structs.replace(pod, metadata=metadata)
    return pod


def _allowed(review: Review, warnings: list[str] | None = None) -> Answer:
    return Answer(Response(review.request.uid, True, warnings=warnings or []))


def _denied(review: Review, admission: Admission) -> Answer:
    said = [str(finding) for finding in admission.refusals]
    if len(said) == MAX_REFUSALS:
        said.append("there may be more")
    message = "; ".join(said)
    status = Status(message)
    return Answer(Response(review.request.uid, False, status, _texts(admission.warnings)))


def _texts(findings: Iterable[Finding]) -> list[str]:
    return [str(each)[: _LONGEST_WARNING - 1] for each in islice(findings, _MOST_WARNINGS)]
