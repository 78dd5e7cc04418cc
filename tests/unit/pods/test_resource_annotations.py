"""Resources that are written as annotations: they limit nothing, so the author is told."""

import re

import pytest

from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from support.artifacts import ROOT
from unit.pods.build import container, pod

BOTH = PodSettings(profiles=(HAMI, ALIYUN))
NAMES = sorted({*HAMI.resources, *ALIYUN.resources})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limits", [{"gpu": 1}, {}])
def test_a_resource_as_an_annotation_is_let_in_with_a_warning(
    name: str, limits: dict[str, int]
) -> None:
    admission = pods.admit(pod(container(limits=limits), annotations={name: "3000"}), BOTH)
    assert admission.refusals == ()
    (finding,) = admission.warnings
    assert (finding.rule, finding.action) == ("resource-annotation", "remark")
    assert str(finding) == (
        f'metadata.annotations[{name}]: "3000" is admitted: '
        "it has no effect there; write it under resources.limits of the container"
    )
    page = re.sub(r"\s+", " ", (ROOT / "docs" / "pods.md").read_text())
    assert f"`{finding.fix}`" in page


def test_names_of_a_profile_that_is_not_used_are_other_programs() -> None:
    written = pod(container(limits={"gpu": 1}), annotations={"aliyun.com/gpu-mem": "4"})
    assert pods.admit(written).findings == ()
