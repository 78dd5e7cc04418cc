"""Pods for the tests, made of a few words, and a webhook that carries an admission out."""

import copy
import random
from typing import Any

import pytest

from hami_py.errors import InvalidValue
from hami_py.model import pods
from hami_py.model.pods import Admission, Pod, PodSettings

Manifest = dict[str, Any]

UID = "7a0c5d2e-9b1f-4d3a-8c6e-1f2a3b4c5d6e"
FIRST, SECOND = "GPU-" + "a" * 8, "GPU-" + "b" * 8


def container(name: str = "train", **fields: Any) -> Manifest:
    """``limits`` and ``requests`` by short name: ``gpu``, ``gpumem``, or a full one."""
    made: Manifest = {"name": name}
    for where in ("limits", "requests"):
        if where in fields:
            named = {full(key): value for key, value in fields.pop(where).items()}
            made.setdefault("resources", {})[where] = named
    if "env" in fields:
        env = fields.pop("env")
        made["env"] = [{"name": key, **variable(value)} for key, value in env.items()]
    return made | fields


def full(name: str) -> str:
    return name if "/" in name else f"nvidia.com/{name}"


def variable(value: str | Manifest) -> Manifest:
    return {"value": value} if isinstance(value, str) else {"valueFrom": value}


def manifest(*containers: Manifest, init: tuple[Manifest, ...] = (), **fields: Any) -> Manifest:
    metadata = {"name": "p", "namespace": "ml", "uid": UID, **fields.pop("metadata", {})}
    for part in ("annotations", "labels"):
        if part in fields:
            metadata[part] = fields.pop(part)
    spec = {"containers": list(containers), **fields}
    if init:
        spec["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod(*containers: Manifest, **fields: Any) -> Pod:
    return read(manifest(*containers, **fields))


def read(written: Manifest) -> Pod:
    return pods.decode_pod.convert(written)


def asking(**limits: Any) -> Pod:
    """A pod with one container that has these limits."""
    return pod(container(limits={name.replace("_", "-"): n for name, n in limits.items()}))


def mount(path: str, name: str = "v", **fields: Any) -> Manifest:
    return {"volumeMounts": [{"name": name, "mountPath": path, **fields}]}


def host(path: str) -> Manifest:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


def able(*names: str) -> Manifest:
    return {"securityContext": {"capabilities": {"add": list(names)}}}


def any_pod(chosen: random.Random) -> Manifest:
    """Pods good and bad, of everything that a webhook looks at."""

    def some(*values: Any) -> Any:
        return chosen.choice(values)

    def one(name: str) -> Manifest:
        limits = {
            "gpu": some(None, None, 1, 2, 1, 2, 1, 17),
            "gpumem": some(None, None, None, 3000, "3k", 50),
            "gpumem-percentage": some(None, None, None, 0, 50, 100),
            "gpucores": some(None, 0, 30, 100),
            "priority": some(None, None, None, 0, 1),
        }
        env = {
            "CUDA_DEVICE_MEMORY_LIMIT": some(None, "2000m", "9g", "0"),
            "CUDA_DEVICE_MEMORY_LIMIT_1": some(None, None, "1g", "99g"),
            "CUDA_DEVICE_SM_LIMIT": some(None, None, "20", "90", "0"),
            "CUDA_TASK_PRIORITY": some(None, None, "0", "1"),
            "GPU_CORE_UTILIZATION_POLICY": some(None, None, "disable"),
            "NVIDIA_VISIBLE_DEVICES": some(None, "all", "void"),
            "CUDA_DISABLE_CONTROL": some(None, None, "true"),
        }
        return container(
            name,
            limits={key: value for key, value in limits.items() if value is not None},
            env={key: value for key, value in env.items() if value is not None},
        )

    annotations = {
        "hami.io/assignment": some(None, "{}"),
        "hami.io/gpumem.a": some(None, "1m"),
        "hami.io/gpu-scheduler-policy": some(None, "spread"),
    }
    return manifest(
        one("a"),
        one("b"),
        init=(one("c"), {**one("d"), "restartPolicy": "Always"}),
        annotations={key: value for key, value in annotations.items() if value is not None},
    )


def carried_out(written: Manifest, admission: Admission) -> Manifest:
    """The pod after what the webhook does."""
    done = copy.deepcopy(written)
    for key in admission.remove_annotations:
        del done["metadata"]["annotations"][key]
    if admission.annotations:
        done["metadata"].setdefault("annotations", {}).update(admission.annotations)
    for edit in admission.edits:
        kind, _, number = edit.path.removeprefix("spec.").partition("[")
        target = done["spec"][kind][int(number.rstrip("]"))]
        assert target["name"] == edit.container
        if edit.limits:
            target.setdefault("resources", {}).setdefault("limits", {}).update(edit.limits)
        env = [e for e in target.get("env", []) if e["name"] not in edit.environment.remove]
        target["env"] = env + [added.manifest() for added in edit.environment.add]
    return done


def refused(written: Pod, field: str, value: str, fix: str, **settings: Any) -> None:
    """Reading it fails with an error that names all three, on one line."""
    with pytest.raises(InvalidValue) as caught:
        pods.read_request(written, PodSettings(**settings))
    says(caught.value, field, value, fix)


def says(error: InvalidValue, field: str, value: str, fix: str) -> None:
    assert error.field == field
    assert error.value == value
    assert fix in error.fix
    line = str(error)
    assert field in line
    assert fix in line
    assert "\n" not in line


CLAIM: Manifest = {"resources": {"claims": [{"name": "gpu"}]}}
"""Of a container that uses one claim."""


def _annotated(**annotations: str) -> Manifest:
    named = {name.replace("_", "-"): text for name, text in annotations.items()}
    return manifest(container("a"), container("b"), annotations=named)


#: Pods in a namespace of others, and their containers that may have cards.
OF_OTHERS: list[tuple[Manifest, list[str]]] = [
    (manifest(container("a", **CLAIM), container("b")), ["a"]),
    (manifest(container("a"), init=(container("i", **CLAIM),)), ["i"]),
    (manifest(container("a", limits={"gpu.shared": 1}), container("b")), ["a"]),
    (manifest(container("a", requests={"mig-1g.5gb": 1})), ["a"]),
    (manifest(container("a", limits={"volcano.sh/vgpu-number": 1})), ["a"]),
    (manifest(container("a", limits={"volcano.sh/vgpu-memory": 1})), []),
    (manifest(container("a", limits={"deviceclass.resource.kubernetes.io/gpu": 1})), ["a"]),
    (_annotated(gpu_fraction="0.5"), ["a"]),
    (_annotated(gpu_memory="4000", gpu_fraction_container_name="b"), ["b"]),
    (manifest(container("a", limits={"example.com/other": 1})), []),
    (manifest(container("a", limits={"renamed": 1})), ["a"]),
    (manifest(container("a", limits={"hami.io/limits": 1, "gpu": 1})), ["a"]),
    (manifest(container("a", requests={"hami.io/limits": "1", "gpu": 1})), ["a"]),
]
