"""Manifests for `hami what-if` and `hami replay`: pods, owners of pods, and invalid ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hami_py.cli import hami
from hami_py.errors import InvalidValue
from unit.cluster_commands import POD, refused, snapshot_and_pod


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return snapshot_and_pod(tmp_path)


def test_a_manifest_without_end_is_refused(files: tuple[str, str], tmp_path: Path) -> None:
    deep = tmp_path / "deep.yaml"
    deep.write_text(100_000 * "[")
    done = CliRunner().invoke(hami, ["replay", files[0], str(deep)])
    assert isinstance(done.exception, InvalidValue)


TEMPLATE = {"spec": POD["spec"], "metadata": {"labels": {"app": "d"}}}


def owner(kind: str, **spec: Any) -> dict[str, Any]:
    named = {"name": "d", "namespace": "ml"}
    return {"apiVersion": "v1", "kind": kind, "metadata": named, "spec": spec}


@pytest.mark.parametrize(
    ("written", "pods"),
    [
        (owner("Deployment", replicas=3, template=TEMPLATE), 3),
        (owner("Deployment", template=TEMPLATE), 1),
        (owner("StatefulSet", replicas=2, template=TEMPLATE), 2),
        (owner("ReplicaSet", replicas=2, template=TEMPLATE), 2),
        (owner("Job", parallelism=2, completions=9, template=TEMPLATE), 2),
        (owner("Job", parallelism=10, completions=3, template=TEMPLATE), 3),
        (owner("Job", parallelism=4, template=TEMPLATE), 4),
        (owner("Job", completions=4, template=TEMPLATE), 1),
        (owner("Job", parallelism=2, suspend=False, template=TEMPLATE), 2),
        (owner("CronJob", jobTemplate={"spec": {"parallelism": 2, "template": TEMPLATE}}), 2),
        (owner("DaemonSet", template=TEMPLATE), 1),
        (owner("Rollout", replicas=2, template=TEMPLATE), 2),
        (owner("Model", template=TEMPLATE), 1),
        ({"kind": "List", "items": [owner("Job", template=TEMPLATE), POD]}, 2),
    ],
)
def test_a_manifest_of_an_owner_is_about_the_pods_that_it_makes(
    files: tuple[str, str], tmp_path: Path, written: dict[str, Any], pods: int
) -> None:
    manifest = tmp_path / "given.yaml"
    manifest.write_text(json.dumps(written))
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    assert done.exception is None, done.exception
    outcomes = json.loads(done.output)["pods"]
    assert len(outcomes) == pods
    assert [each["node"] for each in outcomes] == ["a"] * pods
    assert outcomes[0]["pod"] == "ml/d-"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (owner("Deployment", replicas=0, template=TEMPLATE), "spec.replicas is 0"),
        (owner("Job", parallelism=0, template=TEMPLATE), "spec.parallelism is 0"),
        (owner("Job", completions=0, template=TEMPLATE), "spec.completions is 0"),
        (owner("Job", parallelism=2, suspend=True, template=TEMPLATE), "spec.suspend is true"),
        (
            owner("CronJob", suspend=True, jobTemplate={"spec": {"template": TEMPLATE}}),
            "spec.suspend is true",
        ),
        (
            owner("CronJob", jobTemplate={"spec": {"parallelism": 0, "template": TEMPLATE}}),
            "spec.jobTemplate.spec.parallelism is 0",
        ),
        (owner("Rollout", replicas=0, template=TEMPLATE), "spec.replicas is 0"),
        (
            owner("X", runPolicy={"suspend": True}, aReplicaSpecs={"W": {"template": TEMPLATE}}),
            "spec.runPolicy.suspend is true",
        ),
    ],
)
def test_an_owner_without_pods_is_reported(
    files: tuple[str, str], tmp_path: Path, written: dict[str, Any], reason: str
) -> None:
    """It is an answer, as "nowhere" is one, and not a mistake in the manifest."""
    manifest = tmp_path / "given.yaml"
    manifest.write_text(json.dumps(written))
    kind = written["kind"]
    done = CliRunner().invoke(hami, ["replay", *files, str(manifest)], catch_exceptions=False)
    assert done.exit_code == 0
    first, second, *_ = done.output.splitlines()
    assert first.startswith("default/p: a ")
    assert second == f"{kind} ml/d creates no pod now: {reason}"
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    told = json.loads(done.output)
    assert told["pods"] == []
    assert told["no_pods"] == [{"kind": kind, "name": "ml/d", "reason": reason}]


def test_objects_that_make_no_pods_are_skipped_and_named(
    files: tuple[str, str], tmp_path: Path
) -> None:
    """One volume claim in a file of thirty objects made the whole file an error."""
    others = [
        {"kind": "Namespace", "metadata": {"name": "ml"}},
        owner("PersistentVolumeClaim", resources={}),
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"template": "x"}},
        # Other objects than pods have templates, too, and other Jobs than Kubernetes'.
        owner("SealedSecret", template={"type": "Opaque"}),
        {**owner("Job", tasks=[]), "apiVersion": "batch.volcano.sh/v1alpha1"},
    ]
    manifest = tmp_path / "given.yaml"
    manifest.write_text("\n---\n".join(map(json.dumps, [others[0], POD, *others[1:]])))
    done = CliRunner().invoke(hami, ["replay", files[0], str(manifest)], catch_exceptions=False)
    names = "Namespace ml, PersistentVolumeClaim ml/d, ConfigMap c, SealedSecret ml/d, Job ml/d"
    where = "no pod template at spec.template or spec.*ReplicaSpecs"
    assert done.output.splitlines()[:2] == [
        "default/p: a (main: GPU-0)",
        f"skipped, {where}: {names}",
    ]
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    told = json.loads(done.output)
    assert len(told["pods"]) == 1
    assert {"kind": "Namespace", "name": "ml", "reason": where} in told["no_pods"]
    assert len(told["no_pods"]) == len(others)


def test_the_roles_of_a_training_job_are_placed(files: tuple[str, str], tmp_path: Path) -> None:
    roles = {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    manifest = tmp_path / "given.yaml"
    manifest.write_text(json.dumps(owner("PyTorchJob", pytorchReplicaSpecs=roles)))
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    outcomes = json.loads(done.output)["pods"]
    assert [each["pod"] for each in outcomes] == ["ml/d-master-", "ml/d-worker-", "ml/d-worker-"]
    assert all(each["node"] == "a" for each in outcomes)


def test_the_changes_and_warnings_of_the_webhook_are_shown(
    files: tuple[str, str], tmp_path: Path
) -> None:
    manifest = tmp_path / "given.yaml"
    main = {**POD["spec"]["containers"][0]}
    main["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]
    annotations = {"nvidia.com/use-gputyp": "T4"}
    pod = {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [main]}}
    manifest.write_text(json.dumps({"kind": "Pod", **pod}))
    done = CliRunner().invoke(hami, ["replay", files[0], str(manifest)], catch_exceptions=False)
    first, second, third, *_ = done.output.splitlines()
    assert first == "default/p: a (main: GPU-0)"
    assert second.startswith("  the webhook: metadata.annotations[nvidia.com/use-gputyp]")
    assert third.startswith("  the webhook: spec.containers[0].env[CUDA_DISABLE_CONTROL]")
    assert " is removed: " in third
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    (outcome,) = json.loads(done.output)["pods"]
    assert [f"  the webhook: {warning}" for warning in outcome["warnings"]] == [second, third]


def test_several_documents_with_nothing_between_them(
    files: tuple[str, str], tmp_path: Path
) -> None:
    manifest = tmp_path / "several.yaml"
    manifest.write_text("---\n---\n" + json.dumps(POD) + "\n---\n" + json.dumps(POD) + "\n---\n")
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    assert len(json.loads(done.output)["pods"]) == 2


@pytest.mark.parametrize(
    ("written", "field", "value", "fix"),
    [
        ("", "", "", "it has no pod"),
        ("---\n---\n", "", "", "it has no pod"),
        ("kind: List\nitems: []", "", "", "it has no pod"),
        ("kind: List\nitems: 3", "items", "3", "a list of manifests"),
        ("hello", "manifest", "hello", "manifests of pods"),
        ("- 1\n- 2", "manifest", "[1, 2]", "manifests of pods"),
        ("metadata: {name: d}", "kind", "", "manifests of pods"),
        ("kind: DaemonSet", "spec.template", "", "add it"),
        ("kind: CronJob", "spec.jobTemplate", "", "add it"),
        ("kind: CronJob\nspec: {jobTemplate: {}}", "spec.jobTemplate.spec", "", "add it"),
        (
            "kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: 3}}}}}",
            "spec.jobTemplate.spec.template.spec.containers",
            "int",
            "its type must be array",
        ),
        (
            "kind: X\n"
            "spec: {aReplicaSpecs: {W: {replicas: x, template: {spec: {containers: []}}}}}",
            "spec.aReplicaSpecs.W.replicas",
            "x",
            "from 0 to 10000",
        ),
        ("kind: {a: b}", "kind", "{'a': 'b'}", "manifests of pods"),
        ("kind: [Pod]", "kind", "['Pod']", "manifests of pods"),
        ("kind: Pod\nmetadata: {name: 3}", "metadata.name", "int", "its type must be str"),
        ("kind: Deployment", "spec.template", "", "add it"),
        ("kind: Deployment\nspec: {template: 3}", "spec.template", "", "add it"),
        (
            "kind: Job\nspec: {template: {spec: {containers: 3}}}",
            "spec.template.spec.containers",
            "int",
            "its type must be array",
        ),
        (
            "kind: Job\nspec: {parallelism: many, template: {spec: {}}}",
            "spec.parallelism",
            "many",
            "from 0 to 10000",
        ),
        (
            "kind: Deployment\nspec: {replicas: 1000000000, template: {spec: {}}}",
            "spec.replicas",
            "1000000000",
            "from 0 to 10000",
        ),
        (
            "kind: Job\nspec: {suspend: 1, template: {spec: {}}}",
            "spec.suspend",
            "1",
            "true or false",
        ),
        (
            "kind: Job\nspec: {completions: -1, template: {spec: {}}}",
            "spec.completions",
            "-1",
            "from 0 to 2147483647",
        ),
        ("kind: Pod\n  a: b: c", "line 2, column 4", "a: b: c", "mapping values are not allowed"),
        ("{", "line 1, column 2", "{", "well-formed YAML or JSON"),
        ("kind: *x", "line 1, column 7", "kind: *x", "undefined alias"),
        (
            "kind: !!python/name:os.system",
            "line 1, column 7",
            "kind: !!python/name:os.system",
            "tag",
        ),
        (
            'kind: Pod\nmetadata: {name: "\\ud800"}',
            "line 2, column 18",
            'metadata: {name: "\\ud800"}',
            "half of a character",
        ),
        ('"\\udc00\\ud800": Pod', "line 1, column 1", '"\\udc00\\ud800": Pod', "half"),
    ],
)
def test_an_invalid_manifest_is_reported_with_its_position(
    tmp_path: Path, written: str, field: str, value: str, fix: str
) -> None:
    manifest = tmp_path / "given.yaml"
    manifest.write_text(written)
    error = refused("replay", *snapshot_and_pod(tmp_path), str(manifest))
    assert isinstance(error, InvalidValue)
    assert error.field == (f"{manifest}: {field}" if field else str(manifest))
    assert error.value == value
    assert fix in error.fix


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5000 * "9", "int"),
        ("2001-99-99", "timestamp"),
        ("2001-02-30 25:61:00", "timestamp"),
        # In base 60, and more than a float holds.
        (f"{200 * '1:'}1.5", "float"),
        ("!!bool x", "bool"),
        ("!!bool {=: x}", "bool"),
        ("!!int ''", "int"),
        ("!!float ''", "float"),
        ("!!timestamp x", "timestamp"),
    ],
)
def test_an_unknown_value_is_reported(
    files: tuple[str, str], tmp_path: Path, value: str, kind: str
) -> None:
    """Python's own constructors fail there, behind the YAML."""
    manifest = tmp_path / "given.yaml"
    manifest.write_text(f"kind: Pod\nmetadata: {{name: {value}}}")
    error = refused("replay", files[0], str(manifest))
    assert isinstance(error, InvalidValue)
    assert error.field == f"{manifest}: line 2, column 18"
    assert error.fix.startswith(f"it is not a valid {kind}: if it is text, quote it")


