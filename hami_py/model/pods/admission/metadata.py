"""Rules for a pod's annotations and labels: forged or misspelled ones, resources, HAMi's opt-out.

A misspelled annotation cannot be refused, because other programs may use the same prefix. But a
card request with a typing error in its name would place the pod where its author did not want it,
and a misspelled gang would lack the pod. So the author gets a warning.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from hami_py.model.names import legible
from hami_py.model.pods.admission.findings import Finding
from hami_py.model.pods.objects import Pod
from hami_py.model.pods.request import MAX_POD_CARDS
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.wire import PodRequest

_MAX_SHOWN = 80
"""Characters of a key that a message shows."""

_MAX_FORGED = MAX_POD_CARDS + 1
"""The annotations that hami writes on the largest pod: a copied pod has no more."""

_MAX_COMPARED = 64
"""Annotations of a pod that are compared: a pod may have thousands, and comparing takes time."""

_MAX_KEY = 317
"""Characters of a key, by Kubernetes: 253 before the slash and 63 after it."""

_SIMILAR = 0.8
"""difflib's ratio: ``use-type`` and ``use-gputype`` are similar."""


def judge_metadata(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """Warn of labels and annotations that have no effect."""
    yield from _opt_outs(pod, settings)
    for key, known in misspelled(pod.annotations, settings.profiles[0].pod_annotations):
        fix = f"no program reads it; write {known}"
        yield Finding("unknown-annotation", "remark", _path(key), pod.annotations[key], fix)


def judge_resources(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """Warn of resources that are written as annotations: the pod gets a whole card, or none."""
    names = dict.fromkeys(name for profile in settings.profiles for name in profile.resources)
    for name in names:
        if name in pod.annotations:
            fix = "it has no effect there; write it under resources.limits of the container"
            yield Finding("resource-annotation", "remark", _path(name), pod.annotations[name], fix)


def _opt_outs(pod: Pod, settings: PodSettings) -> Iterator[Finding]:
    """HAMi lets a pod exclude itself. Then the author of a pod would decide about its limits."""
    for profile in settings.profiles:
        label = profile.ignore_label
        if label is not None and pod.labels.get(label) == profile.ignore_value:
            fix = "it has an effect on namespaces only, which the operator labels; leave it out"
            path = f"metadata.labels[{label}]"
            yield Finding("opt-out", "remark", path, profile.ignore_value, fix)


def raised_isolation(pod: Pod, request: PodRequest, settings: PodSettings) -> Mapping[str, Finding]:
    """By annotation, the finding for a pod that accepts less than its namespace must have."""
    key, least = settings.profiles[0].isolation, request.card_request.isolation
    if key is None:
        return {}
    written = pod.annotations.get(key, "").strip()
    if least in ("none", written):
        return {}
    fix = f"{least} is the least level in this namespace"
    return {key: Finding("isolation", "replace", _path(key), written, fix)}


def judge_forgery(forged: tuple[str, ...]) -> Iterator[Finding]:
    """Refuse more forged annotations than a copied pod could have."""
    if len(forged) > _MAX_FORGED:
        fix = "hami writes them, and never so many; remove them"
        written = f"{len(forged)} like {forged[0][:_MAX_SHOWN]}"
        yield Finding("forged-annotation", "refuse", "metadata.annotations", written, fix)


def forged_annotation(pod: Pod, key: str) -> Finding:
    """The finding for an annotation that only the scheduler may write."""
    fix = "only the scheduler writes it; leave it out"
    return Finding("forged-annotation", "remove", _path(key), pod.annotations[key], fix)


def misspelled(keys: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Keys that are not known but resemble a known one, each with the nearest known key.

    Only keys under the prefixes of the known ones are compared. Capital letters, and another of
    these prefixes, count as misspellings.
    """
    names = {_parts(key)[1]: key for key in sorted(known)}
    prefixes = {_parts(key)[0] for key in names.values()}
    short = (key for key in keys if len(key) <= _MAX_KEY)
    ours = (key for key in short if _parts(key)[0] in prefixes and key not in names.values())
    for key in itertools.islice(ours, _MAX_COMPARED):
        prefix, name = _parts(key)
        same_prefix = [each for each, other in names.items() if _parts(other)[0] == prefix]
        close = [name]
        if name not in names:
            close = difflib.get_close_matches(name, same_prefix, 1, _SIMILAR)
        for each in close:
            yield key, names[each]


def _parts(key: str) -> tuple[str, str]:
    prefix, _, name = key.lower().partition("/")
    return prefix, name


def _path(key: str) -> str:
    return f"metadata.annotations[{legible(key[:_MAX_SHOWN])}]"
