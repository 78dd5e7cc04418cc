"""Pods too large to be looked into: refused by their size, and what is done for each is counted."""

import difflib
import posixpath
from typing import Any

import pytest

from hami_py.model import pods
from hami_py.model.pods import PodSettings, quantities
from hami_py.model.pods.admission.admit import judge_ephemeral
from unit.pods.build import Manifest, able, carried_out, container, host, manifest, mount, pod, read

GPU = {"gpu": 1, "gpumem": 3000}
MOST = 10_000
C = "spec.containers[*]"


def variables(name: str, times: int) -> list[Manifest]:
    return [{"name": name, "value": "1"}] * times


@pytest.fixture
def normalised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were taken apart."""
    seen: list[str] = []
    real = posixpath.normpath

    def record(path: str) -> str:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(posixpath, "normpath", record)
    return seen


def test_a_path_above_the_kernel_limit_is_refused(normalised: list[str]) -> None:
    longest = "/" + 2047 * "d/"
    for path, is_refused in ((longest, False), (longest + "d", True), ("/" + 500_000 * "a/", True)):
        written = pod(container(limits=GPU, **mount("/x")), **host(path))
        refusals = pods.admit(written).refusals
        assert [(each.rule, each.value) for each in refusals] == [("host-path", path)] * is_refused
        assert all("less than 4096 bytes" in each.fix for each in refusals)
        assert all(len(str(each)) < 400 for each in refusals)
        inside = pods.admit(pod(container(limits=GPU, **mount(path)))).refusals
        fields = [each.field for each in inside]
        assert fields == ["spec.containers[0].volumeMounts[0].mountPath"] * is_refused
    assert max(map(len, normalised)) == len(longest)


def test_a_long_read_only_path_is_refused() -> None:
    path = "/" + 3000 * "a/"
    mounted = mount("/x", readOnly=True, recursiveReadOnly="Enabled")
    (refusal,) = pods.admit(pod(container(limits=GPU, **mounted), **host(path))).refusals
    assert refusal.rule == "host-path"


def test_a_volume_is_checked_once_however_often_it_is_mounted(normalised: list[str]) -> None:
    path = "/data/" + 1000 * "a/"
    ways: list[Manifest] = [
        {},
        {"readOnly": True},
        {"readOnly": True, "recursiveReadOnly": "Disabled"},
    ]
    mounts = [{"name": "v", "mountPath": f"/x{i}", **ways[i % 3]} for i in range(90)]
    asking = [container(f"c{i}", limits=GPU, volumeMounts=mounts) for i in range(20)]
    assert pods.admit(pod(*asking, **host(path))).findings == ()
    # Writable, and read-only with what is below left as it is.
    assert normalised.count(path) == 2
    assert len(normalised) == 20 * 90 + 2


LONG: list[tuple[str, Manifest, Manifest]] = [
    ("spec.volumes", {}, {"volumes": [{"name": "v"}] * (MOST + 1)}),
    (f"{C}.env", {"env": variables("A", MOST + 1)}, {}),
    (f"{C}.volumeMounts", {"volumeMounts": [{"name": "v", "mountPath": "/a"}] * (MOST + 1)}, {}),
    (f"{C}.volumeDevices", {"volumeDevices": [{"name": "v", "devicePath": "/a"}] * (MOST + 1)}, {}),
    (f"{C}.securityContext.capabilities.add", able(*["NET_ADMIN"] * (MOST + 1)), {}),
    ("spec.containers", {}, {"initContainers": [container("i")] * MOST}),
]


def asks(inside: Manifest, around: Manifest) -> Manifest:
    made = manifest(container(limits=GPU), **around)
    made["spec"]["containers"][0].update(inside)
    return made


@pytest.mark.parametrize(("field", "inside", "around"), LONG)
def test_a_list_that_no_node_could_run_is_refused(
    field: str, inside: Manifest, around: Manifest
) -> None:
    admission = pods.admit(read(asks(inside, around)))
    assert (admission.request, admission.edits) == (None, ())
    (finding,) = admission.findings
    assert (finding.rule, finding.action, finding.field) == ("size", "refuse", field)
    assert finding.value == f"{MOST + 1} entries"
    assert f"at most {MOST}" in finding.fix
    for listed in (*inside.values(), *around.values()):
        entries = listed if isinstance(listed, list) else listed["capabilities"]["add"]
        entries.pop()
    assert pods.admit(read(asks(inside, around))).refusals == ()


def test_a_pod_without_a_gpu_may_have_them() -> None:
    written = manifest(container(), **LONG[0][2])
    written["spec"]["initContainers"] = [container("i")] * (2 * MOST)
    assert pods.admit(read(written)).findings == ()


def test_lists_are_counted_over_all_containers_later_ones_too() -> None:
    bold = {"securityContext": {"privileged": True}}
    each = container(**bold) | {"env": variables("A", 100)}
    written = manifest(container(limits=GPU), ephemeralContainers=[each] * 101)
    (finding,) = judge_ephemeral(read(written))
    assert (finding.rule, finding.field, finding.value) == ("size", f"{C}.env", "10100 entries")
    written["spec"]["ephemeralContainers"] = [container("d", **bold)] * 1000
    found = judge_ephemeral(read(written))
    assert [finding.rule for finding in found] == ["privileged"] * 32


@pytest.mark.parametrize(
    "inside",
    [
        able(*["SYS_ADMIN"] * MOST),
        {"env": variables("LD_PRELOAD", MOST)},
        {"volumeMounts": [{"name": "v", "mountPath": "/etc/ld.so.preload"}] * MOST},
    ],
)
def test_the_check_stops_after_enough_refusals(inside: Manifest) -> None:
    assert len(pods.admit(read(asks(inside, {}))).findings) == 32


@pytest.mark.parametrize("limits", [GPU, {}])
def test_annotations_above_the_api_limit_are_not_read(limits: Manifest) -> None:
    most = {f"a{i:04}": "x" * 59 for i in range(4096)}
    assert sum(len(key) + len(value) for key, value in most.items()) == 256 << 10
    assert pods.admit(pod(container(limits=limits), annotations=most)).findings == ()
    (finding,) = pods.admit(pod(container(limits=limits), annotations={**most, "b": ""})).findings
    assert (finding.rule, finding.field) == ("size", "metadata.annotations")
    assert finding.value == "262145 characters"
    assert "262144 bytes" in finding.fix


@pytest.mark.parametrize("limits", [GPU, {}])
def test_more_forged_annotations_than_we_write_are_refused(limits: Manifest) -> None:
    # 320 cards over all containers, and the assignment.
    most = {f"hami.io/gpumem-{i}.c": "1m" for i in range(320)} | {"hami.io/assignment": "{}"}
    admission = pods.admit(pod(container(limits=limits), annotations=most))
    assert len(admission.remove_annotations) == 321
    assert admission.refusals == ()
    admission = pods.admit(
        pod(container(limits=limits), annotations={**most, "hami.io/gpumem.c": "1m"})
    )
    assert admission.remove_annotations == ()
    (finding,) = admission.findings
    assert (finding.rule, finding.action) == ("forged-annotation", "refuse")
    assert finding.value == "322 like hami.io/gpumem-0.c"


@pytest.mark.parametrize("limits", [GPU, {}])
def test_thousands_of_entries_are_not_removed_one_by_one(limits: Manifest) -> None:
    written = manifest(container(limits=limits), container("b", limits=GPU))
    first = written["spec"]["containers"][0]
    first["env"] = [*variables("A", 2), *variables("NVIDIA_VISIBLE_DEVICES", 64)]
    admission = pods.admit(read(written))
    assert admission.refusals == ()
    done = carried_out(written, admission)
    assert {each["name"] for each in done["spec"]["containers"][0]["env"]} & {
        "A",
        "NVIDIA_VISIBLE_DEVICES",
    } == {"A"}
    first["env"] += variables("NVIDIA_VISIBLE_DEVICES", 1)
    (finding,) = pods.admit(read(written)).refusals
    assert (finding.rule, finding.field) == ("size", "spec.containers[0].env")
    assert finding.value == "65 entries of NVIDIA_VISIBLE_DEVICES"
    assert "write each variable once" in finding.fix


def test_a_preload_list_above_the_kernel_limit_is_not_parsed() -> None:
    settings = PodSettings(allowed_preloads=("/x",))
    for times, is_refused in ((40_000, False), (50_000, True)):
        written = pod(container(limits=GPU, env={"LD_PRELOAD": "/x:" * times}))
        rules = [each.rule for each in pods.admit(written, settings).refusals]
        assert rules == ["loader-variable"] * is_refused


def test_a_text_too_long_for_a_number_is_not_cached() -> None:
    quantities._whole_number.cache_clear()
    for digits in (64, 65, 100_000):
        pods.admit(pod(container(limits={"gpu": "1".zfill(digits)})))
    assert quantities._whole_number.cache_info().currsize == 1


def test_a_text_too_long_for_a_key_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def record(word: str, *_: Any) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", record)
    long = {f"nvidia.com/{i}" + "x" * 306: "" for i in range(3)}
    pods.admit(pod(container(limits=GPU), annotations={**long, "nvidia.com/use-gputyp": ""}))
    assert compared == ["use-gputyp"]