def nested(begin: str, each: str, levels: int = 40) -> str:
    """Lines of which each names the one before ten times."""
    more = [
        f"a{at}: &a{at} {each}".replace("TEN", ", ".join(10 * [f"*a{at - 1}"]))
        for at in range(1, levels)
    ]
    return "\n".join([f"a0: &a0 {begin}", *more])


@pytest.mark.parametrize(
    ("written", "line", "problem"),
    [
        (nested("x", "[TEN]"), 7, "the aliases expand to too much"),
        (nested("x", "{k: [TEN]}"), 7, "the aliases expand to too much"),
        (nested("{k: v}", "{<<: [TEN]}"), 7, "the aliases expand to too much"),
        (f"a: &a {20_000 * 'x'}\nb: [{99 * '*a, '}]", 2, "the aliases expand to too much"),
        ("kind: &a [*a]", 1, "an alias is inside of the value that it names"),
        (
            f"kind: List\nitems: &a [{json.dumps(POD)}]\n---\nb: &a [*a]",
            4,
            "an alias is inside of the value that it names",
        ),
    ],
)
def test_aliases_that_expand_too_much_are_refused(
    files: tuple[str, str], tmp_path: Path, written: str, line: int, problem: str
) -> None:
    """A few lines can stand for 10^39 entries, which a refusal would have to write out."""
    manifest = tmp_path / "given.yaml"
    manifest.write_text(written)
    error = refused("replay", files[0], str(manifest))
    assert isinstance(error, InvalidValue)
    assert error.field.startswith(f"{manifest}: line {line}, ")
    assert error.fix.startswith(problem)


