"""The variables that a container gets, and whether those who read them understand them."""

from typing import Any

import pytest

from hami_py import config
from hami_py._native import HamiVariables
from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import PodSettings
from hami_py.model.pods.annotations import memory_key
from unit.pods.build import Manifest, carried_out, container, manifest, read

MIB = 1 << 20
DEFAULT, FORCED = PodSettings(), PodSettings(core_policy="force")


def environment(settings: PodSettings = DEFAULT, **limits: Any) -> dict[str, Any]:
    """The variables of the container: values, and annotations as ``{key}``."""
    named = {name.replace("_", "-"): value for name, value in limits.items()}
    written = manifest(container(limits=named))
    (edit,) = pods.admit(read(written), settings).edits or (None,)
    if edit is None:
        return {}
    return {
        added.name: added.value if added.annotation is None else {added.annotation}
        for added in edit.environment.add
    }


MEMORY, CORES = "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"


FIRST, SECOND = ({f"hami.io/gpumem-{card}.train"} for card in range(2))


@pytest.mark.parametrize(
    ("limits", "settings", "meant"),
    [
        ({"gpu": 1, "gpumem": 3000}, {}, {MEMORY: "3000m"}),
        ({"gpu": 1, "gpumem": "3k", "gpucores": 30}, {}, {MEMORY: "3000m", CORES: "30"}),
        ({"gpu": 2, "gpumem": 3000}, {}, {MEMORY: "3000m"}),
        ({"gpu": 1, "gpucores": 30}, {}, {CORES: "30"}),
        ({"gpu": 1, "gpucores": 0, "gpumem": 9}, {}, {MEMORY: "9m"}),
        ({"gpu": 1, "gpucores": 100, "gpumem": 9}, {}, {MEMORY: "9m"}),
        ({"gpu": 1}, {}, {}),
        ({"gpumem_percentage": 50}, {}, {MEMORY: {"hami.io/gpumem.train"}}),
        ({"gpu": 2, "gpumem_percentage": 50}, {}, {f"{MEMORY}_0": FIRST, f"{MEMORY}_1": SECOND}),
        ({"gpumem": 9, "priority": 0}, {}, {MEMORY: "9m", "CUDA_TASK_PRIORITY": "0"}),
        (
            {"gpu": 1, "gpumem": 9, "gpucores": 30},
            {"core_policy": "force"},
            {MEMORY: "9m", CORES: "30", "GPU_CORE_UTILIZATION_POLICY": "force"},
        ),
    ],
)
def test_the_variables_of_a_container(
    limits: Manifest, settings: Manifest, meant: dict[str, Any]
) -> None:
    assert environment(PodSettings(**settings), **limits) == meant


def test_a_percentage_is_read_from_an_annotation_by_the_kubelet() -> None:
    written = manifest(container(limits={"gpu": 1, "gpumem-percentage": 50}))
    done = carried_out(written, pods.admit(read(written)))
    assert done["spec"]["containers"][0]["env"] == [
        {
            "name": MEMORY,
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": "metadata.annotations['hami.io/gpumem.train']",
                }
            },
        }
    ]


@pytest.mark.parametrize("mib", [1, 100, 3000, 81920, (1 << 20) - 1])
@pytest.mark.parametrize("cores", [0, 1, 30, 99, 100])
@pytest.mark.parametrize("priority", [None, 0, 1])
def test_the_variables_parse_to_the_request_of_the_pod(
    mib: int, cores: int, priority: int | None
) -> None:
    """The preload library has the same rules; docs/configuration.md says so and its tests too."""
    limits = {"gpu": 2, "gpumem": mib, "gpucores": cores}
    limits |= {} if priority is None else {"priority": priority}
    variables = HamiVariables(config.read(environment(FORCED, **limits)).hami_limits)
    for card in (0, 1, None):
        limit = variables.limit(card)
        assert limit.memory == mib * MIB
        assert limit.share == (cores if 0 < cores < 100 else None)
        assert limit.priority == {None: None, 0: "high", 1: "normal"}[priority]
        assert limit.mode == "hard"


@pytest.mark.parametrize("mibs", [[20000], [20000, 40000], list(range(1000, 1016))])
def test_the_variables_parse_to_the_annotations_of_the_binding(mibs: list[int]) -> None:
    """As the kubelet resolves them."""
    asked = environment(gpu=len(mibs), gpumem_percentage=50)
    grants = tuple(pods.wire.CardAllocation(f"GPU-{i}", mib, 0) for i, mib in enumerate(mibs))
    request = pods.read_request(
        read(manifest(container(limits={"gpu": len(mibs), "gpumem-percentage": 50})))
    )
    assert request is not None
    written = pods.bind_annotations(request, pods.wire.Assignment(1, "u", "n1", {"train": grants}))
    resolved = {name: written[key] for name, (key,) in asked.items()}
    variables = HamiVariables(config.read(resolved).hami_limits)
    assert [variables.limit(i).memory for i in range(len(mibs))] == [mib * MIB for mib in mibs]


def test_without_the_binding_annotations_a_container_is_not_unlimited() -> None:
    """The kubelet writes an empty text there, which is an error for every reader."""
    (annotation,) = environment(gpumem_percentage=50)[MEMORY]
    assert annotation == memory_key("train")
    with pytest.raises(InvalidValue):
        HamiVariables(config.read({MEMORY: ""}).hami_limits)


