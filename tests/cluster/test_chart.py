"""deploy/chart, as Helm reads it: no cluster is needed."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from cluster.api import Object
from cluster.charts import CHART, helm, one, rendered, template, template_of, values
from cluster.monitoring import grafana
from cluster.monitoring.rules import RULES
from hami_py.model import pods

pytestmark = [
    pytest.mark.programs("helm", "helm3"),
    pytest.mark.usefixtures("programs"),
]

GROUPS = ["helm", "helm3"]

KUBE_SCHEDULER = "scheduler.kubeScheduler"

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def paths(given: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Every value and every section."""
    for name, each in given.items():
        yield before + name
        if isinstance(each, dict):
            yield from paths(each, f"{before}{name}.")


def refused(*arguments: str | Path) -> str:
    """What helm says."""
    done = helm("template", "hami", CHART, *arguments)
    assert done.returncode != 0, arguments
    return done.stderr


@pytest.mark.parametrize("group", GROUPS)
def test_helm_finds_nothing_wrong(group: str) -> None:
    done = helm("lint", "--strict", CHART, group=group)
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


def test_both_versions_of_helm_render_the_same() -> None:
    first, second = ([*yaml.safe_load_all(template(group=group))] for group in GROUPS)
    key = json.dumps
    assert sorted(map(key, first)) == sorted(map(key, second))


def names(made: Sequence[Object]) -> set[tuple[str, str]]:
    """The kinds and names of the objects."""
    return {(each["kind"], each["metadata"]["name"]) for each in made}


@pytest.fixture(scope="module")
def by_default() -> set[tuple[str, str]]:
    return names(rendered())


