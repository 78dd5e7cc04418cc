"""docs/pods.md and deploy/examples: examples are pods, the page has all names and errors."""

import re
from typing import Any

import msgspec
import pytest
import yaml

from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, wire
from support.artifacts import ROOT
from unit.pods.build import container, full, pod, read

PAGE = (ROOT / "docs" / "pods.md").read_text()
TEXTS = [
    *re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S),
    *(path.read_text() for path in sorted((ROOT / "deploy" / "examples").glob("*.yaml"))),
]
EXAMPLES = [
    manifest
    for manifest in (each for text in TEXTS for each in yaml.safe_load_all(text))
    if manifest["kind"] == "Pod" or "template" in manifest["spec"]
]


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Of a workload, what it makes."""
    made = manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]
    return {**made, "metadata": {"namespace": "default", **made.get("metadata", {})}}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda each: each["metadata"]["name"])
def test_an_example_is_accepted(manifest: dict[str, Any]) -> None:
    admission = pods.admit(read(pod_of(manifest)))
    assert admission.findings == ()
    # The servers of the parameter-server example compute without a card.
    assert (admission.request is not None) == ("nvidia.com/" in str(manifest))


def test_the_request_of_the_first_example() -> None:
    request = pods.read_request(read(pod_of(EXAMPLES[0])))
    assert request is not None
    (ask,) = request.containers
    assert (ask.cards, ask.memory, ask.cores) == (1, pods.wire.Size(mib=3000), 30)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *HAMI.resources,
            *HAMI.pod_annotations,
            *HAMI.cordon,
            *(f"limits.{n}" for n in (HAMI.gpu, HAMI.memory, HAMI.cores)),
            HAMI.mode_label,
            HAMI.placement_label,
            f"{HAMI.ignore_label}: {HAMI.ignore_value}",
            *ALIYUN.resources,
            ALIYUN.cards_label or "",
            ALIYUN.mode_label,
            ALIYUN.placement_label,
            *pods.wire.NODE_MODES,
            *ALIYUN.modes,
            pods.annotations.ASSIGNMENT,
            pods.annotations.CARDS,
        }
    ),
)
def test_a_name_that_is_read_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


ROWS = re.findall(
    r"^\| (`nvidia\.com/[^|]*?) \| ([^|]+) \|$", PAGE.split("## Error messages\n")[1], re.M
)


def test_there_are_errors() -> None:
    assert len(ROWS) >= 14


@pytest.mark.parametrize(("written", "said"), ROWS)
def test_an_error_is_reported_as_on_the_page(written: str, said: str) -> None:
    limits = dict(re.findall(r"`(nvidia\.com/[a-z-]+): ([^`]+)`", written))
    (finding,) = pods.admit(pod(container(limits=limits))).findings
    assert finding.fix == said.strip()
    assert finding.action == ("remark" if "let in" in written else "refuse")
    assert finding.field.startswith("spec.containers[0].resources.limits[nvidia.com/")


RESOURCES = re.findall(r"^\| `(nvidia\.com/\S+)` \|[^|]+\| (\d+) to (\d+) \|", PAGE, re.M)


@pytest.mark.parametrize(("name", "least", "most"), RESOURCES)
def test_the_range_of_a_resource_is_that_of_the_page(name: str, least: str, most: str) -> None:
    assert len(RESOURCES) == len(HAMI.resources)
    beside = {} if name == HAMI.gpu else {"gpu": 1}
    for number, good in (
        (int(least), True),
        (int(most), True),
        (int(least) - 1, False),
        (int(most) + 1, False),
    ):
        written = pod(container(limits={**beside, full(name): number}))
        assert (pods.admit(written).refusals == ()) is good


def test_the_fields_of_a_card_are_those_of_the_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.split("## Try it without the node agent\n")[1].split("\n## ")[0]
    written = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.M))
    fields = {field.name: field for field in msgspec.structs.fields(wire.Card)}
    # The operator's, in an annotation of its own.
    assert written.keys() == fields.keys() - {"cordoned"}
    words: dict[Any, str] = {None: "none", True: "true", msgspec.NODEFAULT: "required"}
    for name, said in written.items():
        if name not in {"numa", "links", "mig"}:
            default = fields[name].default
            assert said == (str(default) if type(default) is int else words[default]), name
    profile = {field.name for field in msgspec.structs.fields(wire.MigProfile)}
    assert {*profile, "taken"} <= set(re.findall(r"`(\w+)`", table.split("`mig`")[1]))


def test_the_assignment_on_the_page_is_valid() -> None:
    (text,) = re.findall(r"^(\{\"version\".*)$", PAGE, re.M)
    assignment = pods.decode_assignment(text)
    assert pods.encode_assignment(assignment) == text
    assert assignment.containers["train"][0].memory_mib == 3000


REFUSED = re.findall(r"^\| (a `hostPath` .*?) \|", PAGE, re.M)


def test_the_protected_directories_are_those_of_the_page() -> None:
    around, _ = REFUSED
    guarded, examples = around.split(", like ", 1)
    assert tuple(re.findall(r"`(/[^`]+)`", guarded)) == pods.PodSettings().guarded_host_paths
    for path in re.findall(r"`(/[^`]*)`", examples):
        volume = {"name": "v", "hostPath": {"path": path}}
        for written, is_let_in in (
            ({"readOnly": True}, False),
            ({"readOnly": True, "recursiveReadOnly": "Enabled"}, True),
        ):
            mounted = [{"name": "v", "mountPath": "/host", **written}]
            one = container(limits={"gpu": 1}, volumeMounts=mounted)
            assert (pods.admit(pod(one, volumes=[volume])).refusals == ()) is is_let_in
