"""The settings file: what is wrong in it, and that all who read it judge by it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from hami_py._native import Allocator
from hami_py.cli import hami
from hami_py.errors import InvalidValue, StateError
from hami_py.kube import ApiServer, read_settings
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI, PodSettings, wire
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.timing import Timing
from hami_py.scheduler.verbs import Verbs
from hami_py.webhook.review import Reviewer
from support.artifacts import ROOT
from support.asking import filtered
from unit.asked import refused, snapshot_and_pod
from unit.scheduler.small import Server, node
from unit.webhook.test_review import ask, patched

Written = Callable[[str], str]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """``written(text)`` is a settings file with this in it."""

    def write(text: str) -> str:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_an_empty_file_is_all_defaults(written: Written) -> None:
    for text in ("", "---\n", "# nothing", "{}"):
        assert read_settings(written(text)) == PodSettings()


def test_every_field_can_be_said(written: Written) -> None:
    meant = PodSettings(
        profiles=(ALIYUN, HAMI),
        default_cards=2,
        default_memory_mib=1000,
        default_cores=10,
        whole_card_cores=50,
        max_cards=8,
        max_memory_mib=81920,
        small_memory_mib=0,
        core_policy="force",
        schedulers=("one", "two"),
        allowed_preloads=("/a.so",),
        guarded_mounts=("/b",),
        guarded_host_paths=(),
    )
    said = {field.name: getattr(meant, field.name) for field in fields(meant)}
    assert all(said[field.name] != field.default for field in fields(meant))
    said["profiles"] = ["aliyun", "hami"]
    # JSON is YAML.
    assert read_settings(written(json.dumps(said))) == meant


@pytest.mark.parametrize(
    ("text", "field", "value", "mend"),
    [
        ("default_card: 1", "default_card", "1", "did you mean default_cards?"),
        ("replicas: 1", "replicas", "1", "there is no such field; write allowed_preloads, "),
        ('"\\e[31m": 1', '"\\u001b[31m"', "1", "there is no such field"),
        ("1: 2", "1", "2", "there is no such field"),
        ("- 1", "settings", "a list", "write fields"),
        ("hello", "settings", "hello", "write fields"),
        ("default_cards: '2'", "default_cards", "2", "write a whole number"),
        ("default_cards: 1.0", "default_cards", "1.0", "write a whole number"),
        ("default_cards: true", "default_cards", "true", "write a whole number"),
        ("default_cards:", "default_cards", "null", "write a whole number"),
        ("default_cards: [1]", "default_cards", "a list", "write a whole number"),
        ("max_cards: 17", "max_cards", "17", "from 1 to 16"),
        ("max_cards: 2\ndefault_cards: 3", "default_cards", "3", "from 0 to 2"),
        ("small_memory_mib: -1", "small_memory_mib", "-1", "from 0 to"),
        (f"max_cards: 0x{5000 * 'f'}", "max_cards", f"0x{5000 * 'f'}", "a smaller number"),
        ("max_memory_mib: 500\nprofiles: [aliyun]", "max_memory_mib", "500", "from 1024 to"),
        ("core_policy: off", "core_policy", "false", "write default, force or disable"),
        ("profiles: [hami, nvidia]", "profiles[1]", "nvidia", "write hami or aliyun"),
        ("profiles: [hami, hami]", "profiles", "hami", "name each once"),
        ("profiles: []", "profiles", "", "name one at least"),
        ("schedulers: one", "schedulers", "one", "write a list"),
        ("schedulers: [one, 2]", "schedulers[1]", "2", "in quotes"),
        ("schedulers: [2001-01-01]", "schedulers[0]", "2001-01-01", "in quotes"),
        ("schedulers: &a [*a]", "line 1, column 17", "schedulers: &a [*a]", "within what it names"),
        ("default_cards: !!bool x", "line 1, column 16", "default_cards: !!bool x", "as bool"),
        ("max_cards: !!int ''", "line 1, column 12", "max_cards: !!int ''", "as int"),
        ("? !!timestamp x\n: 1", "line 1, column 3", "? !!timestamp x", "as timestamp"),
        ("schedulers: [{a: b}]", "schedulers[0]", "a mapping", "in quotes"),
        ("schedulers: ['']", "schedulers", "", "as kubectl shows it"),
        ("allowed_preloads: [a.so]", "allowed_preloads", "a.so", "a path from the root"),
        ("guarded_mounts: [a]", "guarded_mounts", "a", "a path from the root"),
        ("guarded_host_paths: [/a/]", "guarded_host_paths", "/a/", "a slash at its end"),
        ("max_cards: 1\nmax_cards: 1", "line 2, column 1", "max_cards: 1", "it stands there twice"),
        ("max_cards: 1: 2", "line 1, column 13", "max_cards: 1: 2", "well-formed YAML"),
        ("? [a]\n: 1", "line 1, column 3", "? [a]", "unhashable key"),
        ("a: 1\n---\nb: 1", "", "2 documents", "write all fields into one"),
    ],
)
def test_what_is_wrong_is_said_with_file_field_value_and_mend(
    written: Written, text: str, field: str, value: str, mend: str
) -> None:
    path = written(text)
    with pytest.raises(InvalidValue) as told:
        read_settings(path)
    assert told.value.field == (f"{path}: {field}" if field else path)
    assert told.value.value == value
    assert mend in told.value.mend
    assert "\n" not in str(told.value)
    assert str(told.value).isprintable()


COMMANDS = [
    ("webhook",),
    ("scheduler",),
    ("explain", "pod", "p"),
    ("snapshot",),
    ("what-if", "--snapshot", "STATE", "POD"),
    ("replay", "STATE", "POD"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_reads_it_and_ends_with_one_line(
    written: Written, tmp_path: Path, command: tuple[str, ...]
) -> None:
    state, manifest = snapshot_and_pod(tmp_path)
    given = [{"STATE": state, "POD": manifest}.get(each, each) for each in command]
    path = written("default_cards: many")
    program = [sys.executable, "-m", "hami_py", *given, "--settings", path]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    said = f'hami: {path}: default_cards: "many" is refused: write a whole number\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    absent = refused(*given, "--settings", str(tmp_path / "missing"))
    assert isinstance(absent, StateError)
    assert "missing" in str(absent)
    with pytest.raises(Exception, match="is a directory"):
        hami.main([*given, "--settings", str(tmp_path)], standalone_mode=False)


@pytest.mark.parametrize(
    ("field", "option", "value"),
    [("schedulers", "--scheduler", "one"), ("allowed_preloads", "--allow-preload", "/a.so")],
)
@pytest.mark.parametrize("command", ["webhook", "what-if", "replay"])
def test_an_option_does_not_overrule_the_file(
    written: Written, command: str, field: str, option: str, value: str
) -> None:
    """It would in this program alone."""
    path = written(f"{field}: [{value}]")
    manifests = {"what-if": ("pod.yaml",), "replay": ("state.json", "pod.yaml")}.get(command, ())
    error = refused(command, *manifests, "--settings", path, option, value)
    assert isinstance(error, InvalidValue)
    assert (error.field, error.value) == (option, value)
    assert f"{path} has {field}" in error.mend


def what_if(tmp_path: Path, pod: dict[str, Any], *options: str) -> dict[str, Any]:
    """Where the pod goes, on a snapshot of one node with one card of 16,384 MiB.

    Both commands that can be asked say the same, to a person and to a program.
    """
    state, manifest = snapshot_and_pod(tmp_path)
    Path(manifest).write_text(json.dumps(pod))
    asked = (["what-if", "--snapshot", state, manifest], ["replay", state, manifest])
    said = [
        [
            CliRunner().invoke(hami, [*given, *options, *form], catch_exceptions=False).output
            for form in ([], ["--json"])
        ]
        for given in asked
    ]
    assert said[0] == said[1]
    text, written = said[0]
    told = json.loads(written)
    assert text.splitlines()[-1] == f"state {told['state']}"
    (outcome,) = told["pods"]
    return dict(outcome)


def pod_of(limits: dict[str, Any], uid: str = "u", **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "resources": {"limits": limits}, **spec.pop("main", {})}
    metadata = {"name": "p", "namespace": "ml", "uid": uid}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **spec}}


GPU = {"nvidia.com/gpu": "1"}
TCMALLOC = {"main": {"env": [{"name": "LD_PRELOAD", "value": "/lib/tc.so"}]}}


@pytest.mark.parametrize(
    ("spec", "option", "field"),
    [
        ({"schedulerName": "one"}, ("--scheduler", "one"), "schedulers: [one]"),
        (TCMALLOC, ("--allow-preload", "/lib/tc.so"), "allowed_preloads: [/lib/tc.so]"),
    ],
)
def test_what_if_judges_as_the_webhook_is_told(
    written: Written, tmp_path: Path, spec: dict[str, Any], option: tuple[str, str], field: str
) -> None:
    pod = pod_of(GPU, **spec)
    assert what_if(tmp_path, pod, *option)["node"] == "a"
    assert what_if(tmp_path, pod, "--settings", written(field))["node"] == "a"
    other = ("--scheduler", "two", "--allow-preload", "/lib/other.so")
    assert what_if(tmp_path, pod, *other)["node"] is None


def test_defaults_of_the_file_are_those_of_the_answer(written: Written, tmp_path: Path) -> None:
    path = written("default_memory_mib: 3000\nwhole_card_cores: 0\ndefault_cores: 20")
    for command in ("what-if", "replay"):
        state, manifest = snapshot_and_pod(tmp_path)
        Path(manifest).write_text(json.dumps(pod_of(GPU)))
        source = ["--snapshot", state] if command == "what-if" else [state]
        given = [command, "--json", *source, manifest, "--settings", path]
        done = CliRunner().invoke(hami, given, catch_exceptions=False)
        (share,) = json.loads(done.output)["pods"][0]["assignment"]["containers"]["main"]
        assert (share["memory_mib"], share["cores"]) == (3000, 20)


# The names of Alibaba Cloud.

THEIRS = {"aliyun.com/gpu-mem": "4", "aliyun.com/gpu-core.percentage": "30"}
ON = ROOT / "deploy" / "aliyun" / "settings.yaml"
OFF = ROOT / "deploy" / "settings.yaml"


def extender(settings: PodSettings) -> Verbs:
    """One that knows a node ``a`` with a card of 10,000 MiB."""
    cluster = Cluster(Allocator(), settings)
    cluster.nodes.replace([node("a", 1)])
    for sink in (cluster.pods, cluster.quotas, cluster.budgets):
        sink.replace([])
    return Verbs(cluster, cast(ApiServer, Server()), Timing())


def told_of(verbs: Verbs, pod: dict[str, Any]) -> None:
    verbs._cluster.pods.changed(pods.decode_pod.convert(pod))


def room(verbs: Verbs) -> int:
    """MiB that a pod may have at most, as the filter says."""
    least, most = 0, 1 << 20
    while most - least > 1:
        middle = (least + most) // 2
        asked = pods.decode_pod.convert(pod_of({"nvidia.com/gpumem": str(middle)}, uid="other"))
        fits = bool(filtered(verbs, asked, ["a"]).node_names)
        least, most = (middle, most) if fits else (least, middle)
    return least


def mutated(settings: PodSettings, pod: dict[str, Any]) -> dict[str, Any]:
    response = ask(Reviewer(settings), "mutate", pod)
    assert response["allowed"]
    return dict(patched(pod, response))


def test_webhook_and_extender_read_the_names_that_the_file_turns_on() -> None:
    settings = read_settings(ON)
    pod = mutated(settings, pod_of(THEIRS))
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    assert pod["metadata"]["labels"] == {"hami.io/pod": "true"}
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["limits"] == {**THEIRS, **GPU}
    assert {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "4096m"} in main["env"]
    verbs = extender(settings)
    asked = pods.decode_pod.convert(pod)
    assert filtered(verbs, asked, ["a", "none"]).node_names == ["a"]
    refused_there = pods.decode_pod.convert(pod_of({**THEIRS, "aliyun.com/gpu-mem": "10"}))
    said = filtered(verbs, refused_there, ["a"])
    assert "too little memory" in said.failed_and_unresolvable_nodes["a"]


def test_they_are_left_alone_where_it_does_not() -> None:
    settings = read_settings(OFF)
    pod = pod_of(THEIRS)
    assert mutated(settings, pod) == pod
    verbs = extender(settings)
    # All nodes: it is no pod of ours.
    both = ["a", "none"]
    assert filtered(verbs, pods.decode_pod.convert(pod), both).node_names == both


def bound(pod: dict[str, Any], mib: int) -> dict[str, Any]:
    """The pod with its cards, as the binding writes it."""
    share = wire.Grant("GPU-a-0", mib, 30)
    assignment = wire.Assignment(1, "u", "a", {"main": (share,)})
    given = pods.encode_assignment(assignment)
    metadata = {**pod["metadata"], "annotations": {pods.annotations.ASSIGNMENT: given}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "a"}}


def test_who_has_cards_keeps_them_when_settings_are_taken_back(written: Written) -> None:
    theirs = bound(mutated(read_settings(ON), pod_of(THEIRS)), 4096)
    lowered = PodSettings(max_memory_mib=1000, default_memory_mib=500)
    for settings in (read_settings(ON), read_settings(OFF)):
        verbs = extender(settings)
        assert room(verbs) == 10_000
        told_of(verbs, theirs)
        assert room(verbs) == 10_000 - 4096
    verbs = extender(lowered)
    told_of(verbs, bound(pod_of({"nvidia.com/gpumem": "9500"}), 9500))
    assert room(verbs) == 500


def test_where_the_webhook_wrote_nothing_the_extenders_default_counts() -> None:
    """As while new settings roll out."""
    pod = mutated(PodSettings(), pod_of(GPU))
    read = pods.read_request(pods.decode_pod.convert(pod), PodSettings(default_memory_mib=4096))
    assert read is not None
    assert read.asks[0].memory == wire.Size(mib=4096)
    wrote = mutated(PodSettings(default_memory_mib=4096), pod_of(GPU))
    read = pods.read_request(pods.decode_pod.convert(wrote), PodSettings())
    assert read is not None
    assert read.asks[0].memory == wire.Size(mib=4096)


def test_both_programs_say_by_what_they_judge(written: Written, tmp_path: Path) -> None:
    """In the same line, however it was said: by the file, or by an option."""
    kubeconfig = tmp_path / "config"
    server = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    lists = {"clusters": [server], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    kubeconfig.write_text(json.dumps({**config, **lists}))
    path = written("schedulers: [one]\nprofiles: [hami, aliyun]\ndefault_cards: 2")
    said = "hami: settings: profiles: hami, aliyun; default_cards: 2; schedulers: one"
    # Nobody can listen there: they end before they ask for the API server, or when they do.
    where = ("--listen", "203.0.113.1:9380", "--kubeconfig", str(kubeconfig))
    for command in ("webhook", "scheduler"):
        program = [sys.executable, "-m", "hami_py", command, "--settings", path, *where]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
        )
        assert done.stderr.splitlines()[0] == said, done.stderr
        assert done.returncode == 1
