"""deploy/image: the image is what the manifests take it for, and can be made of what is locked."""

import json
import re
import sys
from typing import Any

import pytest
from packaging.markers import Marker, default_environment
from packaging.tags import cpython_tags
from packaging.utils import parse_wheel_filename

import hami_py
from cluster import deployed
from support.artifacts import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCKERFILE = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: The wheel tags that Debian 12 and later accept.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]


def last(instruction: str) -> str:
    """The value of this instruction in the last stage of the image."""
    stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    (found,) = re.findall(rf"^{instruction} (.*)$", stage, re.M)
    return str(found)


def base_python() -> tuple[int, int]:
    """The Python of the base that is taken where none is named."""
    found = re.search(r"^ARG BASE=\S+/python:(\d+)\.(\d+)-slim", DOCKERFILE, re.M)
    assert found
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("part", ["webhook", "scheduler"])
def test_a_deployment_names_arguments_for_the_images_entry_point(part: str) -> None:
    container = deployed.container(part)
    assert "command" not in container
    (program,) = json.loads(last("ENTRYPOINT"))
    assert container["args"][0] == part
    assert PROJECT["scripts"][program] == "hami_py.cli:main"


@pytest.mark.parametrize("part", ["webhook", "scheduler"])
def test_a_deployment_runs_as_the_images_user(part: str) -> None:
    user, _, group = last("USER").partition(":")
    security = deployed.deployment(part)["spec"]["template"]["spec"]["securityContext"]
    assert security["runAsUser"] == int(user)
    # A kubelet takes the group from there, where a manifest has none.
    assert f"'hami:x:{user}:{group}::" in DOCKERFILE
    assert f"'hami:x:{group}:'" in DOCKERFILE


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("deploy/chart/Chart.yaml", r"^(?:appVersion|version): (\S+)$"),
        ("deploy/webhook/deployment.yaml", r" image: hami-py:(\S+)$"),
        ("docs/install.md", r"hami-py[-:](\d[\d.]+\d)|newTag: (\d\S+)$"),
        # It begins with the newest release.
        ("CHANGELOG.md", r"\A# Changelog\n[^#]+\n## ([^ ,\n]+)"),
    ],
)
def test_a_file_that_names_our_version_names_that_of_cargo(file: str, pattern: str) -> None:
    found = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert {"".join(each) for each in found} == {hami_py.__version__}


def test_its_labels_are_those_of_the_project() -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', DOCKERFILE))
    assert labels["title"] == PROJECT["name"]
    assert labels["licenses"] == PROJECT["license"]


def locked(extra: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """The packages of uv.lock that this project needs with an extra of its own."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]

    def applies(each: dict[str, Any]) -> bool:
        return "marker" not in each or Marker(each["marker"]).evaluate(environment)

    (ours,) = [each for each in packages if each["name"] == PROJECT["name"]]
    wanted = [*ours["dependencies"], *ours["optional-dependencies"][extra]]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    while wanted:
        need = wanted.pop()
        if not applies(need):
            continue
        (package,) = [
            each
            for each in packages
            if each["name"] == need["name"]
            and need.get("version", each["version"]) == each["version"]
        ]
        for more in ("", *need.get("extra", ())):
            if (package["name"], more) not in found:
                found[package["name"], more] = package
                wanted += package.get("optional-dependencies", {}).get(more, [])
                wanted += [] if more else package.get("dependencies", [])
    return [package for (_, more), package in found.items() if not more]


def test_every_locked_package_has_a_wheel_for_the_base_image_python() -> None:
    """There is no compiler in the base, and nothing is built there."""
    version = base_python()
    written = ".".join(map(str, version))
    named = {"python_version": written, "python_full_version": f"{written}.0"}
    linux = {"sys_platform": "linux", "platform_machine": "x86_64"}
    environment = {**default_environment(), **linux, **named}
    fits = {*cpython_tags(version, platforms=PLATFORMS)}
    packages = locked("kubernetes", {key: str(value) for key, value in environment.items()})
    assert {"uvloop", "cryptography", "msgspec", "click"} <= {each["name"] for each in packages}
    for package in packages:
        names = [wheel["url"].rpartition("/")[2] for wheel in package.get("wheels", ())]
        tags = {tag for name in names for tag in parse_wheel_filename(name)[3]}
        pure = any(tag.platform == "any" for tag in tags)
        assert pure or tags & fits, (
            f"{package['name']} {package['version']}: no wheel for {written}"
        )