def test_aliases_of_yaml_are_expanded(files: tuple[str, str], tmp_path: Path) -> None:
    manifest = tmp_path / "given.yaml"
    limits = "limits: &one {nvidia.com/gpumem: 4k}"
    main = f"&main {{name: main, resources: {{{limits}}}}}"
    other = "{<<: *main, name: other, resources: {limits: *one}}"
    spec = f"{{containers: [{main}, {other}]}}"
    manifest.write_text(f"kind: Pod\nmetadata: {{name: p}}\nspec: {spec}")
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    (outcome,) = json.loads(done.output)["pods"]
    given = outcome["assignment"]["containers"]
    assert [given[name][0]["memory_mib"] for name in ("main", "other")] == [4000, 4000]


def test_bytes_that_are_no_text_are_reported(files: tuple[str, str], tmp_path: Path) -> None:
    manifest = tmp_path / "given.yaml"
    for content in (b"\xff\xfe\x00", b"kind: \xc3\x28", bytes(100)):
        manifest.write_bytes(content)
        assert str(manifest) in str(refused("replay", files[0], str(manifest)))


@pytest.mark.parametrize("name", ["\x1b[31mx\ny", "x\x9b31m", "\u202ex"])
@pytest.mark.parametrize("limits", [{"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 99}, {}])
def test_control_characters_in_a_name_are_escaped(
    files: tuple[str, str], tmp_path: Path, name: str, limits: dict[str, int]
) -> None:
    manifest = tmp_path / "given.yaml"
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    named = {"kind": "Pod", "metadata": {"name": name, "namespace": name}, "spec": spec}
    manifest.write_text(json.dumps(named))
    done = CliRunner().invoke(hami, ["replay", files[0], str(manifest)])
    assert done.exception is None, done.exception
    assert json.dumps(name)[1:-1] in done.output
    assert all(line.isprintable() for line in done.output.split("\n"))


@pytest.mark.parametrize("kind", ["\x1b[31mx\ny", "x\x9b31m", "\u202ex"])
def test_control_characters_in_a_refusal_are_escaped(
    files: tuple[str, str], tmp_path: Path, kind: str
) -> None:
    manifest = tmp_path / "given.yaml"
    manifest.write_text(json.dumps({"kind": [kind]}))
    said = str(refused("replay", files[0], str(manifest)))
    assert said.isprintable()
    manifest.write_text(json.dumps({"kind": kind}))
    done = CliRunner().invoke(hami, ["replay", files[0], str(manifest)], catch_exceptions=False)
    assert json.dumps(kind) in done.output
    assert all(line.isprintable() for line in done.output.split("\n"))


def test_control_characters_in_a_snapshots_names_are_escaped(tmp_path: Path) -> None:
    snapshot, manifest = map(Path, snapshot_and_pod(tmp_path))
    state = json.loads(snapshot.read_text())
    state["nodes"][0]["name"] = "a\x1b[31m"
    snapshot.write_text(json.dumps(state))
    for mib in ("4k", "40k"):
        manifest.write_text(json.dumps(POD).replace("4k", mib))
        done = CliRunner().invoke(hami, ["replay", str(snapshot), str(manifest)])
        assert done.exception is None, done.exception
        assert '"a\\u001b[31m"' in done.output
        assert "\x1b" not in done.output


def test_a_character_that_json_writes_as_two(files: tuple[str, str], tmp_path: Path) -> None:
    manifest = tmp_path / "given.json"
    manifest.write_text(json.dumps({**POD, "metadata": {"name": "\U0001f600"}}))
    assert "ud83d" in manifest.read_text()
    done = CliRunner().invoke(hami, ["replay", "--json", files[0], str(manifest)])
    assert json.loads(done.output)["pods"][0]["pod"] == "default/\U0001f600"
