"""Runs the Kubernetes commands of the CLI in tests, with a pod and a snapshot."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from hami_py._native import Allocator
from hami_py.cli import hami
from hami_py.errors import HamiError
from hami_py.model.pods import wire

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "4k"}}}]
    },
}

#: The limits of a container that requests a card.
GPU = {"nvidia.com/gpu": "1"}


def pod_of(limits: dict[str, Any], uid: str = "u", **spec: Any) -> dict[str, Any]:
    """A pod of one container with these limits; ``main`` has more of that container's fields."""
    main = {"name": "main", "resources": {"limits": limits}, **spec.pop("main", {})}
    metadata = {"name": "p", "namespace": "ml", "uid": uid}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **spec}}


def snapshot_and_pod(folder: Path) -> tuple[str, str]:
    """A snapshot of a node with one card, and a manifest of a pod."""
    engine = Allocator()
    card = wire.Card("GPU-0", 0, "NVIDIA T4", 16_384)
    engine.set_node(wire.encode(wire.Node("a", cards=(card,))))
    snapshot, manifest = folder / "state.json", folder / "pod.json"
    snapshot.write_bytes(engine.snapshot())
    manifest.write_text(json.dumps(POD))
    return str(snapshot), str(manifest)


def refused(*arguments: str) -> HamiError:
    """The error of a command; it has one line, for exit code 1."""
    done = CliRunner().invoke(hami, arguments)
    assert isinstance(done.exception, HamiError), (done.exception, done.output)
    assert "\n" not in str(done.exception)
    assert done.exception.fix
    return done.exception
