"""The way of a pod's request, from the pod to the allocator and back. Pure, without I/O.

The webhook, the scheduler and the command line read pods with the same functions, so that they
cannot disagree. In the order of a pod's way:

| module | contains |
|---|---|
| ``names``, ``settings`` | names of resources, annotations and labels; the operator's settings |
| ``objects``, ``decoding`` | Kubernetes' objects as types; errors that name the field |
| ``quantities`` | the grammar of numbers, and which numbers each resource may have |
| ``statuses`` | the states of the containers of a pod |
| ``request``, ``card_request`` | reading a pod: its containers' requests, and which cards |
| ``share_mode`` | whether the share of a container's time is hard or soft |
| ``admission`` | the webhook's decision: findings, variables, mounts |
| ``nodes``, ``quotas`` | reading nodes and quotas |
| ``affinity`` | why kube-scheduler excludes a node, apart from cards |
| ``assignment``, ``annotations`` | the result that the binding writes, and its codec |
| ``owner``, ``claims`` | pods whose cards others allocate: which containers, which amounts |
| ``wire`` | the types of the JSON that the allocator reads and writes |
"""

from hami_py.model.pods import annotations, objects, wire
from hami_py.model.pods.admission.admit import Admission, ContainerEdit, admit, judge_ephemeral
from hami_py.model.pods.admission.others import admit_others, judge_ephemeral_others
from hami_py.model.pods.affinity import exclusion_reasons, exclusions
from hami_py.model.pods.annotations import UnknownVersion
from hami_py.model.pods.assignment import (
    as_assigned,
    assignment_of,
    bind_annotations,
    decode_assignment,
    encode_assignment,
    longest_annotations,
)
from hami_py.model.pods.decoding import Decoder
from hami_py.model.pods.names import ALIYUN, HAMI, NameProfile, hami
from hami_py.model.pods.nodes import (
    decode_cards,
    encode_cards,
    read_mode,
    read_node,
    unknown_cordons,
)
from hami_py.model.pods.objects import Pod, decode_node, decode_pod, decode_quota
from hami_py.model.pods.quotas import read_quota
from hami_py.model.pods.request import read_request
from hami_py.model.pods.settings import PodSettings, decode_settings
