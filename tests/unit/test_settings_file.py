"""The settings file: its errors, and the commands that read it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hami_py.cli import hami
from hami_py.errors import InvalidValue, StateError
from hami_py.kube import read_settings
from hami_py.model.pods import ALIYUN, HAMI, PodSettings
from unit.cluster_commands import GPU, pod_of, refused, snapshot_and_pod

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


def test_every_field_can_be_set(written: Written) -> None:
    meant = PodSettings(
        profiles=(ALIYUN, HAMI),
        default_cards=2,
        default_memory_mib=1000,
        default_cores=10,
        core_policy="force",
        share_mode="soft",
        share_modes={"lab": "hard", "ml": "soft"},
        isolations={"lab": "preload", "ml": "kernel"},
        kernel_limits="any",
        schedulers=("one", "two"),
        allowed_preloads=("/a.so",),
        guarded_host_paths=(),
        unassigned="whole-card",
    )
    said = {field.name: getattr(meant, field.name) for field in fields(meant)}
    defaults = PodSettings()
    assert all(said[field.name] != getattr(defaults, field.name) for field in fields(meant))
    said["profiles"] = ["aliyun", "hami"]
    # JSON is YAML.
    assert read_settings(written(json.dumps(said))) == meant


@pytest.mark.parametrize(
    ("text", "field", "value", "fix"),
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
        ("default_cards: 17", "default_cards", "17", "from 0 to 16"),
        ("default_memory_mib: -1", "default_memory_mib", "-1", "from 0 to 1048575"),
        (f"default_cores: 0x{5000 * 'f'}", "default_cores", f"0x{5000 * 'f'}", "a smaller number"),
        ("core_policy: off", "core_policy", "false", "write default, force or disable"),
        ("share_mode: Soft", "share_mode", "Soft", "write hard or soft"),
        ("share_modes: soft", "share_modes", "soft", "write a mapping"),
        ("share_modes: {lab: 1}", "share_modes[lab]", "1", "write hard or soft"),
        ("share_modes: {lab: lend}", "share_modes[lab]", "lend", "write hard or soft"),
        ("share_modes: {1: soft}", "share_modes", "1", "quote"),
        ("share_modes: {Lab: soft}", "share_modes", "Lab", "as kubectl shows it"),
        ("isolations: {lab: any}", "isolations[lab]", "any", "write preload, kernel or mig"),
        ("isolations: {Lab: mig}", "isolations", "Lab", "as kubectl shows it"),
        ("profiles: [hami, nvidia]", "profiles[1]", "nvidia", "write hami or aliyun"),
        ("profiles: [hami, hami]", "profiles", "hami", "name each profile once"),
        ("profiles: []", "profiles", "", "name at least one"),
        ("schedulers: one", "schedulers", "one", "write a list"),
        ("schedulers: [one, 2]", "schedulers[1]", "2", "quote"),
        ("schedulers: [2001-01-01]", "schedulers[0]", "2001-01-01", "quote"),
        (
            "schedulers: &a [*a]",
            "line 1, column 17",
            "schedulers: &a [*a]",
            "inside of the value that it names",
        ),
        (
            "default_cards: !!bool x",
            "line 1, column 16",
            "default_cards: !!bool x",
            "not a valid bool",
        ),
        ("some_cards: !!int ''", "line 1, column 13", "some_cards: !!int ''", "not a valid int"),
        ("? !!timestamp x\n: 1", "line 1, column 3", "? !!timestamp x", "not a valid timestamp"),
        ("schedulers: [{a: b}]", "schedulers[0]", "a mapping", "quote"),
        ("schedulers: ['']", "schedulers", "", "as kubectl shows it"),
        ("allowed_preloads: [a.so]", "allowed_preloads", "a.so", "an absolute path"),
        ("guarded_host_paths: [/a/]", "guarded_host_paths", "/a/", "a slash at the end"),
        ("a_field: 1\na_field: 1", "line 2, column 1", "a_field: 1", "the key is repeated"),
        ("a_field: 1: 2", "line 1, column 11", "a_field: 1: 2", "well-formed YAML"),
        ("? [a]\n: 1", "line 1, column 3", "? [a]", "unhashable key"),
        ("a: 1\n---\nb: 1", "", "2 documents", "write all fields into one"),
    ],
)
def test_an_error_has_file_field_value_and_fix(
    written: Written, text: str, field: str, value: str, fix: str
) -> None:
    path = written(text)
    with pytest.raises(InvalidValue) as told:
        read_settings(path)
    assert told.value.field == (f"{path}: {field}" if field else path)
    assert told.value.value == value
    assert fix in told.value.fix
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
def test_an_option_does_not_override_the_file(
    written: Written, command: str, field: str, option: str, value: str
) -> None:
    """It would in this program alone."""
    path = written(f"{field}: [{value}]")
    manifests = {"what-if": ("pod.yaml",), "replay": ("state.json", "pod.yaml")}.get(command, ())
    error = refused(command, *manifests, "--settings", path, option, value)
    assert isinstance(error, InvalidValue)
    assert (error.field, error.value) == (option, value)
    assert f"{path} sets {field}" in error.fix


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


TCMALLOC = {"main": {"env": [{"name": "LD_PRELOAD", "value": "/lib/tc.so"}]}}


@pytest.mark.parametrize(
    ("spec", "option", "field"),
    [
        ({"schedulerName": "one"}, ("--scheduler", "one"), "schedulers: [one]"),
        (TCMALLOC, ("--allow-preload", "/lib/tc.so"), "allowed_preloads: [/lib/tc.so]"),
    ],
)
def test_what_if_uses_the_settings_of_the_webhook(
    written: Written, tmp_path: Path, spec: dict[str, Any], option: tuple[str, str], field: str
) -> None:
    pod = pod_of(GPU, **spec)
    assert what_if(tmp_path, pod, *option)["node"] == "a"
    assert what_if(tmp_path, pod, "--settings", written(field))["node"] == "a"
    other = ("--scheduler", "two", "--allow-preload", "/lib/other.so")
    assert what_if(tmp_path, pod, *other)["node"] is None


def test_defaults_of_the_file_are_used_in_answers(written: Written, tmp_path: Path) -> None:
    path = written("default_memory_mib: 3000\ndefault_cores: 20")
    for command in ("what-if", "replay"):
        state, manifest = snapshot_and_pod(tmp_path)
        Path(manifest).write_text(json.dumps(pod_of(GPU)))
        source = ["--snapshot", state] if command == "what-if" else [state]
        given = [command, "--json", *source, manifest, "--settings", path]
        done = CliRunner().invoke(hami, given, catch_exceptions=False)
        (share,) = json.loads(done.output)["pods"][0]["assignment"]["containers"]["main"]
        assert (share["memory_mib"], share["cores"]) == (3000, 20)


def test_both_programs_log_their_settings(written: Written, tmp_path: Path) -> None:
    """In the same line, however it was said: by the file, or by an option."""
    kubeconfig = tmp_path / "config"
    server = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "x"}
    lists = {"clusters": [server], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    kubeconfig.write_text(json.dumps({**config, **lists}))
    path = written(
        "schedulers: [one]\nprofiles: [hami, aliyun]\ndefault_cards: 2\n"
        "share_modes: {lab: soft, ml: hard}"
    )
    said = (
        "hami: settings: profiles: hami, aliyun; default_cards: 2; share_modes: lab=soft, ml=hard; "
        "schedulers: one"
    )
    # No program can listen there: they end before they call the API server, or when they do.
    where = ("--listen", "203.0.113.1:9380", "--kubeconfig", str(kubeconfig))
    for command in ("webhook", "scheduler"):
        program = [sys.executable, "-m", "hami_py", command, "--settings", path, *where]
        done = subprocess.run(
            program, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
        )
        assert done.stderr.splitlines()[0] == said, done.stderr
        assert done.returncode == 1
