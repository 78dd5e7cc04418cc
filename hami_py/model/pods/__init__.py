"""Pods: what they ask for, what they get, and what nodes and quotas say. Pure, without I/O.

One reader for all: the webhook, the scheduler and the command line read a pod with the same
functions, as the node agent will, so they cannot disagree. ``objects`` are Kubernetes' types, as
far as we read them; ``wire`` are the allocator's.
"""

from hami_py.model.pods import annotations, objects, wire
from hami_py.model.pods.admission import Admission, ContainerEdit, admit, judge_ephemeral
from hami_py.model.pods.assignment import (
    as_assigned,
    assignment_of,
    bind_annotations,
    decode_assignment,
    encode_assignment,
    longest_annotations,
)
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.environment import EnvironmentPlan, Injected
from hami_py.model.pods.findings import Finding
from hami_py.model.pods.names import ALIYUN, HAMI, NameProfile, aliyun, hami
from hami_py.model.pods.nodes import (
    decode_cards,
    encode_cards,
    read_node,
    unknown_cordons,
)
from hami_py.model.pods.objects import (
    Pod,
    decode_node,
    decode_pod,
    decode_quota,
)
from hami_py.model.pods.placement import kept_away
from hami_py.model.pods.quotas import read_quota
from hami_py.model.pods.request import read_request
from hami_py.model.pods.settings import PodSettings
from hami_py.model.pods.settings_file import decode_settings
from hami_py.model.pods.versioned import UnknownVersion

__all__ = [
    "ALIYUN",
    "HAMI",
    "Admission",
    "ContainerEdit",
    "Decoder",
    "EnvironmentPlan",
    "Finding",
    "Injected",
    "NameProfile",
    "Pod",
    "PodSettings",
    "UnknownVersion",
    "admit",
    "aliyun",
    "annotations",
    "as_assigned",
    "assignment_of",
    "bind_annotations",
    "decode_assignment",
    "decode_cards",
    "decode_node",
    "decode_pod",
    "decode_quota",
    "decode_settings",
    "encode_assignment",
    "encode_cards",
    "hami",
    "judge_ephemeral",
    "kept_away",
    "longest_annotations",
    "objects",
    "read_node",
    "read_quota",
    "read_request",
    "unknown_cordons",
    "wire",
]
