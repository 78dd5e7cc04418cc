"""Annotations with a slip of the hand in their names."""

import re

import pytest

from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from hami_py.model.pods.admission.metadata import misspelled
from support.artifacts import ROOT
from unit.pods.build import container, pod

GPU = container(limits={"gpu": 1, "gpumem": 3000})
PAGE = (ROOT / "docs" / "pods.md").read_text()


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("nvidia.com/use-gputyp", "nvidia.com/use-gputype"),
        ("nvidia.com/use-gpu-type", "nvidia.com/use-gputype"),
        ("nvidia.com/use-type", "nvidia.com/use-gputype"),
        ("nvidia.com/no-use-gpuuuid", "nvidia.com/nouse-gpuuuid"),
        ("nvidia.com/Use-GPUUUID", "nvidia.com/use-gpuuuid"),
        ("NVIDIA.com/numa-bind", "nvidia.com/numa-bind"),
        ("hami.io/gpu-schedular-policy", "hami.io/gpu-scheduler-policy"),
        ("hami.io/device-scoring-weight", "hami.io/device-scoring-weights"),
        ("hami.io/use-gputype", "nvidia.com/use-gputype"),
        ("nvidia.com/gpu-scheduler-policy", "hami.io/gpu-scheduler-policy"),
        ("hami.io/gangs", "hami.io/gang"),
        ("nvidia.com/gang", "hami.io/gang"),
        ("hami.io/sharemode", "hami.io/share-mode"),
    ],
)
def test_it_is_accepted_and_the_nearest_name_is_suggested(written: str, nearest: str) -> None:
    admission = pods.admit(pod(GPU, annotations={written: "x"}))
    assert admission.refusals == ()
    assert admission.remove_annotations == ()
    (finding,) = admission.findings
    assert (finding.rule, finding.action) == ("unknown-annotation", "remark")
    assert finding.field == f"metadata.annotations[{written}]"
    assert finding.fix.endswith(f"write {nearest}")
    assert f'{finding.field}: "x" is admitted: ' in str(finding)


@pytest.mark.parametrize(
    "written",
    [
        *sorted(HAMI.pod_annotations),
        "hami.io/cordon",
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "hami.io/bind-phase",
        "nvidia.com/gpu.product",
        "nvidia.com/mig.config",
        "nvidia.com",
        "use-gputyp",
        "example.com/use-gputyp",
        "not-nvidia.com/use-gputyp",
    ],
)
def test_other_annotations_cause_no_warning(written: str) -> None:
    assert pods.admit(pod(GPU, annotations={written: ""})).findings == ()


def test_a_pod_without_a_gpu_gets_no_warning() -> None:
    slip = {"nvidia.com/use-gputyp": "A100"}
    assert pods.admit(pod(container(), annotations=slip)).findings == ()


def test_a_profile_without_annotations_suggests_nothing() -> None:
    written = pod(GPU, annotations={"nvidia.com/use-gputyp": "A100"})
    assert pods.admit(written, PodSettings(profiles=(ALIYUN, HAMI))).findings == ()


def test_thousands_of_them_are_not_compared() -> None:
    known = HAMI.pod_annotations
    many = [f"nvidia.com/use-gputyp{number}" for number in range(10_000)]
    assert 0 < len(list(misspelled(many, known))) <= 64
    assert list(misspelled(["nvidia.com/" + 1_000_000 * "use-gputype"], known)) == []


def test_the_examples_of_the_page_are_suggested() -> None:
    (told,) = re.findall(
        r"If an annotation looks like one of these.*?the\s+webhook\s+admits", PAGE, re.S
    )
    examples = re.findall(r"`([^`]+)`", told)
    assert len(examples) == 2
    for written in examples:
        (finding,) = pods.admit(pod(GPU, annotations={written: "A100"})).findings
        assert finding.fix.endswith("write nvidia.com/use-gputype")
