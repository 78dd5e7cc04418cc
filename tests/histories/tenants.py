"""Pods as users create them, with random requests."""

from __future__ import annotations

import random

from histories.reading import LABEL, MODE_ANNOTATION
from histories.status_errors import Object

_MIB = (1000, 3000, 4000, 6000, 8000)


def pod(chance: random.Random, name: str) -> Object:
    """One that waits to be bound."""
    spec: Object = {
        "containers": [_container("main", limits(chance, chance.choice((1, 1, 1, 2))))],
        "terminationGracePeriodSeconds": chance.choice((0, 30)),
        "restartPolicy": chance.choice(("Always", "OnFailure", "Never", "Never")),
        "priority": chance.choice((0, 0, 100, 1000)),
    }
    kind = chance.random()
    if kind < 0.15:
        spec["initContainers"] = [_container("init", limits(chance, 1))]
    elif kind < 0.3:
        spec["initContainers"] = [_first(chance, at) for at in range(chance.choice((1, 2, 2, 3)))]
    if 0.25 < kind < 0.37:
        spec["containers"].append(_container("side", limits(chance, 1)))
    kind = chance.random()
    if kind < 0.08:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    elif kind < 0.12:
        spec["resourceClaims"] = [{"name": "nic", "resourceClaimName": "nic"}]
    metadata: Object = {"name": name, "labels": dict(LABEL)}
    if chance.random() < 0.1:
        # As in a namespace that the webhook leaves alone.
        del metadata["labels"]
    if chance.random() < 0.1:
        metadata["annotations"] = {MODE_ANNOTATION: chance.choice(("mig", "hami-core"))}
    if chance.random() < 0.5:
        # As a pod of a Job: if it is deleted before it is bound, it exists for a while.
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _first(chance: random.Random, at: int) -> Object:
    """An init container, or a sidecar."""
    made = _container(f"first-{at}", limits(chance, chance.choice((1, 1, 2))))
    return {**made, "restartPolicy": "Always"} if chance.random() < 0.35 else made


def limits(chance: random.Random, cards: int) -> dict[str, str]:
    """Of a container: MiB mostly, a share of the card, or nothing, which is all of it."""
    said = {"nvidia.com/gpu": str(cards)}
    kind = chance.random()
    if kind < 0.75:
        said["nvidia.com/gpumem"] = str(chance.choice(_MIB))
    elif kind < 0.95:
        said["nvidia.com/gpumem-percentage"] = str(chance.choice((10, 33, 50, 75, 100)))
    cores = chance.choice((0, 0, 30, 50, 100))
    return {**said, "nvidia.com/gpucores": str(cores)} if cores else said


def _container(name: str, said: dict[str, str]) -> Object:
    return {"name": name, "resources": {"limits": said}}