GPU, MIB_3000, CORES_30 = {"gpu": 1}, {"gpumem": 3000}, {"gpu": 1, "gpucores": 30}
PERCENT_50 = {"gpumem-percentage": 50}
MINE = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
DEVICES, PRIORITY = "NVIDIA_VISIBLE_DEVICES", "CUDA_TASK_PRIORITY"
OTHERS = {"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/x"}
REPLACED = ("own-limit", "replace")
# A container's own variables. Its resources; its variables; the names that stay unchanged; those
# that have our value afterwards; and the finding for its author.
OWN: list[tuple[Manifest, dict[str, Any], dict[str, Any], tuple[str, str] | None]] = [
    (MIB_3000, {MEMORY: "2000m"}, {MEMORY: "2000m"}, None),
    (MIB_3000, {MEMORY: "3000m"}, {MEMORY: "3000m"}, None),
    (MIB_3000, {MEMORY: "2GiB"}, {MEMORY: "2GiB"}, None),
    (MIB_3000, {MEMORY: "4000m"}, {MEMORY: "3000m"}, REPLACED),
    (MIB_3000, {MEMORY: "0"}, {MEMORY: "3000m"}, REPLACED),
    (MIB_3000, {f"{MEMORY}_0": "4g"}, {MEMORY: "3000m"}, REPLACED),
    (MIB_3000, {f"{MEMORY}_0": "1g"}, {f"{MEMORY}_0": "1g", MEMORY: "3000m"}, None),
    (MIB_3000, {f"{MEMORY}_16": "9g"}, {f"{MEMORY}_16": "9g", MEMORY: "3000m"}, None),
    (MIB_3000, {MEMORY: MINE}, {MEMORY: "3000m"}, REPLACED),
    (PERCENT_50, {MEMORY: "1m"}, {MEMORY: {"hami.io/gpumem.train"}}, REPLACED),
    (PERCENT_50, {MEMORY: MINE}, {MEMORY: {"hami.io/gpumem.train"}}, REPLACED),
    (GPU, {MEMORY: "1000m"}, {MEMORY: "1000m"}, None),
    (GPU, {CORES: "50"}, {CORES: "50"}, None),
    (CORES_30, {CORES: "20"}, {CORES: "20"}, None),
    (CORES_30, {CORES: "40"}, {CORES: "30"}, REPLACED),
    (CORES_30, {CORES: "0"}, {CORES: "30"}, REPLACED),
    (CORES_30, {PRIORITY: "0"}, {PRIORITY: "0", CORES: "30"}, None),
    (
        {**CORES_30, "priority": 1},
        {PRIORITY: "0"},
        {PRIORITY: "1", CORES: "30"},
        ("own-priority", "replace"),
    ),
    (GPU, {DEVICES: "all"}, {}, ("visible-devices", "remove")),
    (GPU, {DEVICES: "none"}, {}, ("visible-devices", "remove")),
    ({}, {DEVICES: "all"}, {}, ("visible-devices", "remove")),
    ({}, {DEVICES: "void"}, {DEVICES: "void"}, None),
    ({}, {MEMORY: "4g"}, {MEMORY: "4g"}, None),
    (GPU, {"CUDA_DISABLE_CONTROL": "true"}, {}, ("off-switch", "remove")),
    (GPU, OTHERS, OTHERS, None),
]


@pytest.mark.parametrize(("limits", "own", "meant", "told"), OWN)
def test_a_containers_own_variables_are_kept_replaced_or_refused(
    limits: Manifest, own: dict[str, Any], meant: dict[str, Any], told: tuple[str, str] | None
) -> None:
    # Another container asks, so that the pod is ours in any case.
    other = container("other", limits={"gpu": 1})
    written = manifest(container(limits=limits, env=own), other)
    admission = pods.admit(read(written))
    assert [(each.rule, each.action) for each in admission.findings] == [told] * bool(told)
    done = carried_out(written, admission)
    assert told_to(done["spec"]["containers"][0]) == meant
    again = pods.admit(read(done))
    assert again.edits == ()
    assert again.findings == ()


def told_to(written: Manifest) -> dict[str, Any]:
    found = {}
    for each in written.get("env", []):
        assert each["name"] not in found
        found[each["name"]] = each.get("value")
        if "valueFrom" in each:
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            found[each["name"]] = {path.removeprefix("metadata.annotations['").removesuffix("']")}
    return found


@pytest.mark.parametrize(
    ("limits", "name", "value", "fix"),
    [
        ({"gpumem": 3000}, MEMORY, "3000", None),
        ({"gpumem": 3000}, MEMORY, "010g", "without the leading zero"),
        ({"gpumem": 3000}, f"{MEMORY}_0", "lots", "write a whole number and a unit"),
        ({"gpumem": 3000}, MEMORY, "", "write a whole number and a unit"),
        ({"gpu": 1}, MEMORY, "50%", "a percentage is a share"),
        ({"gpu": 1}, CORES, "101", "write a whole percentage"),
        ({"gpumem-percentage": 50}, MEMORY, "$(OTHER)", "write a whole number and a unit"),
    ],
)
def test_a_variable_that_would_make_the_library_refuse_cuda_is_refused(
    limits: Manifest, name: str, value: str, fix: str | None
) -> None:
    written = manifest(container(limits=limits, env={name: value}))
    refusals = pods.admit(read(written)).refusals
    if fix is None:
        assert refusals == ()
        return
    (finding,) = refusals
    assert finding.field == f"spec.containers[0].env[{name}]"
    assert finding.value == value
    assert fix in str(finding)


def test_of_several_entries_of_a_name_none_is_left() -> None:
    written = manifest(container(limits={"gpumem": 3000}))
    env = [{"name": MEMORY, "value": value} for value in ("1000m", "9000m", "8000m")]
    written["spec"]["containers"][0]["env"] = env
    admission = pods.admit(read(written))
    assert [each.value for each in admission.findings] == ["8000m"]
    done = carried_out(written, admission)
    assert done["spec"]["containers"][0]["env"] == [{"name": MEMORY, "value": "3000m"}]
