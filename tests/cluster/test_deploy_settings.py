"""One edit of the settings reaches both Deployments, and all parts use the same resource names.

The tests render deploy/ and the kustomizations of docs/install.md with `kubectl kustomize`, and the
chart with Helm, without a cluster.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.api import Object
from cluster.charts import one, rendered, template_of
from cluster.deployed import DEPLOY
from hami_py._native import VERSION
from hami_py.model import pods
from hami_py.model.pods import ALIYUN, HAMI

pytestmark = [pytest.mark.programs("kubectl", "helm"), pytest.mark.usefixtures("programs")]

PAGE, SETTINGS = (
    (DEPLOY.parent / "docs" / f"{name}.md").read_text() for name in ("install", "settings")
)


def kustomized(folder: Path) -> list[Object]:
    """The objects that would be applied."""
    program = binaries.folder("kubectl") / "kubectl"
    command = [str(program), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_the_page(folder: Path, word: str) -> Path:
    """The kustomization of the page with this word in it, beside a copy of deploy/."""
    (wanted,) = re.findall(rf"^```yaml\n([^`]*\b{word}:[^`]*)^```$", PAGE, re.M)
    (folder / "kustomization.yaml").write_text(wanted)
    shutil.copytree(DEPLOY, folder / "hami" / "deploy")
    return folder


def mounted(made: list[Object], part: str) -> Any:
    """The ConfigMap with the settings that a Deployment's program is told to read."""
    deployment = template_of(made, "Deployment", f"hami-{part}")
    (container,) = [
        each for each in deployment["containers"] if each["image"].startswith("hami-py")
    ]
    (file,) = [
        each.removeprefix("--settings=")
        for each in container["args"]
        if each.startswith("--settings=")
    ]
    folder, _, key = file.rpartition("/")
    (volume,) = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == folder]
    (name,) = [
        each["configMap"]["name"] for each in deployment["volumes"] if each["name"] == volume
    ]
    config = one(made, "ConfigMap", name)
    assert config["metadata"]["namespace"] == "hami-system"
    return name, pods.decode_settings(yaml.safe_load(config["data"][key]))


def both(made: list[Object]) -> Any:
    webhook, scheduler = mounted(made, "webhook"), mounted(made, "scheduler")
    assert webhook == scheduler
    return webhook


def test_both_read_one_file_and_an_edit_restarts_both(tmp_path: Path) -> None:
    name, settings = both(kustomized(DEPLOY))
    assert settings == pods.PodSettings(schedulers=("hami-scheduler",))
    folder = of_the_page(tmp_path, "behavior")
    (example,) = re.findall(r"^```yaml\n(schedulers:[^`]*)^```$", SETTINGS, re.M)
    names = {name}
    for written in (example, example.replace("4096", "8192")):
        (tmp_path / "settings.yaml").write_text(written)
        other, settings = both(kustomized(folder))
        assert settings.schedulers == ("hami-scheduler",)
        assert str(settings.default_memory_mib) in written
        names.add(other)
    assert len(names) == 3


def test_names_of_images_and_a_runtime_class_reach_the_parts(tmp_path: Path) -> None:
    made = kustomized(of_the_page(tmp_path, "images"))
    containers = {
        each["name"]: each
        for deployment in made
        if deployment["kind"] == "Deployment"
        for each in deployment["spec"]["template"]["spec"]["containers"]
    }
    ours = f"registry.example/hami-py:{VERSION}"
    images = {name: each["image"] for name, each in containers.items()}
    theirs = images.pop("kube-scheduler")
    assert re.fullmatch(r"registry\.k8s\.io/kube-scheduler:v1\.[0-9.]+", theirs)
    assert images == {"webhook": ours, "extender": ours}
    assert template_of(made, "DaemonSet")["runtimeClassName"] == "nvidia"


def asked_for(made: list[Object]) -> set[str]:
    """The resources with which the webhook is asked: each name of all its expressions."""
    found = [
        set(re.findall(r"'([^']+)'", condition["expression"]))
        for each in made
        if each["kind"].endswith("WebhookConfiguration")
        for hook in each["webhooks"]
        if hook["name"] == "pods.hami.io"
        for condition in hook["matchConditions"]
    ]
    assert len(found) == 2
    assert found[0] == found[1]
    return found[0]


def managed(made: list[Object]) -> dict[str, bool]:
    """The resources with which the extender is asked, and whether kube-scheduler passes them."""
    (text,) = [each["data"]["scheduler.yaml"] for each in made if "scheduler.yaml" in _data(each)]
    (extender,) = yaml.safe_load(text)["extenders"]
    return {each["name"]: each["ignoredByScheduler"] for each in extender["managedResources"]}


def _data(each: Object) -> Object:
    return each["data"] if each["kind"] == "ConfigMap" else {}


def test_the_enabled_names_are_those_of_the_scheduler_configuration() -> None:
    plain, more = kustomized(DEPLOY), rendered("--set", "settings.profiles={hami,aliyun}")
    for made, profiles in ((plain, (HAMI,)), (more, (HAMI, ALIYUN))):
        names = {name for profile in profiles for name in profile.resources}
        assert both(made)[1].profiles == profiles
        assert asked_for(made) == names
        assert managed(made).keys() == names
        # kube-scheduler must not look on nodes for resources that no node publishes.
        published = {HAMI.gpu, HAMI.memory, HAMI.cores}
        assert {name for name, is_ignored in managed(made).items() if not is_ignored} == published
    assert both(plain)[1].schedulers == both(more)[1].schedulers
