"""The extender's verbs asked as kube-scheduler asks them: names and answers are JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hami_py.model.pods.objects import Pod
from hami_py.scheduler.verbs import Verbs
from hami_py.scheduler.wire import FilterArgs, FilterResult, HostPriority


def filtered(verbs: Verbs, pod: Pod, names: Sequence[str]) -> FilterResult:
    """Which of the nodes the pod fits on."""
    answer = msgspec.json.encode(verbs.filter(_arguments(pod, names)))
    return msgspec.json.decode(answer, type=FilterResult)


def rated(verbs: Verbs, pod: Pod, names: Sequence[str]) -> list[HostPriority]:
    """How good the nodes are; the best is held."""
    answer = msgspec.json.encode(verbs.prioritize(_arguments(pod, names)))
    return msgspec.json.decode(answer, type=list[HostPriority])


def _arguments(pod: Pod, names: Sequence[str]) -> FilterArgs:
    return FilterArgs(pod, None, msgspec.Raw(msgspec.json.encode(list(names))))
