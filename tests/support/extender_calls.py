"""Calls the extender's verbs as kube-scheduler does: names and answers are JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from hami_py.model.pods.objects import Pod
from hami_py.scheduler.extender_api import FilterArgs, FilterResult, HostPriority
from hami_py.scheduler.verbs import Verbs

T = TypeVar("T")


def filtered(verbs: Verbs, pod: Pod, names: Sequence[str]) -> FilterResult:
    """The result of filter for these nodes."""
    return _decoded(verbs.filter(_arguments(pod, names)), FilterResult)


def rated(verbs: Verbs, pod: Pod, names: Sequence[str]) -> list[HostPriority]:
    """The scores of the nodes; cards of the best one are held."""
    return _decoded(verbs.prioritize(_arguments(pod, names)), list[HostPriority])


def _arguments(pod: Pod, names: Sequence[str]) -> FilterArgs:
    return FilterArgs(pod, msgspec.json.encode(list(names)))


def _decoded(answer: object, kind: type[T]) -> T:
    said = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return msgspec.json.decode(said, type=kind)
