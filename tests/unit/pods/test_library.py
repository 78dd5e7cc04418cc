"""The library in containers, where the webhook mounts it."""

from typing import Any

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import PodSettings
from unit.pods.build import Manifest, container, manifest, pod
from unit.webhook.test_review import ask, patched, reviewer

DIRECTORY = "/usr/local/lib/hami"
LIBRARY = f"{DIRECTORY}/libvgpu.so"
VOLUMES = [
    {"name": "hami-library", "hostPath": {"path": LIBRARY, "type": "File"}},
    {"name": "hami-preload", "hostPath": {"path": f"{DIRECTORY}/ld.so.preload", "type": "File"}},
]
MOUNTS = [
    {"name": "hami-library", "mountPath": LIBRARY, "readOnly": True},
    {"name": "hami-preload", "mountPath": "/etc/ld.so.preload", "readOnly": True},
]
GPU = {"gpu": 1, "gpumem": 3000}


def mutated(written: Manifest) -> Manifest:
    judge = reviewer(library_directory=DIRECTORY)
    done = patched(written, ask(judge, "mutate", written))
    assert ask(judge, "validate", done)["allowed"]
    assert "patch" not in ask(judge, "mutate", done), "twice is once"
    return done


def said(written: Manifest, verb: str = "mutate") -> str:
    response = ask(reviewer(library_directory=DIRECTORY), verb, written)
    assert not response["allowed"]
    return str(response["status"]["message"])


def test_if_the_device_plugin_provides_it_nothing_is_mounted() -> None:
    written = manifest(container(limits=GPU))
    done = patched(written, ask(reviewer(), "mutate", written))
    assert "volumes" not in done["spec"]
    assert "volumeMounts" not in done["spec"]["containers"][0]


@pytest.mark.parametrize("there", [{}, {"volumes": [{"name": "data", "emptyDir": {}}]}])
def test_it_is_mounted_into_each_container_that_requests_a_gpu(there: Manifest) -> None:
    data = {"name": "data", "mountPath": "/data"}
    asks = container(limits=GPU, **({"volumeMounts": [data]} if there else {}))
    sidecar = {**container("side", limits=GPU), "restartPolicy": "Always"}
    first_ones = (container("init", limits=GPU), sidecar)
    done = mutated(manifest(asks, container("none"), init=first_ones, **there))["spec"]
    assert done["volumes"] == [*there.get("volumes", []), *VOLUMES]
    first, none = done["containers"]
    assert first["volumeMounts"] == [*([data] if there else []), *MOUNTS]
    assert "volumeMounts" not in none
    assert [each["volumeMounts"] for each in done["initContainers"]] == [MOUNTS, MOUNTS]


def test_a_pod_without_a_gpu_stays_as_it_is() -> None:
    mine: Manifest = {"name": "hami-library", "emptyDir": {}}
    written = manifest(container(), volumes=[mine])
    assert mutated(written) == written


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "hami-library", "emptyDir": {}},
        {"name": "hami-library", "hostPath": {"path": "/etc/passwd", "type": "File"}},
        {"name": "hami-library", "hostPath": {"path": LIBRARY, "type": "FileOrCreate"}},
    ],
)
def test_another_volume_of_that_name_is_refused(volume: Manifest) -> None:
    told = said(manifest(container(limits=GPU), volumes=[volume]))
    assert 'spec.volumes[0].name: "hami-library" is refused' in told
    assert "choose another name" in told


@pytest.mark.parametrize(
    "mount",
    [
        {"name": "hami-library", "mountPath": LIBRARY},
        {"name": "hami-library", "mountPath": "/x", "readOnly": True},
        {**MOUNTS[0], "mountPath": f"{LIBRARY}/"},
        {**MOUNTS[0], "subPath": "other"},
        {**MOUNTS[0], "subPathExpr": "other"},
        {**MOUNTS[0], "mountPropagation": "Bidirectional"},
        {**MOUNTS[1], "name": "hami-library"},
        {**MOUNTS[1], "readOnly": False},
    ],
)
@pytest.mark.parametrize("where", ["containers", "ephemeralContainers"])
def test_other_containers_must_not_mount_our_volume(mount: Manifest, where: str) -> None:
    """By any container of the pod: one without a GPU would write to the node's library."""
    written = manifest(container(limits=GPU))
    other = {"name": "other", "volumeMounts": [mount]}
    if where == "containers":
        written["spec"]["containers"].append(other)
        told, place = said(written), "spec.containers[1]"
    else:
        later = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
        done = mutated(written)
        done["spec"]["ephemeralContainers"] = [other]
        response = ask(reviewer(library_directory=DIRECTORY), "validate", done, **later)
        told, place = response["status"]["message"], "spec.ephemeralContainers[0]"
    assert f'{place}.volumeMounts[0].name: "{mount["name"]}" is refused' in told
    assert "leave it out" in told


@pytest.mark.parametrize("path", [LIBRARY, f"{DIRECTORY}//x/../libvgpu.so/"])
def test_a_mount_over_it_is_refused(path: str) -> None:
    mounted = [{"name": "v", "mountPath": path}]
    one = container(limits=GPU, volumeMounts=mounted)
    settings = PodSettings(library_directory=DIRECTORY)
    (finding,) = pods.admit(pod(one, volumes=[{"name": "v"}]), settings).refusals
    assert finding.field == "spec.containers[0].volumeMounts[0].mountPath"
    assert pods.admit(pod(one, volumes=[{"name": "v"}])).refusals == ()


@pytest.mark.parametrize("path", [DIRECTORY, "/usr/local", f"{DIRECTORY}/x"])
def test_the_nodes_directory_is_not_mounted_to_be_written(path: str) -> None:
    volume = {"name": "v", "hostPath": {"path": path}}
    one = container(limits=GPU, volumeMounts=[{"name": "v", "mountPath": "/host"}])
    settings = PodSettings(library_directory=DIRECTORY)
    (finding,) = pods.admit(pod(one, volumes=[volume]), settings).refusals
    assert (finding.rule, finding.value) == ("host-path", path)


@pytest.mark.parametrize(
    ("undo", "field"),
    [
        (lambda spec: spec.pop("volumes"), "spec.volumes"),
        (
            lambda spec: spec["containers"][0]["volumeMounts"].pop(),
            "spec.containers[0].volumeMounts",
        ),
        (
            lambda spec: spec["containers"][0].pop("volumeMounts"),
            "spec.containers[0].volumeMounts",
        ),
    ],
)
def test_removal_by_another_webhook_is_refused(undo: Any, field: str) -> None:
    done = mutated(manifest(container(limits=GPU)))
    undo(done["spec"])
    told = said(done, "validate")
    assert field in told
    assert "another webhook changed the pod" in told


@pytest.mark.parametrize("path", ["lib", "/", "/lib/", "/a/../b", "/a b", "/a:b", "/$LIB", "/a#b"])
def test_an_invalid_directory_is_refused(path: str) -> None:
    with pytest.raises(InvalidValue, match="library_directory") as caught:
        PodSettings(library_directory=path)
    assert caught.value.value == path