@pytest.mark.parametrize("path", [*paths(values())])
def test_each_value_can_be_null(path: str, by_default: set[tuple[str, str]]) -> None:
    """The objects are the same ones, and no field of theirs is empty by accident."""
    made = rendered("--set", f"{path}=null")
    assert names(made) == by_default
    text = json.dumps(made)
    for wrong in ("<nil>", "<no value>", "%!", '""/', ": null"):
        assert wrong not in text, wrong


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ("webhok.replicas=1", ""),
        ("webhook.replica=1", "webhook"),
        ("webhook.replicas=two", "webhook.replicas"),
        ("webhook.replicas=0", "webhook.replicas"),
        ("image=hami-py:1", "image"),
        ("image.repository=registry.example/hami-py:1", "image.repository"),
        ("scheduler.kubeScheduler.image.repository=k:1", f"{KUBE_SCHEDULER}.image.repository"),
        ("image.pullPolicy=Sometimes", "image.pullPolicy"),
        ("imagePullSecrets[0]=mine", "imagePullSecrets.0"),
        ("settings.default_core=30", "settings"),
        ("settings.profiles={hami,acme}", "settings.profiles.1"),
        ("settings.default_cores=130", "settings.default_cores"),
        ("settings.share_modes.research=firm", "settings.share_modes.research"),
        ("settings.isolations.research=any", "settings.isolations.research"),
        ("node.label=gpu", "node.label"),
        ("node.slots=5000", "node.slots"),
        ("node.kubeletDirectory=kubelet", "node.kubeletDirectory"),
        ("node.kill={everything}", "node.kill.0"),
        ("node.waitFor=toolkit-ready", "node.waitFor"),
        ("node.resources.limit.memory=1Gi", "node.resources"),
        ("node.resources.limits.memory=256mb", "node.resources.limits.memory"),
        ("node.nvidiaCtk=nvidia-ctk --debug", "node.nvidiaCtk"),
        ("node.migInstances=2", "node.migInstances"),
        ("webhook.certificates.source=secret", "webhook.certificates.secretName"),
        ("networkPolicies.enabled=true", "networkPolicies.apiServer.addresses"),
        ("networkPolicies.apiServer.addresses={10.0.0.1}", "networkPolicies.apiServer.addresses.0"),
        ("policies.resize=1", "policies.resize"),
        ("policies.resizeGroups=admins", "policies.resizeGroups"),
        ("policies.visibleDevicesNamespaces={A}", "policies.visibleDevicesNamespaces.0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(arguments: str, path: str) -> None:
    said = refused("--set", arguments)
    pointer = "".join(f"/{each}" for each in path.split(".") if each)
    assert f"at '{pointer}'" in said


def test_the_schema_knows_the_fields_of_the_settings_file() -> None:
    known = SCHEMA["properties"]["settings"]["properties"]
    assert known.keys() == {field.name for field in fields(pods.PodSettings)}
    types = get_type_hints(pods.PodSettings)
    for name in ("core_policy", "share_mode", "unassigned"):
        assert known[name]["enum"] == [*get_args(types[name]), None]


def test_a_settings_file_can_be_the_value() -> None:
    written = {"default_memory_mib": 4096, "share_modes": {"research": "soft"}}
    made = rendered("--set-json", f"settings={json.dumps(written)}")
    text = one(made, "ConfigMap", "hami-settings")["data"]["settings.yaml"]
    expected = {**written, "schedulers": ["hami-scheduler"]}
    assert pods.decode_settings(yaml.safe_load(text)) == pods.decode_settings(expected)


def test_other_directories_of_the_node_are_guarded_too() -> None:
    """No pod may mount them writable, as in `hami_py/model/pods/settings.py`."""
    written = "node.kubeletDirectory=/data/kubelet,node.cdiDirectories={/etc/cdi,/data/cdi}"
    made = rendered("--set", written)
    settings = one(made, "ConfigMap", "hami-settings")
    found = pods.decode_settings(yaml.safe_load(settings["data"]["settings.yaml"]))
    more = ("/data/cdi", "/data/kubelet/device-plugins")
    assert found.guarded_host_paths == (*pods.PodSettings().guarded_host_paths, *more)
    # The agent has them at the same paths.
    (container,) = template_of(made, "DaemonSet")["containers"]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {*more, "/data/kubelet/pod-resources", "/etc/cdi"} <= mounts
    assert "--kubelet-directory=/data/kubelet" in container["args"]


def test_the_cleanup_removes_the_specification_where_the_agent_writes_it() -> None:
    """The last directory may be any of the node."""
    for written in ("/etc/cdi", "/var/run/cdi", "/data/cdi"):
        made = rendered("--set", f"cleanup=true,node.cdiDirectories={{/opt/cdi,{written}}}")
        pod = template_of(made, "DaemonSet")
        (container,) = pod["containers"]
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        volumes = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
        (named,) = [each for each in container["args"] if each.startswith("--cdi-directory=")]
        assert volumes[mounts[named.partition("=")[2]]] == written


def test_a_registry_may_have_a_port() -> None:
    made = rendered("--set", "image.repository=registry.example:5000/team/hami-py,image.tag=v1")
    (container,) = template_of(made, "DaemonSet")["containers"]
    assert container["image"] == "registry.example:5000/team/hami-py:v1"


def test_the_default_pods_are_watched_where_none_are_named() -> None:
    """An empty selector is another one: all pods."""
    for written in ("null", "", "a=b"):
        made = rendered("--set", f"scheduler.podSelector={written}")
        text = json.dumps(one(made, "Deployment", "hami-scheduler"))
        found = re.findall(r'"(--pod-selector=[^"]*)"', text)
        assert found == ([] if written == "null" else [f"--pod-selector={written}"])


@pytest.mark.parametrize(
    "file", sorted((CHART / "values").glob("*.yaml")), ids=lambda file: file.stem
)
def test_the_values_of_a_distribution_are_accepted(file: Path) -> None:
    assert rendered("--values", file) != rendered()
    # tests/cluster/test_node_life.py tries the Operator's.
    assert ("Untested" in file.read_text()) == (file.stem != "gpu-operator")


def test_the_agents_pod_waits_for_a_file_and_gives_up_after_a_while(tmp_path: Path) -> None:
    file = tmp_path / "validations" / "toolkit-ready"
    made = rendered("--set", f"node.waitFor={file}")
    spec = template_of(made, "DaemonSet")
    (wait,) = spec["initContainers"]
    (mount,) = wait["volumeMounts"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert mount["mountPath"] == volume["hostPath"]["path"] == str(file.parent)
    # A second passes at once.
    (tmp_path / "sleep").symlink_to("/bin/true")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    waited = partial(subprocess.run, wait["command"], env=env, capture_output=True, text=True)
    done = waited(check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{file} is not there after 300 s" in done.stdout
    file.parent.mkdir()
    file.touch()
    assert waited(check=True).stdout == f"hami: waiting for {file} on the node\n"


def test_a_certificate_of_cert_manager_is_for_the_webhooks_service() -> None:
    made = rendered("--set", "webhook.certificates.source=cert-manager")
    wanted = one(made, "Certificate")
    assert "hami-webhook.hami-system.svc" in wanted["spec"]["dnsNames"]
    args = template_of(made, "Deployment", "hami-webhook")["containers"][0]["args"]
    assert f"--certificate-secret={wanted['spec']['secretName']}" in args
    # cert-manager's Secret is not of the release, and the webhook may only read it.
    assert not [each for each in made if each["kind"] == "Secret"]
    role = one(made, "Role", "webhook")
    assert role["rules"][0]["verbs"] == ["get"]
    assert role["rules"][0]["resourceNames"] == [wanted["spec"]["secretName"]]


def test_the_view_has_no_rights() -> None:
    """No binding names its account, whose token is not mounted; by default it is not there."""
    assert "hami-view" not in {name for kind, name in names(rendered()) if kind == "Deployment"}
    made = rendered("--set", "view.enabled=true")
    spec = template_of(made, "Deployment", "hami-view")
    assert spec["automountServiceAccountToken"] is False
    subjects = [subject["name"] for each in made for subject in each.get("subjects", ())]
    assert spec["serviceAccountName"] not in subjects
    assert [each["configMap"]["name"] for each in spec["volumes"]] == [
        *("hami-settings", "kube-root-ca.crt")
    ]


def test_changed_settings_replace_the_pods() -> None:
    def templates(*arguments: str) -> list[Any]:
        made = rendered(*arguments)
        return [
            each["spec"]["template"] for each in made if each["kind"] in ("Deployment", "DaemonSet")
        ]

    for change in ("settings.default_cores=30", "scheduler.name=other"):
        pairs = zip(templates(), templates("--set", change), strict=True)
        assert all(before != after for before, after in pairs)


def test_the_names_follow_the_release_and_the_namespace() -> None:
    """No object of another release is named `hami-…`, and no namespace is written down."""
    of = ("--set", "scheduler.name=mine", "--namespace", "here")
    text = template(*of, release="mine")
    assert not re.findall(r"(?<!mine-)\bhami-(?:webhook|node|scheduler|settings|system)\b", text)
    # It is in the extender, too.
    assert "name: hami-wake" in text
    for each in yaml.safe_load_all(text):
        assert each["metadata"]["name"].startswith(("mine-hami-", "hami-wake"))
        assert each["metadata"].get("namespace", "here") == "here"


def test_the_scheduler_is_that_of_the_cluster() -> None:
    for version, tag in (
        ("v1.33.5", "v1.33.5"),
        ("v1.34.1-gke.100", "v1.34.1"),
        ("v1.31.4+k3s1", "v1.31.4"),
    ):
        text = template("--kube-version", version)
        assert re.findall(r"image: registry.k8s.io/kube-scheduler:(\S+)", text) == [tag]


def test_an_older_cluster_is_refused() -> None:
    assert "kubeVersion" in refused("--kube-version", "v1.29.9")


def test_extra_objects_are_expanded() -> None:
    extra = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "{{ .Release.Name }}-x"}}
    made = rendered("--set-json", f"extraObjects=[{json.dumps(extra)}]")
    assert "hami-x" in [each["metadata"]["name"] for each in made]


def test_prometheus_and_grafana_get_the_rules_and_the_dashboards() -> None:
    made = rendered("--set", "metrics.prometheusRule=true,metrics.dashboards=true")
    assert one(made, "PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text())
    label = {"grafana_dashboard": "1"}
    found = [each for each in made if label.items() <= each["metadata"].get("labels", {}).items()]
    texts = {name: text for each in found for name, text in each["data"].items()}
    assert {name: json.loads(text) for name, text in texts.items()} == {
        path.name: json.loads(text) for path, text in grafana.files().items()
    }
