"""Whether the share of a container is hard or soft: what decides, and in which order."""

import pytest

from hami_py.model.limits import Mode
from hami_py.model.pods import ALIYUN, PodSettings
from hami_py.model.pods.request import read_pod
from hami_py.model.pods.settings import DEFAULT
from unit.pods.build import Manifest, container, pod, refused

VARIABLE = "GPU_CORE_UTILIZATION_POLICY"
ANNOTATION = "hami.io/share-mode"
SOFT_HERE = PodSettings(share_modes={"ml": "soft", "other": "hard"})


def mode(
    annotation: str | None = None,
    variable: str | Manifest | None = None,
    settings: PodSettings = DEFAULT,
) -> Mode:
    """The mode of a container in the namespace ``ml``."""
    env = {} if variable is None else {VARIABLE: variable}
    annotations = {} if annotation is None else {ANNOTATION: annotation}
    own = container(limits={"gpu": 1, "gpucores": 30}, env=env)
    parsed = read_pod(pod(own, annotations=annotations), settings)
    return parsed.requesting["train"].share_mode


@pytest.mark.parametrize(
    ("annotation", "variable", "settings", "expected"),
    [
        (None, None, PodSettings(), "hard"),
        (None, None, PodSettings(share_mode="soft"), "soft"),
        (None, None, PodSettings(share_mode="soft", share_modes={"ml": "hard"}), "hard"),
        (None, None, PodSettings(share_modes={"other": "soft"}), "hard"),
        (None, None, SOFT_HERE, "soft"),
        (None, "force", SOFT_HERE, "hard"),
        (None, "default", PodSettings(), "soft"),
        ("hard", "default", SOFT_HERE, "hard"),
        ("soft", "force", PodSettings(), "soft"),
        (" soft ", None, PodSettings(), "soft"),
        ("", None, SOFT_HERE, "soft"),
    ],
)
def test_the_first_that_says_it_decides(
    annotation: str | None, variable: str | None, settings: PodSettings, expected: Mode
) -> None:
    """The pod's annotation, the container's variable, its namespace, the cluster."""
    assert mode(annotation, variable, settings) == expected


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("force", "hard"),
        ("FORCE", "hard"),
        ("default", "soft"),
        ("DEFAULT", "soft"),
        ("Force", "soft"),
        ("", "soft"),
    ],
)
def test_a_variable_means_what_the_library_reads(variable: str, expected: Mode) -> None:
    """`native/limits/src/variables.rs`: all that is not `force` or `disable` is soft."""
    for cluster in (PodSettings(share_mode="soft"), PodSettings(share_mode="hard")):
        assert mode(variable=variable, settings=cluster) == expected


@pytest.mark.parametrize(
    "variable",
    ["disable", "DISABLE", {"configMapKeyRef": {"name": "m", "key": "k"}}],
    ids=str,
)
def test_a_variable_that_says_no_mode_leaves_the_default(variable: str | Manifest) -> None:
    assert mode(variable=variable) == "hard"
    assert mode(variable=variable, settings=PodSettings(share_mode="soft")) == "soft"


def test_the_last_of_several_variables_counts() -> None:
    own = container(limits={"gpu": 1})
    own["env"] = [{"name": VARIABLE, "value": value} for value in ("default", "force")]
    assert read_pod(pod(own)).requesting["train"].share_mode == "hard"


def test_containers_of_a_pod_may_have_different_modes() -> None:
    both = [container(name, limits={"gpu": 1}, env=env) for name, env in (("a", {}), ("b", SOFT))]
    parsed = read_pod(pod(*both))
    assert {name: each.share_mode for name, each in parsed.requesting.items()} == {
        "a": "hard",
        "b": "soft",
    }


SOFT = {VARIABLE: "default"}


@pytest.mark.parametrize("written", ["Soft", "force", "default", "hard,soft", "true"])
def test_another_annotation_is_refused(written: str) -> None:
    asking = pod(container(limits={"gpu": 1}), annotations={ANNOTATION: written})
    refused(asking, f"metadata.annotations[{ANNOTATION}]", written, "write hard or soft")


def test_a_profile_without_the_annotation_does_not_read_it() -> None:
    own = container(limits={"aliyun.com/gpu-mem": 4})
    annotated = pod(own, annotations={ANNOTATION: "neither"})
    parsed = read_pod(annotated, PodSettings(profiles=(ALIYUN,)))
    assert parsed.requesting["train"].share_mode == "hard"
